"""Policies on a page: where their partitions stand, what waits for a person, what left its table, what comes, and holds.

Answered from the store: what was last seen, with its age. Nothing shown here decides anything.
"""

from collections.abc import Mapping, Sequence

from calve.app import view
from calve.app.commands import command
from calve.app.pages.answers import Kept
from calve.app.pages.document import head
from calve.app.policies.holds import hold_json
from calve.app.view import Json
from calve.app.wiring import App
from calve.model.access import Halt
from calve.model.tier import POLICY_HALT
from calve.policy.policy import Policy

_MOST = 200  # of each list
_LISTED = frozenset(  # of a policy, in a list of them
    {
        "name",
        "source",
        "to",
        "paused",
        "halt",
        "release",
        "asks",
        "tables",
        "states",
        "next",
        "seen_at",
        "error",
        "why_aside",
    }
)


class Standings(Kept[Mapping[str, Json]]):
    """The document of each policy, made beside requests: a policy over many tables takes longer than a page may. What
    people allow or hold shows at once."""

    def __init__(self, app: App) -> None:
        super().__init__(lambda: _documents(app), "standings")
        self._app = app
        self._said: object = None  # what people had said when it was made

    def now(self) -> Mapping[str, Json]:
        registry = self._app.registry
        holds = [(one.id, one.until_at) for one in registry.holds()]
        said = (holds, [(one.hash, one.identity, one.destination) for one in registry.approvals()])
        if said == self._said:
            return self.get()
        made = self.renewed()
        self._said = said
        return made


def tiering(app: App, *, name: str = "") -> Json:
    """`name`: one policy alone, with what only its page has room for."""
    document = head(app)
    if name:
        app.config.policy(name)  # UsageError for one that is not there
    made = app.standings.now()
    now = app.store.now()
    holds = [hold_json(one, standing=True) for one in app.registry.holds() if one.stands(now)]
    halts = [one for one in app.store.halts() if one.kind == POLICY_HALT]
    if name:
        sources = {one["source"] for one in made[name]["of_tables"]}
        holds = [one for one in holds if one["name"] in sources]
        found: Json = {"policy": _as_now(made[name], halts)}
        commands = _commands(app.config.policy(name))
    else:
        shown = [_as_now(made[one.name], halts) for one in app.config.policies]
        found = {"policies": [{key: value for key, value in one.items() if key in _LISTED} for one in shown]}
        found["schedules"] = len(app.config.schedules)
        commands = {"list": command("policy_list"), "holds": command("hold_list")}
    return document | found | {
        "holds": holds[:_MOST],
        "holds_total": len(holds),
        "counted_seconds": round(app.standings.seconds, 1),
        "subjects": [],
        "commands": commands,
    }  # fmt: skip


def _as_now(made: Json, halts: Sequence[Halt]) -> Json:
    own = [one for one in halts if one.source in ("", made["name"])]
    return made | {"paused": bool(own), "halt": view.plain_json(own[0]) if own else None}


def _commands(policy: Policy) -> Json:
    given = {"name": policy.name}
    return {
        "show": command("policy_show", **given),
        "run": command("policy_run", **given, dry_run=True),
        **({"approve": command("policy_approve", **given, dry_run=True)} if policy.releases else {}),
        "pause": command("policy_pause", **given),
        "resume": command("policy_resume", **given),
    }


def _documents(app: App) -> dict[str, Json]:
    if not app.config.policies:
        return {}  # a server without policies imports nothing of them
    from calve.app.desk import load_outside

    load_outside()  # two threads that are the first to import PyIceberg stop each other
    from calve.app.policies.sheet import policy_document

    return {one.name: policy_document(app, one) for one in app.config.policies}
