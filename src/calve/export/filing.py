"""Which destination partition a row belongs to, and where a partition's files go.

The engine is told an integer ordinal, never a value: a value can hold `/../`, `?`, a newline
or be NULL (D10). Values come back typed, and only Iceberg's own encoding makes a path of them.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.locations import load_location_provider
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    TimestamptzType,
    UUIDType,
)

from calve.export.reading import Rows
from calve.iceberg import partitions
from calve.model.errors import PermanentError
from calve.model.plan import DestinationPlan
from calve.parquet.paths import hive_path

LONGEST_FOLDER = 200  # bytes; file systems end at 255
MOST_PARTITIONS = 10_000  # of one task; beyond it every file would hold next to nothing


@dataclass(frozen=True, kw_only=True)
class Partition:
    """One destination partition that the task's rows belong to."""

    key: str  # hex, never NULL: what SQL compares
    values: tuple[Any, ...]  # in the spec's order, in the receipt's form
    rows: int


class Filing:
    """The destination's spec, as SQL over the relation's columns and as folders."""

    def __init__(self, destination: DestinationPlan, schema: Schema) -> None:
        self._fields = destination.spec
        self._plain = destination.form == "parquet"
        self._schema = schema
        self._spec = PartitionSpec(
            *(
                PartitionField(
                    source_id=item.source_id,
                    field_id=item.field_id,
                    transform=parse_transform(item.transform),
                    name=item.name,
                )
                for item in destination.spec
            ),
            spec_id=destination.spec_id,
        )
        self._types = [field.field_type for field in self._spec.partition_type(schema).fields]
        self._locations = load_location_provider(
            destination.location, {**destination.properties, "write.data.path": destination.data_location}
        )

    @property
    def key_sql(self) -> str:
        """A text that is equal for rows of one partition and for no others."""
        parts = []
        for item in self._fields:
            text = f"toString({item.select})"
            parts.append(f"ifNull(concat('v', toString(length({text})), ':', {text}), 'n')")
        return f"hex(concat({', '.join(parts)}, ''))"

    def ordinal_sql(self, group: Sequence[Partition]) -> str:
        """The place of a row's partition in `group`, from 0; -1 for rows of others."""
        keys = ", ".join(f"'{partition.key}'" for partition in group)
        ordinals = ", ".join(str(place) for place in range(len(group)))
        return f"toInt32(transform({self.key_sql}, [{keys}], [{ordinals}], -1))"

    def find(self, rows: Rows, settings: dict[str, str]) -> list[Partition]:
        """The distinct partitions of a task's rows; one without values where there is no spec."""
        source = rows.from_where(rows.pieces)
        what = "finding the destination partitions"
        if not self._fields:
            counted = rows.engine.rows(f"SELECT count() AS rows {source}", settings, what)[0]["rows"]
            return [Partition(key="", values=(), rows=counted)] if counted else []
        values = ", ".join(
            f"any({_json_sql(kind, item.select)}) AS v{place}"
            for place, (item, kind) in enumerate(zip(self._fields, self._types, strict=True))
        )
        found = rows.engine.rows(
            f"SELECT {self.key_sql} AS key, {values}, count() AS rows {source}"
            f" GROUP BY key ORDER BY key LIMIT {MOST_PARTITIONS + 1}",
            settings,
            what,
        )
        if len(found) > MOST_PARTITIONS:
            raise PermanentError(
                f"the rows of one task belong to more than {MOST_PARTITIONS} partitions of the table",
                code="too_many_partitions",
                hint="choose a coarser spec with --partition-by, such as bucket(16, column)",
            )
        return [self._partition(row) for row in found]

    def _partition(self, row: dict[str, Any]) -> Partition:
        values = (row[f"v{place}"] for place in range(len(self._types)))
        return Partition(
            key=row["key"],
            values=tuple(
                partitions.to_json(kind, value) if isinstance(kind, FloatType | DoubleType) else value
                for kind, value in zip(self._types, values, strict=True)
            ),
            rows=row["rows"],
        )

    def location(self, partition: Partition, file_name: str) -> str:
        """The full URI of a data file, where the table's location provider puts it."""
        key: Any = _Folder(self._spec, self._schema, partition, plain=self._plain) if self._fields else None
        return str(self._locations.new_data_location(file_name, key))


class _Folder:
    """What a location provider asks of a partition key. PyIceberg's own applies transforms to
    source values; ours are transformed already."""

    def __init__(self, spec: PartitionSpec, schema: Schema, partition: Partition, *, plain: bool) -> None:
        self._spec, self._schema, self._partition, self._plain = spec, schema, partition, plain

    def to_path(self) -> str:
        record = partitions.record(self._spec, self._schema, self._partition.values)
        if self._plain:
            return hive_path(self._spec, self._schema, record)
        path = str(self._spec.partition_to_path(record, self._schema))
        return "/".join(_short(folder) for folder in path.split("/"))


def _short(folder: str) -> str:
    """A name that file systems take. Nobody reads a value from a path, so it may be cut; the hash
    keeps apart what begins alike."""
    if len(folder) <= LONGEST_FOLDER:
        return folder
    # not within a %XX, which would be no encoding of anything
    kept = folder[: LONGEST_FOLDER // 2].rsplit("%", 1)[0]
    return f"{kept}~{hashlib.sha256(folder.encode()).hexdigest()[:32]}"


def _json_sql(kind: IcebergType, select: str) -> str:
    """A partition value in the form that receipts carry; see `lake.partitions`."""
    match kind:
        case DateType():
            return f"toInt32({select})"
        case TimestamptzType():
            return f"toUnixTimestamp64Micro({select})"
        case DecimalType():
            return f"toDecimalString({select}, {kind.scale})"
        case UUIDType():
            return f"toString({select})"
        case BinaryType() | FixedType():
            return f"lower(hex({select}))"
        case _:
            return select
