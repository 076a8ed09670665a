"""A table, frozen and described: what a pin of a backup holds.

The description is kept in the pin's journal entry, so that nothing later asks the source. A
table that vanished before it could be frozen is skipped with a note, and its pin is released like
any other: a FREEZE may have got as far as its folder.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from calve.archive.access import HIDDEN
from calve.archive.location import address_of
from calve.archive.manifest import PartEntry, PartitionEntry, TableEntry
from calve.backup.far import FarParts
from calve.backup.request import BackupRequest
from calve.clickhouse.engine.ddl import scratch_table
from calve.clickhouse.errors import NoPartitionError, NoTableError
from calve.clickhouse.parts.partitions import PartitionInfo
from calve.clickhouse.pins import freeze as freezes
from calve.clickhouse.pins.freeze import FrozenPart
from calve.clickhouse.pins.pin import refuse_row_policies
from calve.clickhouse.source import Session
from calve.clickhouse.sql.tokens import string
from calve.clickhouse.tables import UNKNOWN_POLICIES, TableInfo, system_columns
from calve.model.errors import CalveError, RefusedError, TemporaryError
from calve.model.record import Record


@dataclass(frozen=True, kw_only=True)
class Frozen(Record):
    """What the journal keeps of a pin. `roots` are the disks to look on when it is released."""

    database: str
    name: str
    roots: tuple[str, ...] = ()
    skipped: str = ""  # why nothing was frozen
    table: TableEntry | None = None
    paths: tuple[str, ...] = ()  # of the parts' folders, in their order; "" for one in object storage
    objects: tuple[str, ...] = ()  # the listings of those in object storage; none where no part is


def freeze(
    session: Session, request: BackupRequest, database: str, name: str, pin: str, far: FarParts
) -> Frozen:
    """Take the pin over a whole table, or over the partitions that were asked for."""
    try:
        return _freeze(session, request, database, name, pin, far)
    except NoTableError as error:
        if _is_there(session, database, name):
            raise
        return Frozen(database=database, name=name, roots=freezes.pin_roots(session), skipped=error.message)
    except NoPartitionError as error:
        raise TemporaryError(
            f"{error.message}: it was dropped at the moment the table was frozen", code="altered_meanwhile"
        ) from None


def _is_there(session: Session, database: str, name: str) -> bool:
    """The error may be about something else, such as a system table that a version does not have:
    only a table that is gone is ever left out of a backup."""
    found = session.rows(
        f"SELECT count() AS n FROM system.tables WHERE database = {string(database)} AND name = {string(name)}"
    )
    return bool(found[0]["n"])


def _freeze(
    session: Session, request: BackupRequest, database: str, name: str, pin: str, far: FarParts
) -> Frozen:
    table = session.describe(database, name)
    if table.policies_hidden:
        table = replace(table, row_policies=(UNKNOWN_POLICIES,))
    refuse_row_policies(table, ignore=request.ignore_row_policies)
    chosen = _chosen(session.partitions(table), request.partitions)
    ids = [one.id for one in chosen]
    if _in_object_storage(session, table):
        freezes.refuse_unfinished(session, table, ids, wait=request.mutations == "wait")
        # if we die here, the journal names the pin and its release drops the clone
        linked = session.link(table, ids, pin)
        with far.at_hand(linked, pin) as parts:
            return Frozen(
                database=database,
                name=name,
                table=_entry(session, table, chosen, [part.frozen for part in parts]),
                paths=tuple("" if part.objects else part.frozen.path for part in parts),
                objects=tuple(part.objects for part in parts),
            )
    # if we die here, the journal names the pin and its release takes what there is of it
    freezes.freeze(session, table, ids, pin, wait=request.mutations == "wait")
    frozen = freezes.frozen_parts(session, table, ids, pin)
    return Frozen(
        database=database,
        name=name,
        roots=freezes.pin_roots(session),
        table=_entry(session, table, chosen, frozen),
        paths=tuple(part.path for part in frozen),
    )


def _in_object_storage(session: Session, table: TableInfo) -> bool:
    """Whether some part is on a disk whose files are names of objects. RefusedError where that disk's bucket is not
    known, or where the files are ciphertext: a copy of them is no backup. Never a backup of the schema alone."""
    if session.embedded:
        return False  # `freezes.freeze` refuses whatever is no local disk
    columns = system_columns(session, ("disks",))
    if not columns:
        return False  # a server too old for any disk but its own
    encrypted = "toUInt8(is_encrypted)" if ("disks", "is_encrypted") in columns else "0"
    found = session.rows(
        f"SELECT name, {encrypted} AS encrypted FROM system.disks WHERE (lower(type) != 'local' OR "
        f"{encrypted}) AND name IN (SELECT disk_name FROM system.parts WHERE active "
        f"AND database = {string(table.database)} AND table = {string(table.name)}) ORDER BY name",
        what=f"table {table}",
    )
    if sealed := [row["name"] for row in found if row["encrypted"]]:
        raise RefusedError(
            f"table {table} has parts on disk {', '.join(sealed)}, which is encrypted: its files alone would be no backup",
            code="disk_not_seen",
            hint="leave the table out and export it (calve export reads it through the server), or move its parts to a local"
            " disk (ALTER TABLE … MOVE PARTITION)",
        )
    buckets = session.buckets()
    if unknown := [row["name"] for row in found if row["name"] not in buckets]:
        raise RefusedError(
            f"table {table} has parts on disk {', '.join(unknown)}, which keeps its files as objects elsewhere",
            code="disk_not_seen",
            hint=f"say in which bucket: disks = {{{unknown[0]} = 's3://bucket'}} under [source.{session.source}]; or leave the"
            " table out and export it: calve export reads it through the server",
        )
    return bool(found)


def _chosen(known: Sequence[PartitionInfo], wanted: Sequence[str]) -> list[PartitionInfo]:
    if not wanted:
        return list(known)
    return [
        one for one in known if one.id in wanted or one.value in wanted or one.value in map(string, wanted)
    ]


def _entry(
    session: Session, table: TableInfo, chosen: Sequence[PartitionInfo], frozen: Sequence[FrozenPart]
) -> TableEntry:
    scratch = scratch_table(table)
    engine_full = str(
        session.rows(
            f"SELECT engine_full FROM system.tables WHERE database = {string(table.database)} "
            f"AND name = {string(table.name)}",
            what=f"table {table}",
        )[0]["engine_full"]
    )
    return TableEntry(
        database=table.database,
        name=table.name,
        uuid=table.uuid,
        identity=table.identity,
        engine=table.engine,
        engine_full=engine_full,
        create=_with_folder(session, table),
        columns=table.columns,
        partition_key=table.partition_key,
        sorting_key=table.sorting_key,
        primary_key=table.primary_key,
        sampling_key=table.sampling_key,
        timezone=table.timezone,
        version=table.version,
        scratch=scratch.create,
        scratch_final=_final(table),
        stripped=scratch.stripped,
        partitions=tuple(_partition(one) for one in chosen),
        parts=tuple(_part(part, scratch.stripped) for part in frozen),
        row_policies=table.row_policies,
    )


def _with_folder(session: Session, table: TableInfo) -> str:
    """The CREATE. ClickHouse hides all that `disk = disk(…)` says, as if it were a password; of a local disk
    whose table is seen here, the folder is known all the same."""
    hidden = f"path = {string(HIDDEN)}"
    if not session.embedded or table.create_query.count(hidden) != 1:
        return table.create_query
    fitting = [
        disk.path
        for disk in session.disks()
        if any(Path(data_path).is_relative_to(disk.path) for data_path in table.data_paths)
    ]
    folder = max(fitting, key=lambda path: len(path.parts))
    return table.create_query.replace(hidden, f"path = {string(f'{folder}/')}")


def _final(table: TableInfo) -> str:
    try:
        return scratch_table(table, final=True).create
    except CalveError:
        return ""  # reported to those who ask for the merged view


def _partition(one: PartitionInfo) -> PartitionEntry:
    return PartitionEntry(
        id=one.id,
        value=one.value,
        min_time=one.min_time.isoformat() if one.min_time else "",
        max_time=one.max_time.isoformat() if one.max_time else "",
    )


def _part(part: FrozenPart, stripped: Sequence[str]) -> PartEntry:
    return PartEntry(
        name=part.name,
        partition_id=part.partition_id,
        rows=part.rows,
        rows_seen=part.rows_seen,
        bytes=part.bytes,
        address=address_of(Path(part.path)),
        min_block=part.min_block,
        max_block=part.max_block,
        level=part.level,
        mutation=part.mutation,
        data_version=part.data_version,
        content=part.content,
        lacks=tuple(column for column in stripped if column not in part.columns),
    )
