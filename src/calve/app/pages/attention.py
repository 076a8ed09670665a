"""What a person must do something about now (T17): cards, the most urgent first, equal ones as one.

Read from the store as it is at this moment, in a bounded number of statements; counts in memory are for the throughput
alone. A failure stays until it is retried, until its partitions are published by another process, or for 14 days.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from calve import __version__
from calve.app import view
from calve.app.commands import command
from calve.app.expectations import Overdue, overdue
from calve.app.pages.counts import QUARTER_SECONDS
from calve.app.pages.document import Remembered, head, with_why
from calve.app.pages.overview import QUARTERS, Overview
from calve.app.policies.approvals import waiting
from calve.app.policies.guard import standing
from calve.app.view import Json
from calve.app.wiring import App
from calve.control.budget import concerns, halting
from calve.control.why import why
from calve.model.access import NAMED_HALTS
from calve.model.process import Process, ProcessId, ProcessQuery, Worker
from calve.model.reach import reaches
from calve.model.record import fields_of
from calve.model.states import ProcessState, ReleaseState
from calve.model.tier import POLICY_HALT, Release

CARDS = 20
_FAILED_DAYS = 14.0
_FAILURES = 200
_LATER = 1000  # newest ends that are looked through for what replaced a failure
_LIVE = 1000
_PIN_HOURS = 6.0
_STUCK_HOURS = 1.0
_HALT_HOURS = 24.0
_SHOWN_IDS = 20
_MOVES = ("release", "return", "drop", "untier")
_MOST_LATE = 20


@dataclass(frozen=True, kw_only=True)
class Card:
    kind: str
    title: str
    why: str
    since: datetime | None
    ids: tuple[ProcessId, ...] = ()
    count: int = 1
    code: str = ""
    source: str = ""
    destination: str = ""
    action: str | None = None  # a verb, or what pages call it
    arguments: Json = field(default_factory=dict)
    command: str = ""
    href: tuple[str, Json] | None = None  # a page and its arguments
    work: str = ""  # which kind of it webhooks are told that it is about
    state: str = ""  # what makes it news again, beside kind, source and destination

    def to_json(self, urgency: int) -> Json:
        return {
            "kind": self.kind,
            "urgency": urgency,
            "title": self.title,
            "why": self.why,
            "since": view.time_json(self.since),
            "count": self.count,
            "ids": list(self.ids[:_SHOWN_IDS]),
            "code": self.code,
            "source": self.source,
            "destination": self.destination,
            "action": self.action,
            "arguments": self.arguments,
            "command": self.command,
            "href": list(self.href) if self.href else None,
        }


class _Look:
    """What the cards read, each once."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.reader = Remembered(app.store)
        self.now = self.reader.now()

    @cached_property
    def live(self) -> list[Process]:
        return self.app.store.live(_LIVE)

    @cached_property
    def alive(self) -> list[Worker]:
        fresh = timedelta(seconds=self.app.limits.lease_seconds)
        return [one for one in self.reader.workers() if self.now - one.heartbeat_at <= fresh]

    @cached_property
    def unknown(self) -> list[Process]:
        return self.app.registry.unknown_outcomes(_FAILURES)

    @cached_property
    def failed(self) -> list[Process]:
        """That nobody has dealt with, newest first."""
        registry = self.app.registry
        since = self.now - timedelta(days=_FAILED_DAYS)
        found = registry.ended(since, failed=True, limit=_FAILURES)
        if not found:
            return []
        retried = registry.retried([one.id for one in found])
        oldest = min(one.finished_at for one in found if one.finished_at)
        later: dict[tuple[str, str, str, str], datetime] = {}
        for one in registry.ends(oldest, state=ProcessState.COMPLETED, limit=_LATER):
            for name in one.partitions or ("",):
                later.setdefault((one.kind, one.source, one.destination, name), one.finished_at)
        return [one for one in found if one.id not in retried and not _replaced(one, later)]


def _replaced(process: Process, later: dict[tuple[str, str, str, str], datetime]) -> bool:
    if process.finished_at is None:
        return False
    places = [
        (process.kind, process.source, process.destination, name) for name in process.partitions or ("",)
    ]
    return all(place in later and later[place] > process.finished_at for place in places)


def _unknown(look: _Look) -> Iterator[Card]:
    for one in look.unknown:
        if one.kind in _MOVES:
            continue  # see _halfway
        yield Card(
            kind="unknown",
            title=f"The {one.kind} {one.id} to {one.destination} may or may not have been published",
            why=why(look.reader, one),
            since=one.finished_at,
            ids=(one.id,),
            code=one.error.code if one.error else "",
            source=one.source,
            destination=one.destination,
            command=command("why", ids=[one.id]),
            href=("sheet", {"id": one.id}),
        )


def _damaged(look: _Look) -> Iterator[Card]:
    for one in look.live:
        if one.damaged:
            yield Card(
                kind="damaged",
                title=f"The row of process {one.id} cannot be read",
                why=why(look.reader, one),
                since=one.created_at,
                ids=(one.id,),
                command=command("doctor"),
                href=("sheet", {"id": one.id}),
            )


def _failed(look: _Look) -> Iterator[Card]:
    groups: dict[tuple[str, ...], list[Process]] = {}
    unknown = {one.id for one in look.unknown}
    for one in look.failed:
        if one.id not in unknown:
            code = one.error.code if one.error else ""
            groups.setdefault((one.kind, one.source, one.destination, code), []).append(one)
    for (kind, source, destination, code), found in groups.items():
        newest = found[0]
        what = f"{len(found)} {kind}s" if len(found) > 1 else f"The {kind} {newest.id}"
        ids = tuple(one.id for one in found)
        error = newest.error
        yield Card(
            kind="failed",
            title=f"{what} of {source or destination} failed: {code}",
            why=f"{error.message}{f' ({error.hint})' if error.hint else ''}" if error else "",
            since=newest.finished_at,
            ids=ids,
            count=len(found),
            code=code,
            source=source,
            destination=destination,
            action="retry",
            arguments={"ids": list(ids[:_SHOWN_IDS])},
            command=command("retry", ids=ids[:_SHOWN_IDS]),
            href=("sheet", {"id": newest.id}),
        )


def _released(look: _Look) -> Iterator[Card]:
    """Rows that may have had their only copy in the lake."""
    for one in standing(look.app):
        late = one.is_late(look.app, look.now)
        if not one.missing and not late:
            continue
        title = (
            f"{one.missing} released rows of {one.destination} are missing"
            if one.missing
            else f"Released rows of {one.destination} were not counted lately"
        )
        yield Card(
            kind="released_rows_missing" if one.missing else "released_rows_uncounted",
            title=title,
            why=". ".join(filter(None, (one.why, *one.summary.get("repair", ()))))
            if one.missing
            else one.error,
            since=one.seen_at,
            code="released_rows_missing" if one.missing else "",
            destination=one.destination,
            command=command("doctor"),
            href=("system", {}),
            work="release",
            state=f"{one.missing} {one.summary.get('head')}" if one.missing else str(one.seen_at),
        )


def _approvals(look: _Look) -> Iterator[Card]:
    """The first release of a policy, or of one that was edited, asks."""
    for one in waiting(look.app):
        yield Card(
            kind="approval",
            title=f"Policy {one.policy} waits for approval to move {one.partitions}"
            f" {'partitions' if one.partitions > 1 else 'partition'} out of {one.source}",
            why=f"{one.rows:,} rows are proven in {one.destination}; nothing leaves its table before somebody allows it",
            since=one.since,
            count=one.partitions,
            source=one.source,
            destination=one.destination,
            action="policy_approve",
            arguments={"name": one.policy},
            command=command("policy_approve", name=one.policy, dry_run=True),
            href=("policy", {"name": one.policy}),
            work="release",
            state=f"{one.policy} {one.hash}",
        )


def _down(look: _Look) -> Iterator[Card]:
    for one in look.reader.breakers():
        waiting = [process.id for process in look.live if concerns(one, process)]
        yield Card(
            kind="down",
            title=f"{one.service} is down",
            why=f"{one.reason}; {_wait(len(waiting))} for it",
            since=one.opened_at,
            ids=tuple(waiting),
            count=len(waiting),
            command=command("doctor"),
            href=("system", {}),
        )


def _workers(look: _Look) -> Iterator[Card]:
    held: dict[str, list[ProcessId]] = {}
    for process in look.live:
        if process.owner:
            held.setdefault(process.owner, []).append(process.id)
    for worker in look.reader.workers():
        if worker not in look.alive and worker.id in held:
            yield Card(
                kind="silent",
                title=f"Worker {worker.id} fell silent",
                why=f"another worker takes over what it holds: {', '.join(held[worker.id][:3])}",
                since=worker.heartbeat_at,
                ids=tuple(held[worker.id]),
                count=len(held[worker.id]),
                command="calve worker",
                href=("system", {}),
            )
    nobodys = [one for one in look.live if not any(reaches(worker.reach, one) for worker in look.alive)]
    if nobodys:
        one = min(nobodys, key=lambda process: process.created_at)
        title = "No worker is running" if not look.alive else "No worker reaches some of the work"
        yield Card(
            kind="no_worker",
            title=f"{title}, and {_wait(len(nobodys))}",
            why=why(look.reader, one, tasks=False),
            since=one.created_at,
            ids=tuple(each.id for each in nobodys),
            count=len(nobodys),
            command="calve worker",
            href=("page", {"view": "waiting"}),
        )


def _stuck(look: _Look) -> Iterator[Card]:
    """Live for long, with nothing running, and none of the other cards says why."""
    old = look.now - timedelta(hours=_STUCK_HOURS)
    for one in look.live:
        excused = (
            one.tasks.running
            or one.damaged
            or one.state is ProcessState.PUBLISHING
            or halting(one, look.reader.halts())
            or any(concerns(breaker, one) for breaker in look.reader.breakers())
            or not any(reaches(worker.reach, one) for worker in look.alive)
        )
        if one.created_at < old and not excused:
            yield Card(
                kind="late",
                title=f"The {one.kind} {one.id} of {one.source or one.destination} does not move",
                why=why(look.reader, one, tasks=False),
                since=one.created_at,
                ids=(one.id,),
                source=one.source,
                destination=one.destination,
                action="cancel",
                arguments={"ids": [one.id]},
                command=command("why", ids=[one.id]),
                href=("sheet", {"id": one.id}),
            )


def halfway(live: Sequence[Process], unknown: Sequence[Process], now: datetime) -> list[Process]:
    """What moves rows between a table and its quarantine, and has not come to an end for long, or gave up."""
    old = now - timedelta(hours=_STUCK_HOURS)
    waits = [one for one in live if one.state is ProcessState.PUBLISHING and one.created_at < old]
    return [one for one in (*waits, *unknown) if one.kind in _MOVES]


def kept_out(app: App, live: Sequence[Process], unknown: Sequence[Process]) -> list[tuple[Release, Process]]:
    """Releases that ended and whose rows do not come back by themselves, because a mutation came since they left."""
    left = app.registry.releases_in(frozenset({ReleaseState.RETURNING}))
    moving = {
        str(fields_of(one.request).get("release", one.id)) for one in (*live, *unknown) if one.kind in _MOVES
    }
    known = {one.id: one for one in app.store.known([one.process_id for one in left])}
    return [
        (one, known[one.process_id])
        for one in left
        if one.process_id not in moving and one.process_id in known
    ]


def _kept_out(look: _Look) -> Iterator[Card]:
    for release, process in kept_out(look.app, look.live, look.unknown):
        given: Json = {"table": process.source, "partition": release.partition, "force": True}
        yield Card(
            kind="halfway",
            title=f"Partition {release.partition} of {process.source} is out of its table, and its release has failed",
            why=f"a mutation came since: what it changed or deleted would come back as it was, out of {release.place}",
            since=process.finished_at,
            ids=(process.id,),
            code="mutated",
            source=process.source,
            destination=process.destination,
            command=command("policy_undo", **given),
            href=("sheet", {"id": process.id}),
            work=process.kind,
            state=process.id,
        )


def _halfway(look: _Look) -> Iterator[Card]:
    for one in halfway(look.live, look.unknown, look.now):
        error = one.error
        yield Card(
            kind="halfway",
            title=f"The {one.kind} {one.id} of {one.source}, partition {', '.join(one.partitions)}, has not come to an end",
            why=f"{error.message} ({error.hint})" if error else why(look.reader, one, tasks=False),
            since=one.created_at,
            ids=(one.id,),
            code=error.code if error else "",
            source=one.source,
            destination=one.destination,
            command=command("why", ids=[one.id]),
            href=("sheet", {"id": one.id}),
            work=one.kind,
            state=one.id,
        )


_DONE = {"export": "exported", "backup": "backed up", "restore": "restored", "optimize": "optimized"}


def _late(look: _Look) -> Iterator[Card]:
    """What `[expect]` asks for, and did not happen. Counts in memory say what may be late; the store has the last
    word."""
    latest = look.app.overview.counts().totals.latest if look.app.config.expect else ()
    for one in list(overdue(look.app.config.expect, latest, look.now))[:_MOST_LATE]:
        wanted, done = one.expectation, _DONE[one.expectation.kind]
        ended = _last_completed(look, one)
        if not one.unproven and ended and ended.finished_at and look.now - ended.finished_at <= wanted.within:
            continue
        live = [each for each in look.live if (each.kind, each.source) == (wanted.kind, one.table)]
        if one.unproven:
            title = f"No {wanted.kind} of {one.table} was proven lately"
            reason = f"{wanted.name} expects a proof within {_span(wanted.proven_within or wanted.within)}"
        elif one.completed_at:
            title = f"{one.table} was not {done} for more than {_span(wanted.within)}"
            reason = why(look.reader, live[0], tasks=False) if live else "nothing is queued"
        else:
            title = f"{one.table} was never {done}"
            reason = why(look.reader, live[0], tasks=False) if live else "nothing is queued"
        yield Card(
            kind="unproven" if one.unproven else "overdue",
            title=title,
            why=reason,
            since=one.proven_at if one.unproven else one.completed_at,
            ids=tuple(each.id for each in live),
            source=one.table,
            destination=one.destination if wanted.kind != "backup" else "",
            command=_remedy(one, ended),
            href=("table", {"source": one.table, "to": one.destination})
            if wanted.kind == "export" and one.completed_at
            else None,
            work=wanted.kind,
            state=f"{wanted.name} {one.proven_at if one.unproven else one.completed_at}",
        )


def _last_completed(look: _Look, one: Overdue) -> Process | None:
    kind = one.expectation.kind
    query = ProcessQuery(
        kind=kind,
        states=frozenset({ProcessState.COMPLETED}),
        source="" if kind == "restore" else one.table,
        destination=one.table if kind == "restore" else "",
        limit=1,
    )
    return next(iter(look.app.store.processes(query)), None)


def _remedy(one: Overdue, ended: Process | None) -> str:
    match one.expectation.kind:
        case "backup" if one.unproven and ended:
            return command("backup_verify", name=ended.destination.rpartition("/")[2])
        case "backup":
            return command("backup_create", name="NAME", tables=[one.table.partition(":")[2]])
        case _ if one.unproven and ended:
            return command("verify", ids=[ended.id])
        case "export":
            return command("export_preview", table=one.table, to=one.destination or "DEST", all=True)
        case "optimize":
            return command("optimize", table=one.table)
    return ""


def _span(span: timedelta) -> str:
    hours = span.total_seconds() / 3600
    number, unit = (hours / 24, "day") if hours >= 48 and hours % 24 == 0 else (hours, "hour")
    return f"{number:g} {unit}{'' if number == 1 else 's'}"


def _pins(look: _Look) -> Iterator[Card]:
    by: dict[ProcessId, list[datetime]] = {}
    for pin in look.app.registry.old_pins(look.now - timedelta(hours=_PIN_HOURS), _FAILURES):
        by.setdefault(pin.process_id, []).append(pin.created_at or look.now)
    for process_id, times in by.items():
        yield Card(
            kind="held",
            title=f"Process {process_id} holds parts of its source frozen",
            why="parts that are frozen use disk space until they are released",
            since=min(times),
            ids=(process_id,),
            count=len(times),
            command=command("why", ids=[process_id]),
            href=("sheet", {"id": process_id}),
        )


def _halts(look: _Look) -> Iterator[Card]:
    for one in look.reader.halts():
        if one.made_at and look.now - one.made_at > timedelta(hours=_HALT_HOURS):
            named = one.kind in NAMED_HALTS
            given = {"name": one.source} if named else {"table": one.source, "kind": one.kind}
            resume, said = f"{one.kind}_resume" if named else "lift", str(one)
            of = ("policy", given) if one.kind == POLICY_HALT and one.source else ("vault", {})
            yield Card(
                kind="halted",
                title=f"{said[0].upper()}{said[1:]}",
                why=f"by {one.who}{f': {one.reason}' if one.reason else ''}",
                since=one.made_at,
                source="" if named else one.source,
                action=resume,
                arguments=given,
                command=command(resume, **given),
                href=of if named else ("system", {}),
            )


def _versions(look: _Look) -> Iterator[Card]:
    others = sorted({one.version or "0.1.0" for one in look.alive} - {__version__})
    if others:
        yield Card(
            kind="versions",
            title=f"Workers of version {', '.join(others)} run beside version {__version__}",
            why="older workers do not honour halts and record no phases",
            since=None,
            href=("system", {}),
        )


def _wait(count: int) -> str:
    return "1 process waits" if count == 1 else f"{count} processes wait"


def _drops(look: _Look) -> Iterator[Card]:
    """Partitions in quarantine whose second grace is over: a person drops them, or leaves them there."""
    after = {policy.name: policy.release_after for policy in look.app.config.policies}
    waiting = look.app.registry.releases_in(frozenset({ReleaseState.QUARANTINED}))
    moved = {one.id: one for one in look.app.store.known([one.process_id for one in waiting])}
    groups: dict[tuple[str, str, str], list[Release]] = {}
    for one in waiting:
        process = moved.get(one.process_id)
        policy = str(fields_of(process.request).get("policy")) if process else ""
        grace = after.get(policy)
        if process and grace is not None and one.settled_at and one.settled_at + grace <= look.now:
            groups.setdefault((policy, process.source, process.destination), []).append(one)
    for (policy, source, destination), found in groups.items():
        partitions = sorted(one.partition for one in found)
        yield Card(
            kind="drops",
            title=f"{len(found)} {'partitions' if len(found) > 1 else 'partition'} of {source} may be dropped",
            why=f"{sum(one.rows for one in found):,} rows are in quarantine and proven in {destination}; nothing drops them by itself",
            since=min((one.settled_at for one in found if one.settled_at), default=None),
            count=len(found),
            source=source,
            destination=destination,
            action="policy_drop_plan",
            arguments={"table": source, "partitions": partitions[:_SHOWN_IDS]},
            command=command("policy_drop", table=source, partitions=partitions[:_SHOWN_IDS]),
            href=("policy", {"name": policy}),
        )


# In order of urgency.
CARD_KINDS: tuple[Callable[[_Look], Iterator[Card]], ...] = (
    _released, _unknown, _damaged, _failed, _down, _workers, _halfway, _kept_out, _stuck, _late, _approvals, _pins, _halts, _drops, _versions
)  # fmt: skip
_TOLD = (_released, _halfway, _kept_out, _late, _approvals)  # by webhooks: no process says so
_SAID = {
    "released_rows_missing": ("table lacks released rows", "tables lack released rows"),
    "released_rows_uncounted": ("table is not counted", "tables are not counted"),
    "unknown": ("outcome is unknown", "outcomes are unknown"),
    "damaged": ("row is damaged", "rows are damaged"),
    "failed": ("failure waits for a retry", "failures wait for a retry"),
    "down": ("service is down", "services are down"),
    "silent": ("worker fell silent", "workers fell silent"),
    "no_worker": ("process has no worker", "processes have no worker"),
    "halfway": ("partition is half-way", "partitions are half-way"),
    "late": ("process does not move", "processes do not move"),
    "overdue": ("table is late", "tables are late"),
    "unproven": ("table is unproven", "tables are unproven"),
    "approval": ("approval is wanted", "approvals are wanted"),
    "held": ("freeze is held too long", "freezes are held too long"),
    "drops": ("table has partitions to drop", "tables have partitions to drop"),
    "halted": ("halt is older than a day", "halts are older than a day"),
}


def told(app: App) -> list[Card]:
    """What webhooks are told."""
    look = _Look(app)
    return [card for found in _TOLD for card in found(look)]


def attention(app: App, overview: Overview) -> Json:
    document = head(app)
    look = _Look(app)
    cards = [
        card.to_json(urgency) for urgency, found in enumerate(CARD_KINDS, start=1) for card in found(look)
    ]
    counts = overview.counts()
    rows, size = [0] * QUARTERS, [0] * QUARTERS
    completed = failed = 0
    for done in counts.quarters:
        age = counts.this_quarter - done.piece
        if 0 <= age < QUARTERS:
            rows[QUARTERS - 1 - age] += done.rows
            size[QUARTERS - 1 - age] += done.bytes
            completed, failed = completed + done.completed, failed + done.failed
    begin = counts.at - timedelta(seconds=QUARTERS * QUARTER_SECONDS)
    return document | {
        "sentence": sentence(cards, len(look.alive)),
        "cards": cards[:CARDS],
        "more": max(0, len(cards) - CARDS),
        "throughput": {
            "from": view.time_json(begin),
            "step_seconds": QUARTER_SECONDS,
            "rows": rows,
            "bytes": size,
        },
        "day": {"rows": sum(rows), "bytes": sum(size), "completed": completed, "failed": failed},
        "live": with_why(look.reader, sorted(look.live, key=_waits)[:10]),
        "first_steps": _first_steps() if not counts.totals.tallies and not look.live else None,
        "expectations": len(app.config.expect),
        "overview_seconds": round(overview.seconds, 1),
        "subjects": [],
        "commands": {},
    }


def _waits(process: Process) -> bool:
    return process.state is ProcessState.PENDING


def sentence(cards: Sequence[Json], alive: int) -> str:
    """The worst first, then the workers."""
    workers = (
        f"{alive} {'worker is' if alive == 1 else 'workers are'} alive" if alive else "no worker is running"
    )
    counts: dict[str, int] = {}
    for card in cards:
        counts[card["kind"]] = counts.get(card["kind"], 0) + (
            card["count"] if card["kind"] in ("failed", "no_worker", "held") else 1
        )
    said = [f"{count} {_SAID[kind][count > 1]}" for kind, count in counts.items() if kind in _SAID]
    text = ", ".join([*said[:3], workers]) if said else f"nothing needs attention, and {workers}"
    return f"{text[0].upper()}{text[1:]}."


def _first_steps() -> list[Json]:
    """For a store without a process."""
    steps = (
        ("Check the installation", command("doctor")),
        ("Look at a table's partitions", "calve partitions TABLE"),
        ("Export some of them", "calve export TABLE --to DESTINATION --all --dry-run"),
    )
    return [{"title": title, "command": line, "done": False} for title, line in steps]
