"""What a person asked for, as it is stored with the process and read by every worker."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from calve.clickhouse.parts.part_files import parse_name
from calve.destination.address import DestinationAddress
from calve.export.iceberg_types import LOSSY
from calve.model.record import SPACED, Record


@dataclass(frozen=True, kw_only=True)
class ExportRequest(Record, layout=SPACED):
    """One process's request. Fields added later have defaults: older requests stay readable (L12)."""

    source: str  # the name in the configuration
    database: str
    table: str
    catalog: str
    identifier: tuple[str, ...]  # namespace and table
    partitions: tuple[str, ...]  # partition ids
    parts: tuple[str, ...] = ()  # --part: only these
    where: str = ""
    final: bool = False
    force: bool = False
    discard_deletes: bool = False
    allow_shrink: bool = False
    allow_overlap: bool = False
    create: bool = True
    evolve: bool = False
    partition_by: str = ""
    casts: Mapping[str, str] = field(default_factory=dict)
    exclude: tuple[str, ...] = ()
    mutations: str = "refuse"  # "wait": until they are done; "ignore": export the rows as before them
    ignore_row_policies: bool = False
    storage: str = ""  # plain Parquet: the [storage] section that a worker must have
    from_backup: str = ""  # the name of a backup: its parts are read, and the source is not asked
    file_mb: int = 0  # --file-mb; 0: as the table or the configuration says
    codec: str = ""  # --codec; "": as the table says
    unsigned: bool = False  # accept a backup that is not signed, where [backup] has a signing key
    chosen: str = ""  # how the partitions were chosen, in one canonical text; "" in requests of v0.1

    @property
    def address(self) -> DestinationAddress:
        """Where the export goes."""
        return DestinationAddress(catalog=self.catalog, identifier=self.identifier, storage=self.storage)

    @property
    def source_table(self) -> str:
        return f"{self.source}:{self.database}.{self.table}"

    @property
    def destination(self) -> str:
        return str(self.address)

    @property
    def selection(self) -> str:
        """What of the partition is exported, in one canonical text, "" for all of it: part of the key."""
        given = {
            "parts": sorted(self.parts),
            "where": self.where,
            "final": self.final,
            "lossy": {
                name: kind for name, kind in self.casts.items() if kind.lower().split()[-1:] == [LOSSY]
            },
        }
        chosen = {name: value for name, value in given.items() if value}
        return json.dumps(chosen, sort_keys=True) if chosen else ""

    @property
    def asked(self) -> str:
        """What was asked for, of whichever partitions: the same request again asks for the same (T16)."""
        left_out = replace(self, partitions=(), parts=(), unsigned=False, exclude=tuple(sorted(self.exclude)))
        return left_out.to_json()

    def within(self, partitions: Collection[str]) -> "ExportRequest":
        """The same request of these partitions alone, without the parts that are of its others. A name
        that does not tell its partition (of a table of old syntax) is kept: without any part left,
        all of a partition would be exported."""
        others = frozenset(self.partitions) - frozenset(partitions)
        mine = tuple(part for part in self.parts if _partition_of(part) not in others)
        return replace(self, partitions=tuple(partitions), parts=mine)


def _partition_of(part: str) -> str:
    """The partition id that a part's name begins with."""
    parsed = parse_name(part)
    return parsed.partition_id if parsed else ""
