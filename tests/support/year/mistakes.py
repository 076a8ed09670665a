"""Rules of releases, removed one at a time by patches that the product knows nothing of. Each must be found, or the year looks away."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from importlib import import_module
from typing import Any
from unittest.mock import patch

from calve.app.policies import consent, evaluation, starts
from calve.app.policies.releases import TurningView
from calve.clickhouse.tier import obstacles, replicas
from calve.control.kind import Fenced
from calve.export.request import Earlier
from calve.model.change import ReleaseTo
from calve.model.states import ReleaseState
from calve.model.tier import Situation
from calve.policy.release.kind import ReleaseKind
from calve.policy.release.sides import LakeSide
from calve.policy.release.undo import ReturnKind
from calve.policy.release.way_back import WayBack
from support.year.world import DAYS, YearCase

dropping = import_module("calve.policy.release.drop")
guards = import_module("calve.store.guards")
tiers = import_module("calve.model.tier")
leaving = import_module("calve.policy.release.kind")
memory = import_module("calve.testing.memory_tier")
publishing = import_module("calve.iceberg.publish.publish")
sides = import_module("calve.policy.release.sides")
standing = import_module("calve.policy.stand")
surveying = import_module("calve.policy.release.survey")
exporting = import_module("calve.export.survey")
Real = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Mistake:
    name: str
    words: str
    planted: Callable[[], AbstractContextManager[None]]
    tables: tuple[str, ...] = ()  # that a year needs for it to matter
    rule: tuple[tuple[str, str], ...] = ()  # keys of the policy, likewise
    deeds: tuple[str, ...] = ()  # of people, likewise
    days: int = DAYS  # fewer where it shows early
    asked: bool = True
    test: str = ""  # that finds it, where no year can

    def case(self, seed: int) -> YearCase:
        return YearCase(
            seed=seed, days=self.days, deeds=self.deeds, asked=self.asked, tables=self.tables, rule=self.rule
        )


MISTAKES: dict[str, Mistake] = {}


Make = Callable[[], Iterator[None]]


def _keep(words: str, **given: Any) -> Callable[[Make], Make]:
    def keep(make: Make) -> Make:
        made = Mistake(name=make.__name__, words=words, planted=contextmanager(make), **given)
        MISTAKES[made.name] = made
        return make

    return keep


def mistake(
    words: str, *deeds: str, tables: tuple[str, ...] = (), days: int = 90, asked: bool = True, **rule: str
) -> Callable[[Make], Make]:
    """One that a year finds: of so many days, with these people, tables and keys of the policy."""
    given = {"release_after": "3d", "export_after": "1d"} | rule
    return _keep(
        words, deeds=deeds, tables=tables or ("ended",), days=days, asked=asked, rule=tuple(given.items())
    )


def mistake_elsewhere(words: str, test: str) -> Callable[[Make], Make]:
    """One that no year can meet; an ordinary test does."""
    return _keep(words, test=test)


def planted(name: str) -> AbstractContextManager[None]:
    return MISTAKES[name].planted()


# -- what a person said -------------------------------------------------------------------------------


def _situations(change: Callable[[Situation], Situation]) -> Iterator[None]:
    """What a store finds in the transaction that announces a step."""
    real: Real = memory.check_intent

    def check(process: Any, intend: Any, found: Situation) -> None:
        real(process, intend, change(found))

    with patch.object(memory, "check_intent", check), patch.object(guards, "check_intent", check):
        yield


@mistake("a hold stops no release", "hold", "meddle")
def hold_ignored() -> Iterator[None]:
    with patch.object(evaluation, "matching", lambda *_: []):
        yield from _situations(lambda found: replace(found, holds=()))


@mistake("nobody has to approve a release", "late", asked=False)
def approval_ignored() -> Iterator[None]:
    real: Real = evaluation._Releases.facts

    def facts(self: Any, *given: Any) -> Any:
        return replace(real(self, *given), approved=True)

    with patch.object(evaluation._Releases, "facts", facts):
        yield from _situations(lambda found: replace(found, approved=True))


@mistake("a policy that is paused goes on", "pause", "meddle")
def pause_ignored() -> Iterator[None]:
    with patch.object(starts, "is_paused", lambda *_: False):
        yield from _situations(lambda found: replace(found, halts=()))


@mistake("a policy that was edited or deleted goes on", "edit", "meddle", "meddle", "meddle", days=365)
def edit_ignored() -> Iterator[None]:
    with patch.object(tiers, "_check_policy", lambda *_: None):
        yield


# -- what may not leave -------------------------------------------------------------------------------


def _without(*codes: str) -> Iterator[None]:
    """Obstacles of these codes are not seen, wherever they are looked for."""
    find: Real = obstacles.find
    late: Real = sides.not_over
    over: Real = evaluation._Releases._over
    lagging: Real = replicas.obstacles

    def found(*given: Any) -> Any:
        return tuple(one for one in find(*given) if one.code not in codes)

    def not_over(*given: Any) -> Any:
        made = late(*given)
        return None if made is None or made[0] in codes else made

    def is_over(self: Any, *given: Any) -> str:
        made: str = over(self, *given)
        return "" if made in codes else made

    with (
        patch.object(obstacles, "find", found),
        patch.object(sides, "not_over", not_over),
        patch.object(evaluation._Releases, "_over", is_over),
        patch.object(
            replicas, "obstacles", lambda seen: [one for one in lagging(seen) if one.code not in codes]
        ),
    ):
        yield


@mistake("tables whose merges combine rows may be released from", "late", tables=("combining",))
def any_engine() -> Iterator[None]:
    yield from _without("engine")


@mistake("a version that loses parts may be released from", "late", tables=("old",))
def any_version() -> Iterator[None]:
    yield from _without("server_version")


@mistake("a replica may be missing", "late", tables=("lagging",))
def any_replica() -> Iterator[None]:
    yield from _without("replicas")


@mistake("a TTL may fire first", "merge", tables=("brief",), days=365)
def any_ttl() -> Iterator[None]:
    yield from _without("ttl_first")


@mistake("the newest partition may leave", "merge", tables=("ended",))
def newest_leaves() -> Iterator[None]:
    yield from _without("newest_partition")


@mistake("a partition whose time is not over may leave", "force", "future", days=150)
def too_early() -> Iterator[None]:
    yield from _without("not_over", "newest_partition")


@mistake("a mutation that is pending stops nothing", "pending", "meddle")
def pending_mutation() -> Iterator[None]:
    real: Real = evaluation._Releases.facts
    stand: Real = standing.stand

    def stood(facts: Any) -> Any:
        return stand(replace(facts, mutating=False))

    with patch.object(evaluation._Releases, "facts", real), patch.object(evaluation, "stand", stood):
        yield from _without("mutation")


@mistake("clocks may differ", "skew", "meddle")
def any_skew() -> Iterator[None]:
    stand: Real = standing.stand

    def stood(facts: Any) -> Any:
        return stand(replace(facts, skew=timedelta()))

    with patch.object(evaluation, "stand", stood):
        yield from _without("clock_skew")


# -- proof by value -----------------------------------------------------------------------------------


@mistake(
    "what changed since the export leaves, and what left is compared with nothing",
    "late",
    "meddle",
    on_late_rows="hold",
)
def nothing_compared() -> Iterator[None]:
    def prove(self: Any, release: Any) -> None:
        held = self._hot.held(self._attempt(release))
        self._journal(ReleaseTo(state=ReleaseState.QUARANTINED, rows=held.rows, sums=str(held)))

    stand: Real = standing.stand

    def stood(facts: Any) -> Any:
        export = facts.export
        return stand(replace(facts, export=replace(export, unchanged=True)) if export is not None else facts)

    with (
        patch.object(leaving, "unchanged", lambda *_: True),
        patch.object(surveying, "unchanged", lambda *_: True),
        patch.object(surveying, "_of_proof", lambda *_: ()),
        patch.object(leaving._Departure, "_prove", prove),
        patch.object(evaluation, "stand", stood),
    ):
        yield


@mistake("the lake is not told that rows leave", "late")
def no_mark() -> Iterator[None]:
    with (
        patch.object(LakeSide, "mark", lambda *_: None),
        patch.object(LakeSide, "is_marked", lambda *_: True),
    ):
        yield


@mistake("released keys are replaced", "late", "late", "force", "force", days=150, on_late_rows="hold")
def released_replaced() -> Iterator[None]:
    nothing: Real = lambda *_: None  # noqa: E731
    real: Real = Earlier.is_held_back

    def held_back(self: Any, request: Any) -> Any:
        return real(replace(self, export=replace(self.export, released="")), request)

    with (
        patch.object(publishing, "refuse_released", nothing),
        patch.object(exporting, "refuse_released", nothing),
        patch.object(Earlier, "is_held_back", held_back),
    ):
        yield


# -- the view -----------------------------------------------------------------------------------------


@mistake("the view is not turned before rows leave", "late", view="{database}.{table}_all")
def no_turn() -> Iterator[None]:
    with (
        patch.object(TurningView, "turn", lambda *_, **__: None),
        patch.object(TurningView, "differs", lambda *_: ""),
    ):
        yield


@mistake(
    "queries that began before the view turned are not waited for",
    "meddle",
    "reader",
    view="{database}.{table}_all",
)
def no_waiting() -> Iterator[None]:
    with patch.object(TurningView, "older", lambda *_: ""):
        yield


# -- back ---------------------------------------------------------------------------------------------


@mistake("a release that must end does not walk back", "hold", "meddle", "late", "cancel", days=150)
def no_way_back() -> Iterator[None]:
    with patch.object(ReleaseKind, "fence", lambda *_: Fenced()):
        yield


@mistake("rows come back though a mutation came since they left", "erase", "undo", days=150)
def undo_insists() -> Iterator[None]:
    with (
        patch.object(ReturnKind, "_refuse", lambda *_: None),
        patch.object(WayBack, "_refuse_mutations", lambda *_: None),
    ):
        yield


@mistake("rows come back, and the view is not turned again", "undo", view="{database}.{table}_all")
def no_turn_back() -> Iterator[None]:
    real: Real = TurningView.turn

    def turn(self: Any, *, cold: bool) -> None:
        if cold:
            real(self, cold=cold)

    with patch.object(TurningView, "turn", turn):
        yield


# -- drops --------------------------------------------------------------------------------------------


@mistake("a drop has no grace", "drop", only_copy="accepted", release_after="10d", days=120)
def no_grace() -> Iterator[None]:
    real: Real = dropping.DropRequest

    def request(**given: Any) -> Any:
        return real(**(given | {"grace_seconds": 0.0}))

    with (
        patch.object(consent, "dropped_from", lambda _policy, release: release.settled_at),
        patch.object(consent, "DropRequest", request),
    ):
        yield


@mistake("the lake may have the only copy, though nobody accepted that", "drop", only_copy="")
def only_copy_unasked() -> Iterator[None]:
    real: Real = consent._drop

    def drop(app: Any, release: Any) -> Any:
        wanted = tuple(replace(one, only_copy=True) for one in app.config.policies)
        with patch.object(app, "config", replace(app.config, policies=wanted)):
            return real(app, release)

    with patch.object(consent, "_drop", drop):
        yield


@mistake(
    "a drop does not read the lake and the quarantine again",
    "drop",
    "lake_delete",
    days=150,
    only_copy="accepted",
)
def drop_unproven() -> Iterator[None]:
    def conditions(self: Any, receipts: Any) -> Any:
        version = self._ports.guard(self._of.guarded)
        if self.release.state is ReleaseState.DROPPING:
            self._spare()
        return version, self.refuse()

    with patch.object(dropping._Departed, "_conditions", conditions):
        yield


@mistake("a drop needs no approval", "drop", only_copy="accepted")
def drop_unapproved() -> Iterator[None]:
    real: Real = consent.policy_drop

    def drop(app: Any, store: Any, table: Any, partitions: Any, asked: Any, *, approve: str = "") -> Any:
        """The first look begins it at once, and nobody has seen the plan."""
        with patch.object(type(app.registry), "approve", lambda *_: None, create=True):
            seen = real(app, store, table, partitions, asked)
            return real(app, store, table, partitions, asked, approve=seen["hash"])

    with patch.object(consent, "policy_drop", drop):
        yield from _situations(lambda found: replace(found, approved=True))
