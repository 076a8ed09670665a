"""The modelled catalog with every version of its metadata kept, as a warehouse keeps metadata files: ClickHouse reads a table by one of
them."""

from collections.abc import Callable, Iterable

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import TableUpdate

from support.simulator.catalog import ModelledCatalog, Name
from support.simulator.objects import ModelledObjects
from support.simulator.weather import Weather


class VersionedCatalog(ModelledCatalog):
    def __init__(
        self, name: str, weather: Weather, objects: ModelledObjects, after_commit: Callable[[Name, TableMetadata, TableMetadata], None]
    ) -> None:  # fmt: skip
        super().__init__(name, weather, objects)
        self.files_of: dict[str, TableMetadata] = {}  # by the place of the metadata file
        self._versions: dict[str, list[TableMetadata]] = {}
        self._after_commit = after_commit

    def table(self, name: Name, metadata: TableMetadata) -> Table:
        where = self._place(metadata)
        return Table(identifier=name, metadata=metadata, metadata_location=where, io=self._io, catalog=self)

    def _place(self, metadata: TableMetadata) -> str:
        known = self._versions.setdefault(metadata.location, [])
        number = next((at for at in reversed(range(len(known))) if known[at] is metadata), len(known))
        if number == len(known):
            known.append(metadata)
        where = f"{metadata.location}/metadata/{number:05}.metadata.json"
        self.files_of[where] = metadata
        return where

    def apply(self, name: Name, updates: Iterable[TableUpdate]) -> None:
        before = self.tables[name]
        super().apply(name, tuple(updates))
        self._after_commit(name, before, self.tables[name])
        self.table(name, self.tables[name])

    def head_files(self, metadata: TableMetadata) -> frozenset[str]:
        """What main shows, by this version."""
        main = metadata.refs.get(MAIN_BRANCH)
        head = metadata.snapshot_by_id(main.snapshot_id) if main else None
        return self.files(head) if head else frozenset()

    def supports_server_side_planning(self) -> bool:
        return False
