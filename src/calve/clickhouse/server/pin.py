"""A pin at a server, taken, described and released: `calve.clickhouse.pins.pin` for servers.

Three ways, decided here and said in the plan's notes: a FREEZE where executors see the disks, a
hard-linked clone, or, for a user who may only read, no pin: parts are read by name, and one that
vanishes fails its task.

A replica that lags would export less than the table has: it is synced first, or refused.
"""

from collections.abc import Sequence
from dataclasses import replace

from calve.clickhouse.engine.ddl import scratch_table
from calve.clickhouse.errors import MAY_NOT, number_of
from calve.clickhouse.parts import mutations
from calve.clickhouse.parts.partitions import rows_seen
from calve.clickhouse.pins import freeze
from calve.clickhouse.pins.pin import (
    FROZEN,
    Pinned,
    PinRequest,
    SeenPart,
    chosen_parts,
    journaled,
    journaled_roots,
    journaled_table,
    pinned_partitions,
    refuse_gone,
    refuse_row_policies,
)
from calve.clickhouse.server import clone, live
from calve.clickhouse.server.links import cloned
from calve.clickhouse.server.live import obstacle
from calve.clickhouse.server.parts import ListedPart, listed_parts
from calve.clickhouse.server.session import ServerSession
from calve.clickhouse.server.visit import ServerVisit
from calve.clickhouse.sql.tokens import string
from calve.clickhouse.tables import UNKNOWN_POLICIES, TableInfo, patch_parts
from calve.destination.plan import PartPlan, Relation
from calve.model.errors import CalveError, PermanentError, RefusedError, TemporaryError


def ready(session: ServerSession, table: TableInfo) -> None:
    """Return once this replica has all that its table has. Nothing to do for a table of one place."""
    if not table.clause.replicated:
        return
    _refuse_broken(session, table)
    if session.read_only:
        _refuse_lagging(session, table)
        return
    mode = " LIGHTWEIGHT" if session.features.sync_lightweight else ""
    try:
        session.execute(
            f"SYSTEM SYNC REPLICA {table.sql}{mode}", what=f"waiting for the replica of table {table}"
        )
    except CalveError as error:
        if number_of(error) in MAY_NOT:
            _refuse_lagging(session, table)
            return
        raise


def _refuse_broken(session: ServerSession, table: TableInfo) -> None:
    row = _state(session, table)
    if row["is_readonly"] or row["is_session_expired"]:
        raise TemporaryError(
            f"the replica of table {table} at {session.address} has lost its Keeper session: "
            "so it may lack rows",
            code="replica_readonly",
            hint="SYSTEM RESTART REPLICA at the source, or name another replica first in the url",
        )


def _refuse_lagging(session: ServerSession, table: TableInfo) -> None:
    row = _state(session, table)
    behind = row["log_max_index"] - row["log_pointer"] + 1 if row["log_pointer"] else 0
    if row["waiting"] or behind > 0:
        raise TemporaryError(
            f"the replica of table {table} at {session.address} lags: {row['waiting']} entries to fetch, "
            f"{max(behind, 0)} not looked at yet",
            code="replica_lags",
            hint="try again later, or grant SYSTEM SYNC REPLICA to the user",
        )


def _state(session: ServerSession, table: TableInfo) -> dict[str, int]:
    found = session.rows(
        "SELECT toUInt8(is_readonly) AS is_readonly, toUInt8(is_session_expired) AS is_session_expired, "
        "toUInt64(inserts_in_queue) AS waiting, toInt64(log_max_index) AS log_max_index, "
        "toInt64(log_pointer) AS log_pointer FROM system.replicas "
        f"WHERE database = {string(table.database)} AND table = {string(table.name)}",
        what=f"table {table}",
    )
    if not found:
        raise RefusedError(
            f"table {table} is replicated, but {session.address} shows no replica of it", code="no_replica"
        )
    return found[0]


def pin(session: ServerVisit, wanted: PinRequest, name: str) -> Pinned:
    """Take the pin `name`, once, at this replica, and describe what it holds."""
    table = session.describe(wanted.database, wanted.table)
    refuse_row_policies(table, ignore=wanted.ignore_row_policies)
    ready(session, table)
    ignored = freeze.refuse_unfinished(
        session, table, wanted.partitions, wait=wanted.wait_mutations, ignore=wanted.ignore_mutations
    )
    parts = listed_parts(session, table.database, table.name, wanted.partitions)
    freeze.refuse_absent(table, wanted.partitions, parts)
    pinned = _held_somehow(session, table, wanted, name, parts)
    return replace(pinned, notes=pinned.notes + ignored)


def release(session: ServerVisit, name: str, detail: str) -> None:
    """Release a pin that may or may not have been taken at this replica. Twice is harmless."""
    if session.read_only:
        return  # such a user took nothing
    clone.release(session, name)
    roots = journaled_roots(detail)
    if roots or session.disks():
        freeze.release(session, name, roots, journaled_table(detail))


def replica_of(detail: str) -> str:
    """Where a pin was taken, by its journal entry, of whatever kind of process; "" where it does not say."""
    relation = journaled(detail).get("relation", {})
    return str(relation.get("detail", {}).get("replica", ""))


def _held_somehow(
    session: ServerVisit, table: TableInfo, wanted: PinRequest, name: str, parts: Sequence[ListedPart]
) -> Pinned:
    if session.read_only:
        return _by_name(session, table, wanted, "its user may only read")
    why_not_frozen = obstacle(session, table, parts)
    if not why_not_frozen:
        return _frozen(session, table, wanted, name)
    if why := live.why_no_clone(session, table, parts):
        return _by_name(session, table, wanted, why)
    try:
        return _cloned(session, table, wanted, name, why_not_frozen)
    except PermanentError as error:
        if number_of(error) not in MAY_NOT:
            raise
        return _by_name(session, table, wanted, f"its user may make no clone: {error.message}")


def _frozen(session: ServerVisit, table: TableInfo, wanted: PinRequest, name: str) -> Pinned:
    _refuse_hidden_policies(table, wanted)
    # if we die here, the journal names the pin, and its release takes what there is of it
    freeze.freeze(session, table, wanted.partitions, name, ignore=wanted.ignore_mutations)
    frozen = chosen_parts(session, table, wanted, name)
    scratch = scratch_table(table, final=wanted.final)
    scratch.refuse_parts_without((part.name, part.columns) for part in frozen)
    # By the server's own hashes, as its partitions are listed; a part merged since is inactive, not gone.
    listed = listed_parts(session, table.database, table.name, wanted.partitions, inactive=True)
    hashes = {part.name: part.fingerprint for part in listed}
    pinned = _held(
        table,
        wanted,
        relation=Relation(
            mode=FROZEN,
            create=scratch.create,
            final=wanted.final,
            detail={"replica": session.address.url},
        ),
        parts=[part.plan() for part in frozen],
        seen=[
            SeenPart(part.partition_id, part.extent, replace(part.mark, hash=hashes.get(part.name, "")))
            for part in frozen
        ],
        roots=freeze.pin_roots(session),
    )
    return replace(pinned, database=table.database, name=table.name)


def _cloned(session: ServerVisit, table: TableInfo, wanted: PinRequest, name: str, why: str) -> Pinned:
    pairs = cloned(session, table, wanted.partitions, name, ignore=wanted.ignore_mutations)
    _refuse_hidden_policies(table, wanted)  # not before: who may make no clone reads through them
    pairs = [(part, origin) for part, origin in pairs if not wanted.parts or origin.name in wanted.parts]
    refuse_gone(table, wanted, (origin.name for _, origin in pairs))
    pin = clone.pin_table(name)
    there = replace(table, database=pin.database, name=pin.table)
    return _live(session, table, there, wanted, pairs, (f"read over HTTP: {why}",))


def _by_name(session: ServerVisit, table: TableInfo, wanted: PinRequest, why: str) -> Pinned:
    # Read from the table itself, rows come with its patches: as before them they cannot be had.
    mutations.refuse_unapplied(table, (), patch_parts(session, table.full_name, wanted.partitions))
    parts = listed_parts(session, table.database, table.name, wanted.partitions)
    chosen = [(part, part) for part in parts if not wanted.parts or part.name in wanted.parts]
    refuse_gone(table, wanted, (part.name for part, _ in chosen))
    note = f"nothing holds the parts of source {session.source} still, since {why}: a merge fails the export"
    return _live(session, table, table, wanted, chosen, (note,))


def _live(
    session: ServerVisit,
    table: TableInfo,
    there: TableInfo,
    wanted: PinRequest,
    pairs: Sequence[tuple[ListedPart, ListedPart]],
    notes: tuple[str, ...],
) -> Pinned:
    """`pairs` are parts as they are read and as the source names them."""
    freeze.refuse_absent(table, wanted.partitions, (part for part, _ in pairs))
    masked = [part.name for part, _ in pairs if part.masked]
    counted = rows_seen(session, there, masked, "_part")
    return _held(
        table,
        wanted,
        relation=live.relation(session, table, there, masked=masked, final=wanted.final),
        # An executor asks for a part by the name that it has there.
        parts=[origin.plan_with(path=part.name, disk=part.disk, content=part.hash) for part, origin in pairs],
        seen=[
            SeenPart(
                part.partition_id,
                origin.extent_with(counted.get(part.name, 0) if part.masked else part.rows),
                origin.mark,
            )
            for part, origin in pairs
        ],
        roots=(),
        notes=notes + session.features.lacking(),
        sorted_reads=not session.read_only,
    )


def _held(
    table: TableInfo,
    wanted: PinRequest,
    *,
    relation: Relation,
    parts: Sequence[PartPlan],
    seen: Sequence[SeenPart],
    roots: tuple[str, ...],
    notes: tuple[str, ...] = (),
    sorted_reads: bool = True,
) -> Pinned:
    return Pinned(
        identity=table.identity,
        engine=table.engine,
        columns=table.columns,
        partition_key=table.partition_key,
        # A user who may set nothing cannot ask for one thread: its rows come in no order.
        sorting_key=table.sorting_key if sorted_reads else "",
        relation=relation,
        parts=tuple(parts),
        partitions=pinned_partitions(seen, marked=not table.clause.replicated, named=bool(wanted.parts)),
        roots=roots,
        notes=notes,
        settings={"session_timezone": table.timezone},
    )


def _refuse_hidden_policies(table: TableInfo, wanted: PinRequest) -> None:
    """Where a pin would bypass them, not knowing is as good as having some (D14)."""
    hidden = replace(table, row_policies=(UNKNOWN_POLICIES,) if table.policies_hidden else ())
    refuse_row_policies(hidden, ignore=wanted.ignore_row_policies)
