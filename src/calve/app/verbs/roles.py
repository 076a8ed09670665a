"""Which role may use which verb: every public method of `Calve` has a `Verb`; a test fails for one that has none."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from calve.model.access import Role


class Reach(StrEnum):
    STORE = "store"  # answered from the store
    OUTSIDE = "outside"  # asks a source, a catalog or a storage
    HERE = "here"  # needs the program that asks; never served


@dataclass(frozen=True, kw_only=True)
class Verb:
    """What a front may offer. `changes`: it queues, stops or deletes something."""

    name: str
    role: Role
    reach: Reach
    changes: bool = False
    raised: Mapping[str, Role] = field(default_factory=dict)  # options that need more than the verb
    lowered: Mapping[str, Role] = field(default_factory=dict)  # options with which it needs less

    def needs(self, arguments: Mapping[str, Any]) -> Role:
        given = [name for name, value in arguments.items() if value]
        lowered = next((self.lowered[name] for name in given if name in self.lowered), self.role)
        raised = [self.raised[name] for name in given if name in self.raised]
        return max([lowered, *raised], key=list(Role).index) if raised else lowered


def _verbs(role: Role, reach: Reach, names: str, *, changes: bool = False) -> list[Verb]:
    return [Verb(name=name, role=role, reach=reach, changes=changes) for name in names.split()]


# They publish what row policies hide, or give up rows that are exported, or trust what nobody signed.
_RISKY = ("ignore_row_policies", "discard_deletes", "allow_shrink", "allow_overlap", "unsigned")
_RAISED = dict.fromkeys(_RISKY, Role.ADMIN)
_V, _O, _A = Role.VIEWER, Role.OPERATOR, Role.ADMIN

VERBS: Mapping[str, Verb] = MappingProxyType(
    {
        verb.name: verb
        for verb in (
            *_verbs(_V, Reach.STORE, "now find has_workers notes outages processes show events why standing"),
            *_verbs(_V, Reach.STORE, "workers history page servers breakers halts proofs keys feed tasks totals versions"),
            *_verbs(_V, Reach.STORE, "seen attention tables table sheet vault tiering system search"),
            *_verbs(_V, Reach.OUTSIDE, "source_tables parts health export_preview optimize_preview"),
            # A pair that had no export yet: what is kept of it takes room in the store.
            Verb(name="partitions", role=_V, reach=Reach.OUTSIDE, raised={"keep": _O}),
            *_verbs(_V, Reach.OUTSIDE, "backup_list backup_show view_show"),
            *_verbs(_V, Reach.STORE, "policy_list policy_show policy_explain hold_list schedule_list schedule_show"),
            *_verbs(_O, Reach.STORE, "settings audit"),
            *_verbs(_O, Reach.STORE, "policy_pause policy_resume schedule_pause schedule_resume", changes=True),
            *_verbs(_O, Reach.OUTSIDE, "hold_add untier", changes=True),
            Verb(name="policy_undo", role=_O, reach=Reach.OUTSIDE, changes=True, raised={"force": _A}),
            Verb(name="policy_drop", role=_V, reach=Reach.OUTSIDE, changes=True, raised={"approve": _A}),
            Verb(name="policy_approve", role=_A, reach=Reach.STORE, changes=True, lowered={"dry_run": _V}),
            Verb(name="policy_run", role=_O, reach=Reach.OUTSIDE, changes=True, lowered={"dry_run": _V}),
            *_verbs(_O, Reach.STORE, "halt lift", changes=True),
            *_verbs(_O, Reach.OUTSIDE, "verify backup_verify doctor support"),
            Verb(name="export", role=_O, reach=Reach.OUTSIDE, changes=True, raised=_RAISED),
            Verb(name="backup_create", role=_O, reach=Reach.OUTSIDE, changes=True,
                 raised={"ignore_row_policies": _A}),
            *_verbs(_O, Reach.OUTSIDE, "optimize stop notify_test schedule_run backup_drill", changes=True),
            *_verbs(_O, Reach.STORE, "cancel retry", changes=True),
            *_verbs(_A, Reach.OUTSIDE, "backup_restore backup_delete view_create view_drop", changes=True),
            Verb(name="backup_prune", role=_A, reach=Reach.OUTSIDE, changes=True, lowered={"dry_run": _V}),
            *_verbs(_A, Reach.STORE, "token_list"),
            *_verbs(_A, Reach.OUTSIDE, "restore_preview"),
            *_verbs(_A, Reach.STORE, "token_new token_revoke hold_release", changes=True),
            *_verbs(_A, Reach.HERE, "follow run pin worker", changes=True),
        )
    }
)  # fmt: skip

KINDS = ("export", "backup", "restore", "optimize", "proof", "drill", "release", "return", "drop", "untier")
# Their processes and their key are one transaction of the store.
SUBMITS = frozenset(
    {
        "export",
        "optimize",
        "backup_create",
        "backup_restore",
        "policy_undo",
        "untier",
        "retry",
        "schedule_run",
        "backup_drill",
    }
)
