"""A pin at a server, taken, described and released: `calve.source.held` for servers.

Three ways, decided here and said in the plan's notes: a FREEZE where executors see the disks, a
hard-linked clone, or, for a user who may only read, no pin: parts are read by name, and one that
vanishes fails its task.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from calve.model.errors import NotFoundError, PermanentError, RefusedError, TemporaryError
from calve.model.plan import PartPlan, Relation
from calve.source import pins
from calve.source.content import Extent, content_id
from calve.source.ddl import scratch_table
from calve.source.held import Held, HeldPartition, Wanted, refuse_row_policies
from calve.source.partitions import rows_seen
from calve.source.server import clones, live, replicas, ways
from calve.source.server.matching import matched
from calve.source.server.parts import ListedPart, listed_parts
from calve.source.server.session import ServerSession
from calve.source.server.source import ServerSource
from calve.source.server.tables import UNKNOWN_POLICIES, describe, unfinished_mutations
from calve.source.tables import TableInfo

_POLL_SECONDS = 0.2
_MAY_NOT = frozenset({"clickhouse_497", "clickhouse_164"})


def hold(source: ServerSource, wanted: Wanted, name: str) -> Held:
    """Take the pin `name`, once, and describe what it holds. Fails over between replicas up to
    the pin and never after it."""
    with source.visit() as session:
        table = describe(session, wanted.database, wanted.table)
        replicas.ready(session, table)
        _refuse_unfinished(session, table, wanted)
        parts = listed_parts(session, table.database, table.name, wanted.partitions)
        _refuse_absent(table, wanted, parts)
        why_not_frozen = ways.obstacle(session, table, parts)
        if session.read_only:
            return _by_name(session, table, wanted, "its user may only read")
        if not why_not_frozen:
            return _frozen(session, table, wanted, name)
        try:
            return _cloned(session, table, wanted, name, why_not_frozen)
        except PermanentError as error:
            if error.code not in _MAY_NOT:
                raise
            return _by_name(session, table, wanted, f"its user may make no clone: {error.message}")


def let_go(source: ServerSource, name: str, detail: str) -> None:
    """Release a pin that may or may not have been taken. Without a description every replica is
    looked at: whoever died while taking it may have been at any of them."""
    held = Held.from_json(detail) if detail else None
    known = held.relation.detail["replica"] if held is not None else ""
    for replica in [known] if known else [address.url for address in source.addresses]:
        with source.visit(replica) as session:
            if session.read_only:
                continue  # such a user took nothing
            clones.release(session, name)
            if session.disks():
                pins.release(session, name, held.roots if held is not None else ())


def _refuse_unfinished(session: ServerSession, table: TableInfo, wanted: Wanted) -> None:
    if wanted.wait_mutations:
        _wait_for_mutations(session, table)
    clones.refuse_unfinished(session, table)


def _wait_for_mutations(session: ServerSession, table: TableInfo) -> None:
    """Until none is left, or patience is. Only looked at: a mutation of ours that waits for those
    before it would change the partition's content id."""
    if table.patch_parts:
        # if we die here, the patches are applied all the same: they were asked for
        session.execute(
            f"ALTER TABLE {table.sql} APPLY PATCHES", {"mutations_sync": "2"}, what=f"table {table}"
        )
    deadline = time.monotonic() + session.patience_seconds
    while mutations := unfinished_mutations(session, table.full_name):
        if mutations[0].fail_reason:
            raise RefusedError(
                f"table {table}: mutation {mutations[0]}",
                code="mutation_fails",
                hint="mend it or KILL MUTATION at the source",
            )
        if time.monotonic() >= deadline:
            raise TemporaryError(
                f"table {table}: mutation {mutations[0]} was not finished in {session.patience_seconds:g} s",
                code="mutation_slow",
                hint="wait for it at the source, or raise limits.query_seconds",
            )
        time.sleep(_POLL_SECONDS)


def _frozen(session: ServerSession, table: TableInfo, wanted: Wanted, name: str) -> Held:
    refuse_row_policies(table, ignore=wanted.ignore_row_policies)
    session.statement_id = name  # by which a release ends a FREEZE that is still under way
    # if we die here, the journal names the pin, and its release takes what there is of it
    pins.freeze(session, table, wanted.partitions, name)
    _refuse_if_altered(session, table)
    frozen = [
        part
        for part in pins.frozen_parts(session, table, wanted.partitions, name)
        if not wanted.parts or part.name in wanted.parts
    ]
    _refuse_gone(table, wanted, {part.name for part in frozen})
    scratch = scratch_table(table, final=wanted.final)
    scratch.refuse_parts_without((part.name, part.columns) for part in frozen)
    return _held(
        table,
        relation=Relation(
            mode="frozen",
            create=scratch.create,
            final=wanted.final,
            detail={"replica": session.address.url},
        ),
        parts=[part.plan() for part in frozen],
        extents=[(part.partition_id, part.extent) for part in frozen],
        roots=pins.pin_roots(session),
    )


def _cloned(session: ServerSession, table: TableInfo, wanted: Wanted, name: str, why: str) -> Held:
    refuse_row_policies(table, ignore=wanted.ignore_row_policies)
    before = listed_parts(session, table.database, table.name, wanted.partitions, inactive=True)
    clones.clone(session, table, wanted.partitions, name)
    after = listed_parts(session, table.database, table.name, wanted.partitions, inactive=True)
    clones.refuse_unfinished(session, table)
    _refuse_if_altered(session, table)
    pin = clones.pin_table(name)
    cloned = listed_parts(session, pin.database, pin.table, wanted.partitions)
    pairs = matched(table, before, after, cloned)
    pairs = [(part, origin) for part, origin in pairs if not wanted.parts or origin.name in wanted.parts]
    _refuse_gone(table, wanted, {origin.name for _, origin in pairs})
    there = replace(table, database=pin.database, name=pin.table)
    return _live(session, table, there, wanted, pairs, (f"read over HTTP: {why}",))


def _by_name(session: ServerSession, table: TableInfo, wanted: Wanted, why: str) -> Held:
    known = tuple(policy for policy in table.row_policies if policy != UNKNOWN_POLICIES)
    refuse_row_policies(replace(table, row_policies=known), ignore=wanted.ignore_row_policies)
    parts = listed_parts(session, table.database, table.name, wanted.partitions)
    chosen = [(part, part) for part in parts if not wanted.parts or part.name in wanted.parts]
    _refuse_gone(table, wanted, {part.name for part, _ in chosen})
    note = f"nothing holds the parts of source {session.source} still, since {why}: a merge fails the export"
    return _live(session, table, table, wanted, chosen, (note,))


def _live(
    session: ServerSession,
    table: TableInfo,
    there: TableInfo,
    wanted: Wanted,
    pairs: Sequence[tuple[ListedPart, ListedPart]],
    notes: tuple[str, ...],
) -> Held:
    """`pairs` are parts as they are read and as the source names them."""
    _refuse_absent(table, wanted, [part for part, _ in pairs])
    masked = [part.name for part, _ in pairs if part.masked]
    seen = rows_seen(session, there, masked, "_part")
    return _held(
        table,
        relation=live.relation(session, table, there, masked=masked, final=wanted.final),
        parts=[_plan(part, origin) for part, origin in pairs],
        extents=[(part.partition_id, _extent(part, origin, seen)) for part, origin in pairs],
        roots=(),
        notes=notes + session.features.lacking(),
        sorted_reads=not session.read_only,
    )


def _held(
    table: TableInfo,
    *,
    relation: Relation,
    parts: Sequence[PartPlan],
    extents: Sequence[tuple[str, Extent]],
    roots: tuple[str, ...],
    notes: tuple[str, ...] = (),
    sorted_reads: bool = True,
) -> Held:
    return Held(
        identity=table.identity,
        engine=table.engine,
        columns=table.columns,
        partition_key=table.partition_key,
        # A user who may set nothing cannot ask for one thread: its rows come in no order.
        sorting_key=table.sorting_key if sorted_reads else "",
        relation=relation,
        parts=tuple(parts),
        partitions=_partitions(extents),
        roots=roots,
        notes=notes,
        settings={"session_timezone": table.timezone},
    )


def _plan(part: ListedPart, origin: ListedPart) -> PartPlan:
    return PartPlan(
        name=origin.name,
        partition_id=part.partition_id,
        rows=part.rows,
        bytes=part.bytes,
        path=part.name,  # what the executor asks for
        disk=part.disk,
        min_block=origin.min_block,
        max_block=origin.max_block,
        level=origin.level,
        data_version=origin.data_version,
        content=part.hash,
    )


def _extent(part: ListedPart, origin: ListedPart, seen: Mapping[str, int]) -> Extent:
    counted = seen.get(part.name, 0) if part.masked else part.rows
    return Extent(
        min_block=origin.min_block, max_block=origin.max_block, mutation=origin.mutation, rows=counted
    )


def _partitions(extents: Sequence[tuple[str, Extent]]) -> tuple[HeldPartition, ...]:
    by_id: dict[str, list[Extent]] = {}
    for partition_id, extent in extents:
        by_id.setdefault(partition_id, []).append(extent)
    return tuple(
        HeldPartition(id=partition_id, content=content_id(found), rows=sum(one.rows for one in found))
        for partition_id, found in by_id.items()
    )


def _refuse_if_altered(session: ServerSession, before: TableInfo) -> None:
    after = describe(session, before.database, before.name)
    if (after.uuid, after.create_query) != (before.uuid, before.create_query):
        raise TemporaryError(f"table {before} was altered while it was pinned", code="altered_meanwhile")


def _refuse_absent(table: TableInfo, wanted: Wanted, parts: Sequence[ListedPart]) -> None:
    absent = set(wanted.partitions) - {part.partition_id for part in parts}
    if absent:
        raise NotFoundError(
            f"table {table} has no partition {', '.join(sorted(absent))}",
            code="no_partition",
            hint=f"see: calve partitions '{table}'",
        )


def _refuse_gone(table: TableInfo, wanted: Wanted, there: set[str]) -> None:
    gone = sorted(set(wanted.parts) - there)
    if gone:
        raise RefusedError(
            f"table {table} no longer has part {', '.join(gone)}: merged, dropped or mutated meanwhile",
            code="part_gone",
            hint=f"calve partitions '{table}' --parts shows those it has now",
        )
