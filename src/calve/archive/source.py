"""What a backup offers to an export: a table, its partitions and its parts, as the source would have
shown them when it was frozen. Nobody asks the source."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from calve.archive import backups
from calve.archive.location import Location
from calve.archive.manifest import Manifest, PartEntry, TableEntry
from calve.clickhouse.engine.ddl import ScratchTable
from calve.clickhouse.parts.content import content_id, file_hash, parts_content
from calve.clickhouse.parts.partitions import PartitionInfo
from calve.clickhouse.parts.selection import Selection
from calve.clickhouse.pins.pin import Held, HeldPartition
from calve.clickhouse.sql.engine_clause import EngineClause
from calve.clickhouse.sql.tokens import string
from calve.model.errors import NotFoundError, RefusedError
from calve.model.plan import PartPlan, Relation

MODE = "backup"  # of a relation
_SEPARATOR = "#"  # between a stored part's place and the hash of its index


def table_in(location: Location, backup: str, database: str, table: str) -> tuple[Manifest, TableEntry]:
    """NotFoundError names what the backup has."""
    manifest = backups.find(location, backup)
    for entry in manifest.tables:
        if entry.full_name == (database, table):
            return manifest, entry
    names = ", ".join(".".join(entry.full_name) for entry in manifest.tables[:5]) or "none"
    raise NotFoundError(
        f"backup {backup} has no table {database}.{table}",
        code="no_table",
        hint=f"it has {names}; see: calve backup show {backup}",
    )


def select(manifest: Manifest, entry: TableEntry, wanted: Selection) -> list[PartitionInfo]:
    """The partitions meant, as `source.selection.select` would say."""
    known = _partitions(manifest, entry)
    where = f"table {entry.database}.{entry.name} in backup {manifest.name}"
    if wanted.partitions:
        return _named(known, wanted.partitions, where)
    if wanted.parts:
        return _of_parts(entry, known, wanted.parts, where)
    filled = [one for one in known if one.rows]
    if wanted.older_than is not None:
        limit = datetime.now(UTC) - wanted.older_than
        if any(one.max_time is None for one in filled):
            raise RefusedError(
                f"the partition key of {where} has no date or time column, so its partitions have no age",
                code="no_partition_time",
                hint="name the partitions with --partition",
            )
        return [one for one in filled if one.max_time is not None and one.max_time < limit]
    if not filled:
        raise NotFoundError(f"{where} is empty", code="no_partition", hint="there is nothing to export")
    return filled


def part_plans(entry: TableEntry, ids: Sequence[str], names: Sequence[str]) -> tuple[PartPlan, ...]:
    chosen = [part for part in entry.parts if part.partition_id in ids and (not names or part.name in names)]
    return tuple(_plan(part) for part in chosen)


def held(
    location: Location,
    backup: str,
    database: str,
    table: str,
    *,
    partitions: Sequence[str],
    parts: Sequence[str],
    final: bool,
) -> Held:
    """What a pin would hold, out of the backup."""
    manifest, entry = table_in(location, backup, database, table)
    chosen = [part for part in entry.parts if part.partition_id in partitions]
    chosen = [part for part in chosen if not parts or part.name in parts]
    ScratchTable(create=entry.scratch, stripped=entry.stripped).refuse_parts_without(
        (part.name, frozenset(entry.stripped) - frozenset(part.lacks)) for part in chosen
    )
    create = entry.scratch_final if final else entry.scratch
    if not create:
        raise RefusedError(
            f"the merged view of {database}.{table} cannot be computed away from its server",
            code="final_not_portable",
            hint="export without --final",
        )
    return Held(
        identity=entry.identity,
        engine=entry.engine,
        columns=entry.columns,
        partition_key=entry.partition_key,
        sorting_key=entry.sorting_key,
        relation=Relation(mode=MODE, create=create, final=final, detail={"location": location.url}),
        parts=tuple(_plan(part) for part in chosen),
        partitions=tuple(
            HeldPartition(
                id=one.id,
                content=one.content,
                rows=one.rows,
                named=_named_content(chosen, one.id) if parts else "",
            )
            for one in _partitions(manifest, replace(entry, parts=tuple(chosen)))
        ),
        roots=(),
        notes=(f"read from backup {manifest.name}, made at {manifest.created_at}",),
        settings={"session_timezone": entry.timezone},
    )


def stored_part(part: PartPlan) -> PartEntry:
    """What an executor fetches, from what the plan says of a part."""
    place, _, index_sha256 = part.path.rpartition(_SEPARATOR)
    return PartEntry(
        name=part.name,
        partition_id=part.partition_id,
        rows=part.rows,
        rows_seen=part.rows,
        bytes=part.bytes,
        address=place.rsplit("/", 1)[-1],
        min_block=part.min_block,
        max_block=part.max_block,
        level=part.level,
        mutation=0,
        data_version=part.data_version,
        content=part.content,
        place=place,
        index_sha256=index_sha256,
    )


def _plan(part: PartEntry) -> PartPlan:
    return part.plan_with(path=f"{part.place}{_SEPARATOR}{part.index_sha256}", content=part.content)


def _partitions(manifest: Manifest, entry: TableEntry) -> list[PartitionInfo]:
    shown = {one.id: one for one in entry.partitions}
    by_id: dict[str, list[PartEntry]] = {}
    for part in entry.parts:
        by_id.setdefault(part.partition_id, []).append(part)
    return [
        PartitionInfo(
            id=partition_id,
            value=shown[partition_id].value,
            rows=sum(part.rows_seen for part in parts),
            bytes=sum(part.bytes for part in parts),
            parts=len(parts),
            modified_at=datetime.fromisoformat(manifest.created_at),
            min_block=min(part.min_block for part in parts),
            max_block=max(part.max_block for part in parts),
            mutation=max(part.mutation for part in parts),
            content=content_id(
                (part.extent for part in parts),
                () if _replicated(entry) else (part.mark for part in parts),
            ),
            disks=(),
            min_time=_time(shown[partition_id].min_time),
            max_time=_time(shown[partition_id].max_time),
        )
        for partition_id, parts in sorted(by_id.items())
    ]


def _replicated(entry: TableEntry) -> bool:
    return EngineClause(name=entry.engine).replicated


def _time(text: str) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _named(known: Sequence[PartitionInfo], names: Sequence[str], where: str) -> list[PartitionInfo]:
    by_name = {one.value: one for one in known} | {one.id: one for one in known}
    found: dict[str, PartitionInfo] = {}
    for name in names:
        one = by_name.get(name) or by_name.get(string(name))
        if one is None:
            shown = ", ".join(one.id for one in known[:5])
            raise NotFoundError(
                f"{where} has no partition {name}", code="no_partition", hint=f"it has {shown}"
            )
        if not one.rows:
            raise RefusedError(
                f"partition {one.id} of {where} has no rows",
                code="empty_partition",
                hint="its rows were deleted before the backup was made",
            )
        found[one.id] = one
    return list(found.values())


def _of_parts(
    entry: TableEntry, known: Sequence[PartitionInfo], names: Sequence[str], where: str
) -> list[PartitionInfo]:
    parts = [part for part in entry.parts if part.name in names]
    missing = sorted(set(names) - {part.name for part in parts})
    if missing:
        raise NotFoundError(
            f"{where} has no part {', '.join(missing)}",
            code="no_part",
            hint="calve backup show --json lists them",
        )
    ids = {part.partition_id for part in parts}
    return [replace(one, named=_named_content(parts, one.id)) for one in known if one.id in ids]


def _named_content(parts: Sequence[PartEntry], partition_id: str) -> str:
    return parts_content(file_hash(part.content) for part in parts if part.partition_id == partition_id)
