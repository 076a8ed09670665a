"""Every snapshot that a table of the lake ever had, and what its files hold: kept as they appear, before they expire.

A reader that knows Iceberg's metadata and Calve's marks, and nothing else of Calve.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import DataFileContent, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from support.chaos.clients import NAMESPACE
from support.chaos.ledger import Row

FOREIGN_MARK = "somebody-elses-act"


@dataclass(frozen=True, kw_only=True)
class Landed:
    """One snapshot."""

    table: str
    snapshot_id: int
    sequence: int
    operation: str
    process_id: str  # Calve's, "" for others
    act: str  # the foreign writer's, "" for others
    added: tuple[str, ...]  # data files
    removed: int


@dataclass(kw_only=True)
class Chronicle:
    catalog: Catalog
    landed: dict[tuple[str, int], Landed] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def look(self, names: Iterable[str]) -> None:
        """Note what is new. Raises if the catalog or its storage is away."""
        with self._lock:
            for name in names:
                table = self.table(name)
                for snapshot in table.metadata.snapshots if table is not None else ():
                    key = (name, snapshot.snapshot_id)
                    if key not in self.landed and table is not None:
                        self.landed[key] = _landed(name, table, snapshot)

    def table(self, name: str) -> Table | None:
        try:
            return self.catalog.load_table((NAMESPACE, name))
        except NoSuchTableError:
            return None

    def of(self, name: str) -> list[Landed]:
        """In the order in which they were committed."""
        return sorted(
            (one for one in self.landed.values() if one.table == name), key=lambda one: one.sequence
        )


def _landed(name: str, table: Table, snapshot: Snapshot) -> Landed:
    added: list[str] = []
    removed = 0
    for manifest in snapshot.manifests(table.io):
        if manifest.added_snapshot_id != snapshot.snapshot_id:
            continue
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
            if entry.snapshot_id == snapshot.snapshot_id and entry.data_file.content is DataFileContent.DATA:
                if entry.status is ManifestEntryStatus.ADDED:
                    added.append(entry.data_file.file_path)
                elif entry.status is ManifestEntryStatus.DELETED:
                    removed += 1
    summary = snapshot.summary
    marks: dict[str, str] = dict(summary.additional_properties) if summary is not None else {}
    return Landed(
        table=name,
        snapshot_id=snapshot.snapshot_id,
        sequence=snapshot.sequence_number or 0,
        operation=summary.operation.value if summary is not None else "",
        process_id=marks.get("calve.process-id", ""),
        act=marks.get(FOREIGN_MARK, ""),
        added=tuple(added),
        removed=removed,
    )


def rows_of(table: Table, files: Iterable[str]) -> list[Row]:
    """Of data files, by pyarrow."""
    found: list[Row] = []
    for uri in files:
        with table.io.new_input(uri).open() as source:
            found += rows(pq.read_table(source))
    return found


def rows(data: pa.Table) -> list[Row]:
    def column(name: str) -> list[Any]:
        return list(data.column(name).to_pylist())

    return [
        Row(
            id=int(id), p=p, version=version, payload=payload, cents=int(amount * 100), at=int(at.timestamp())
        )
        for id, p, version, payload, amount, at in zip(
            *map(column, ("id", "p", "version", "payload", "amount", "at")), strict=True
        )
    ]
