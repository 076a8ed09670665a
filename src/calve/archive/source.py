"""A backup as a source: its tables, partitions and parts, as they were when they were frozen.

The source that it was made from is never asked: it may be gone. Nothing in a backup changes, so a pin
is a description and nothing is released.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

from calve.archive import backups
from calve.archive.create import check_scratch
from calve.archive.location import Location
from calve.archive.manifest import Manifest, PartEntry, TableEntry, damaged
from calve.clickhouse.engine.ddl import ScratchTable
from calve.clickhouse.parts.content import content_id, file_hash, parts_content
from calve.clickhouse.parts.partitions import PartitionInfo
from calve.clickhouse.pins.pin import Pinned, PinnedPartition, PinRequest
from calve.clickhouse.reader import Reader, unknown_mode
from calve.clickhouse.sql.create_table import EngineClause
from calve.clickhouse.tables import TableInfo
from calve.destination.plan import PartPlan, Relation
from calve.model import reach
from calve.model.errors import NotFoundError, RefusedError

MODE = "backup"  # of a relation
READER = "calve.archive.reader:opened"
SEPARATOR = "#"  # between a stored part's place and the hash of its index


class BackupSource:
    """One backup. `source` is the name of the source it was made from, for errors and keys."""

    immutable = True

    def __init__(
        self,
        location: Location,
        backup: str,
        source: str,
        properties: dict[str, str],
        *,
        unsigned: bool = False,
    ) -> None:
        self.name = source
        self.need = reach.backup(location.url)
        self._location = location
        self._backup = backup
        self._properties = properties
        self._unsigned = unsigned  # accept a manifest that is not signed, where it has to be

    @contextmanager
    def visit(self) -> Iterator["BackupView"]:
        yield self._view()

    def _view(self) -> "BackupView":
        return BackupView(backups.find(self._location, self._backup, unsigned=self._unsigned), self.name)

    def pin(self, request: PinRequest, name: str) -> Pinned:
        view = self._view()
        entry = view.entry(request.database, request.table)
        chosen = _chosen(entry, request.partitions, request.parts)
        ScratchTable(create=entry.scratch, stripped=entry.stripped).refuse_parts_without(
            (part.name, frozenset(entry.stripped) - frozenset(part.lacks)) for part in chosen
        )
        create = entry.scratch_final if request.final else entry.scratch
        if not create:
            raise RefusedError(
                f"the merged view of {request.database}.{request.table} cannot be computed outside its server",
                code="final_not_portable",
                hint="omit --final",
            )
        check_scratch(create)
        return Pinned(
            identity=entry.identity,
            engine=entry.engine,
            columns=entry.columns,
            partition_key=entry.partition_key,
            sorting_key=entry.sorting_key,
            relation=Relation(
                mode=MODE, create=create, final=request.final, detail={"location": self._location.url}
            ),
            parts=tuple(_plan(part) for part in chosen),
            partitions=tuple(
                PinnedPartition(
                    id=one.id,
                    content=one.content,
                    rows=one.rows,
                    named=_named_content(chosen, one.id) if request.parts else "",
                )
                for one in _partitions(view.manifest, replace(entry, parts=tuple(chosen)))
            ),
            roots=(),
            notes=view.remarks(),
            settings={"session_timezone": entry.timezone},
        )

    def release(self, name: str, detail: str) -> None:
        """There is nothing to release."""

    def reader(self, relation: Relation) -> Reader:
        if relation.mode != MODE:
            raise unknown_mode(relation.mode)
        return Reader(function=READER, access=self._properties)


class BackupView:
    """See `clickhouse.source.View` for what each call promises."""

    embedded = True

    def __init__(self, manifest: Manifest, source: str) -> None:
        self.manifest = manifest
        self._source = source

    def entry(self, database: str, table: str) -> TableEntry:
        for entry in self.manifest.tables:
            if entry.full_name == (database, table):
                return entry
        names = ", ".join(".".join(entry.full_name) for entry in self.manifest.tables[:5]) or "none"
        raise NotFoundError(
            f"backup {self.manifest.name} has no table {database}.{table}",
            code="no_table",
            hint=f"it has {names}; see: calve backup show {self.manifest.name}",
        )

    def describe(self, database: str, table: str) -> TableInfo:
        return self.entry(database, table).info(self._source)

    def partitions(self, table: TableInfo) -> list[PartitionInfo]:
        return _partitions(self.manifest, self.entry(table.database, table.name))

    def parts(
        self, table: TableInfo, partition_ids: Sequence[str] = (), names: Sequence[str] = ()
    ) -> tuple[PartPlan, ...]:
        return tuple(map(_plan, _chosen(self.entry(table.database, table.name), partition_ids, names)))

    def named_content(self, table: TableInfo, partition_id: str, names: Sequence[str]) -> str:
        entry = self.entry(table.database, table.name)
        return _named_content(_chosen(entry, [partition_id], names), partition_id)

    def refuse_unfinished(
        self, table: TableInfo, partition_ids: Sequence[str] = (), *, ignore: bool
    ) -> tuple[str, ...]:
        return ()  # refused before the backup was made

    def check_where(self, table: TableInfo, where: str) -> None:
        """The executors' engine computes it, and its parser has read it."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def remarks(self) -> tuple[str, ...]:
        return (f"read from backup {self.manifest.name}, made at {self.manifest.created_at}",)

    def command_for(self, table: TableInfo) -> str:
        return f"calve backup show {self.manifest.name}"


def _chosen(entry: TableEntry, partition_ids: Sequence[str], names: Sequence[str]) -> list[PartEntry]:
    return [
        part
        for part in entry.parts
        if (not partition_ids or part.partition_id in partition_ids) and (not names or part.name in names)
    ]


def _plan(part: PartEntry) -> PartPlan:
    return part.plan_with(path=f"{part.place}{SEPARATOR}{part.index_sha256}", content=part.content)


def _partitions(manifest: Manifest, entry: TableEntry) -> list[PartitionInfo]:
    shown = {one.id: one for one in entry.partitions}
    if lacking := {part.partition_id for part in entry.parts} - shown.keys():
        raise damaged(f"backup {manifest.name}", f"it does not describe partition {min(lacking)}")
    by_id: dict[str, list[PartEntry]] = {}
    for part in entry.parts:
        by_id.setdefault(part.partition_id, []).append(part)
    replicated = EngineClause(name=entry.engine).replicated
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
                (part.extent for part in parts), () if replicated else (part.mark for part in parts)
            ),
            disks=(),
            min_time=_time(shown[partition_id].min_time),
            max_time=_time(shown[partition_id].max_time),
        )
        for partition_id, parts in sorted(by_id.items())
    ]


def _time(text: str) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _named_content(parts: Sequence[PartEntry], partition_id: str) -> str:
    return parts_content(file_hash(part.content) for part in parts if part.partition_id == partition_id)
