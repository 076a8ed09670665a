"""What a policy's tables hold, asked of the source and the destination and kept in the store with its time.

One look at a time, by a claim. A look that fails keeps what the last one found, and says so. Nothing is decided
here: a partition's look is a row of facts, and when its content was first seen is carried from look to look.
"""

import hashlib
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from calve.app.destination import as_stored, parse_destination
from calve.app.partitions import ListedPartition, compared
from calve.app.wiring import App
from calve.backup.schema import match
from calve.clickhouse.parts.partitions import PartitionInfo
from calve.clickhouse.source import Session
from calve.clickhouse.sql.tokens import parse
from calve.clickhouse.tables import TableInfo
from calve.clickhouse.tier import view
from calve.destination.content import blocks_kept, unchanged
from calve.destination.outcome import EarlierExport
from calve.model.errors import CalveError, DamagedError, UsageError
from calve.model.record import Record
from calve.model.seen import Sighting
from calve.policy.bounds import TimeKey, time_key
from calve.policy.policy import Policy

WHAT = "policy"
LOOK_SECONDS = 600.0  # a claim: who looks for longer has died
_WHOLE_SECONDS = 2.0  # a source's clock counts those, and the question takes a while
_OURS = ("calve_released", "calve_views", "calve_untier")  # databases that Calve keeps at the source
_PLAIN = ("MergeTree", "ReplicatedMergeTree")  # engines whose merges combine no rows


@dataclass(frozen=True, kw_only=True)
class PartitionLook:
    """One partition. Without `there`, the destination has it and the source no longer."""

    id: str
    value: str = ""
    there: bool = True
    rows: int = 0
    bytes: int = 0
    content: str = ""  # a digest
    changed_at: datetime | None = None  # when this content was first seen
    lower: datetime | None = None  # of the time that it covers
    closed_at: datetime | None = None
    process: str = ""  # that exported it; "": not exported
    unchanged: bool = False
    missing: bool = False
    released: bool = False
    grows: bool = False


@dataclass(frozen=True, kw_only=True)
class TableLook(Record):
    """One table of a policy, with its destination."""

    database: str
    table: str
    source: str  # as processes name it
    destination: str
    identity: str = ""
    uuid: str = ""
    key: str = ""  # why its partitions say nothing about time; "": they do
    shape: str = ""  # a digest of what a view over it is made of: columns, key, zone
    viewed: bool = False  # the view of the policy is there
    mutating: bool = False
    skew_seconds: float = 0.0
    looked_at: datetime | None = None  # None: never
    error: str = ""  # of the last look
    partitions: tuple[PartitionLook, ...] = ()


def last_look(app: App, policy: Policy) -> list[TableLook]:
    """What the last looks found; [] if nobody has looked."""
    seen = app.registry.sighting(policy.name, WHAT)
    if seen is None:
        return []
    try:
        texts = app.registry.sighting_body(policy.name, WHAT, limit=max(seen.pieces, 1))
        return [TableLook.from_json(text) for text in texts]
    except DamagedError:
        return []  # of another version: looked at again


def look(app: App, policy: Policy, *, again: timedelta) -> list[TableLook] | None:
    """Look, unless somebody looks now or did so lately. CalveError where the source cannot be asked."""
    claimed = app.registry.claim_look(
        policy.name, WHAT, again_seconds=again.total_seconds(), lease_seconds=LOOK_SECONDS
    )
    if not claimed:
        return None
    before = {(one.database, one.table): one for one in last_look(app, policy)}
    try:
        found = list(_looks(app, policy, before))
    except CalveError as error:
        app.registry.fail_look(policy.name, WHAT, error.message)
        raise
    summary = f'{{"tables": {len(found)}}}'
    sighting = Sighting(subject=policy.name, what=WHAT, summary=summary, seen_by=socket.gethostname())
    # If we die here, the last look stands until its claim is over.
    app.registry.put_sighting(sighting, [one.to_json() for one in found])
    return found


def _looks(app: App, policy: Policy, before: Mapping[tuple[str, str], TableLook]) -> Iterator[TableLook]:
    """The source is asked for all tables in one visit, and each destination after it."""
    source = policy.source or app.config.default_source
    seen: list[tuple[TableLook, Seen | CalveError]] = []
    with app.source(source).visit() as session:
        now = app.store.now()
        skew = (session.now() - now).total_seconds()
        if abs(skew) < _WHOLE_SECONDS:
            skew = 0.0
        for database, table in match(session, [policy.tables]).tables:
            if database in _OURS:
                continue  # what left its table is exported already
            empty = TableLook(
                database=database, table=table, source=f"{source}:{database}.{table}", destination=""
            )
            try:
                empty = replace(empty, destination=as_stored(policy.destination(database, table), app.config))
                seen.append((empty, _seen(session, database, table, policy.view_of(database, table))))
            except UsageError as error:  # a name that is no part of a destination
                seen.append((empty, error))
    for empty, found in seen:
        last = before.get((empty.database, empty.table), empty)
        try:
            if isinstance(found, CalveError):
                raise found
            yield replace(_table(app, empty, found, last, now), skew_seconds=skew, looked_at=now)
        except CalveError as error:  # one table stops no other
            yield replace(last, destination=empty.destination, error=f"{error.code}: {error.message}")


Seen = tuple[TableInfo, list[PartitionInfo], bool]


def _seen(session: Session, database: str, table: str, shown: str) -> "Seen | CalveError":
    try:
        info = session.describe(database, table)
        viewed = bool(shown) and bool(info.uuid) and view.owner(session, parse(shown)) == info.uuid
        return info, session.partitions(info), viewed
    except CalveError as error:
        return error


def _table(app: App, empty: TableLook, found: Seen, last: TableLook, now: datetime) -> TableLook:
    info, partitions, viewed = found
    key = time_key(info.partition_key, {column.name: column.type for column in info.columns}, info.timezone)
    listed, gone = compared(app, info.identity, partitions, parse_destination(empty.destination, app.config))
    known = {one.id: one for one in last.partitions if last.identity == info.identity}
    only_adds = info.engine in _PLAIN and " TTL " not in f" {info.create_query.upper()} "
    looks = [
        _partition(
            one, key if isinstance(key, TimeKey) else None, known.get(one.partition.id), now, only_adds
        )
        for one in listed
    ]
    looks += [_exported(PartitionLook(id=one.input[1], there=False), one, "") for one in gone]
    return replace(
        empty,
        identity=info.identity,
        uuid=info.uuid,
        key="" if isinstance(key, TimeKey) else key.value,
        shape=_shape(info),
        viewed=viewed,
        mutating=bool(info.mutations),
        partitions=tuple(looks),
    )


def _shape(info: TableInfo) -> str:
    said = [info.partition_key, info.timezone, *((one.name, one.type) for one in info.columns)]
    return hashlib.sha256(repr(said).encode()).hexdigest()[:32]


def _partition(
    one: ListedPartition, key: TimeKey | None, last: PartitionLook | None, now: datetime, only_adds: bool
) -> PartitionLook:
    part, earlier = one.partition, one.earlier
    bounds = None if key is None else key.bounds(part.value)
    content = digest(part.content)
    changed_at = min(part.modified_at, now) if last is None or last.changed_at is None else now
    if last is not None and last.content == content and last.changed_at is not None:
        changed_at = last.changed_at
    made = PartitionLook(
        id=part.id,
        value=part.value,
        rows=part.rows,
        bytes=part.bytes,
        content=content,
        changed_at=changed_at,
        lower=None if bounds is None else bounds.lower,
        closed_at=None if bounds is None else bounds.closed_at,
    )
    if earlier is None:
        return made
    grows = (
        only_adds
        and part.mutation == 0
        and part.rows >= earlier.rows
        and blocks_kept(earlier.content, part.content)
    )
    return replace(_exported(made, earlier, part.content), grows=grows)


def _exported(made: PartitionLook, earlier: EarlierExport, content: str) -> PartitionLook:
    return replace(
        made,
        # What was added last: what came before it was exported, and could be proven, earlier.
        process=(earlier.increments or (earlier,))[-1].process_id,
        unchanged=bool(content) and unchanged(earlier.content, content),
        missing=bool(earlier.missing),
        released=bool(earlier.released),
    )


def digest(content: str) -> str:
    """Of a content id without the marks of its parts: a merge changes the marks only."""
    return hashlib.sha256(content.partition("+")[0].encode()).hexdigest()[:32]
