"""Cards about partitions that leave their tables, wait for a person, or are half-way."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from calve.app.commands import command
from calve.app.pages.cards.card import SHOWN_IDS, Card, Glance
from calve.app.policies.approvals import waiting
from calve.app.policies.guard import standing
from calve.app.view import Json
from calve.app.wiring import App
from calve.control.why import why
from calve.model.process import Process
from calve.model.record import fields_of
from calve.model.states import ProcessState, ReleaseState
from calve.model.tier import Release

_STUCK_HOURS = 1.0
MOVES = ("release", "return", "drop", "untier")


def released(look: Glance) -> Iterator[Card]:
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


def approvals(look: Glance) -> Iterator[Card]:
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


def halfway(live: Sequence[Process], unknown: Sequence[Process], now: datetime) -> list[Process]:
    """What moves rows between a table and its quarantine, and has not come to an end for long, or gave up."""
    old = now - timedelta(hours=_STUCK_HOURS)
    waits = [one for one in live if one.state is ProcessState.PUBLISHING and one.created_at < old]
    return [one for one in (*waits, *unknown) if one.kind in MOVES]


def kept_out(app: App, live: Sequence[Process], unknown: Sequence[Process]) -> list[tuple[Release, Process]]:
    """Releases that ended and whose rows do not come back by themselves, because a mutation came since they left."""
    left = app.registry.releases_in(frozenset({ReleaseState.RETURNING}))
    moving = {
        str(fields_of(one.request).get("release", one.id)) for one in (*live, *unknown) if one.kind in MOVES
    }
    known = {one.id: one for one in app.store.known([one.process_id for one in left])}
    return [
        (one, known[one.process_id])
        for one in left
        if one.process_id not in moving and one.process_id in known
    ]


def halfway_cards(look: Glance) -> Iterator[Card]:
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


def kept_out_cards(look: Glance) -> Iterator[Card]:
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


def drops(look: Glance) -> Iterator[Card]:
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
            arguments={"table": source, "partitions": partitions[:SHOWN_IDS]},
            command=command("policy_drop", table=source, partitions=partitions[:SHOWN_IDS]),
            href=("policy", {"name": policy}),
        )
