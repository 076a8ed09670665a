"""The plan of an export: written once, after the pin and before any work; never changed.

Nothing later asks the source again, and a plan written by an older version is read by a
newer one: every field added after version 1 has a default (L12; old plans are fixtures in
`tests/fixtures/plans`). Secrets are never in a plan: it names catalogs and sources, and
the worker that runs it has their configuration.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from calve.model.record import Record

PLAN_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class PartPlan:
    """One part as the pin holds it."""

    name: str
    partition_id: str
    rows: int  # physical rows: lightweight-deleted ones count
    bytes: int
    path: str = ""  # the pinned part's folder, where executors can see it
    disk: str = "default"
    min_block: int = 0
    max_block: int = 0
    level: int = 0
    data_version: int = 0
    content: str = ""  # a hash of the part's files
    uncompressed: int = 0  # bytes of all values, of parts read over HTTP; 0 where nobody said


@dataclass(frozen=True, kw_only=True)
class Slice:
    """Rows `start` (inclusive) to `end` (exclusive) of a part, by physical offset."""

    part: int  # index into ExportPlan.parts
    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class ColumnPlan:
    """One exported column. `select` makes, of the source column, the type that the data file holds."""

    name: str  # in the destination
    source: str  # in the source
    source_type: str
    select: str  # SQL over the relation's columns
    field_id: int
    type: str  # the destination's type, in Iceberg's own words: "decimal(20,0)", "list<string>"
    required: bool
    check: str = ""  # SQL: true for a row whose value cannot be written; "" when every value can
    check_reason: str = ""  # what such a row holds
    lossy: bool = False  # --cast 'column=type lossy': values may change


@dataclass(frozen=True, kw_only=True)
class SpecField:
    """One field of the destination's partition spec, and the SQL that gives its value for a row."""

    field_id: int
    source_id: int
    name: str
    transform: str  # "month", "bucket[16]", ...
    select: str  # SQL: NULL for null, otherwise the value as Iceberg stores it


@dataclass(frozen=True, kw_only=True)
class DestinationPlan:
    """The table as it was when the plan was made."""

    catalog: str
    identifier: tuple[str, ...]  # namespace and table
    uuid: str
    location: str  # the full URI
    data_location: str  # where data files go
    receipts_location: str
    schema_id: int
    schema: str  # Iceberg's JSON
    spec_id: int
    spec: tuple[SpecField, ...] = ()
    sort_order_id: int = 0
    sorted: bool = False  # a file of one whole slice, read in order, is sorted by that order
    base_snapshot_id: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)  # those that writing depends on
    form: str = "iceberg"  # or "parquet": plain files, `catalog` is then the folder's full URI


@dataclass(frozen=True, kw_only=True)
class KeyPlan:
    """The identity of one input. One key is published once, however many processes try."""

    partition: str
    hash: str  # of source identity, partition, selection and the destination's uuid
    content: str  # of covered blocks, data versions and rows: a plain merge does not change it
    text: str = ""  # the readable form of what was hashed
    rows: int = 0
    top: int = (
        0  # the highest block, of a whole partition or of what was added to one; 0 where it is not known
    )


@dataclass(frozen=True, kw_only=True)
class Relation:
    """How executors read the rows."""

    mode: str  # "frozen", "backup" or "live"
    create: str = ""  # CREATE TABLE for the scratch table, with {table} for its name
    where: str = ""  # the row filter asked for
    final: bool = False
    structure: str = ""  # live: names and types as the engine reads them
    detail: Mapping[str, Any] = field(default_factory=dict)  # of the mode


@dataclass(frozen=True, kw_only=True)
class ExportPlan(Record):
    process_id: str
    source: str  # the name in the configuration
    source_identity: str
    table: str
    relation: Relation
    parts: tuple[PartPlan, ...]
    tasks: tuple[tuple[Slice, ...], ...]
    columns: tuple[ColumnPlan, ...]
    keys: tuple[KeyPlan, ...]
    destination: DestinationPlan
    replace: bool = False  # --force: the earlier export of these keys is replaced
    discard_deletes: bool = False
    allow_shrink: bool = False  # even by fewer rows
    refuse_overlap: bool = False  # a plan of before this was looked at only when it was made
    memory_mb: int = 1000
    file_mb: int = 128
    open_files: int = 32
    cores: int = 0  # that the tasks were cut for; 0 in plans of before this was looked at
    settings: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    version: int = PLAN_VERSION

    @property
    def rows(self) -> int:
        """Physical rows of all slices."""
        return sum(piece.end - piece.start for task in self.tasks for piece in task)
