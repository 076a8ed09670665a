"""Rows split by destination partition: which one a row belongs to, and where its files go.

The engine gets an integer ordinal, never a value: a value can hold `/../`, `?`, a newline
or be NULL (D10). Values come back typed, and only Iceberg's own encoding makes a path of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
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

from calve.clickhouse.reader import Rows
from calve.destination.description import record, to_json
from calve.destination.names import placement
from calve.destination.plan import DestinationPlan
from calve.model.errors import PermanentError

MOST_PARTITIONS = 10_000  # of one task; beyond it every file would hold next to nothing


@dataclass(frozen=True, kw_only=True)
class Partition:
    """One destination partition that the task's rows belong to."""

    key: str  # hex, never NULL: what SQL compares
    values: tuple[Any, ...]  # in the spec's order, in the receipt's form
    rows: int


class PartitionSplit:
    """The destination's spec, as SQL over the relation's columns and as folders."""

    def __init__(self, destination: DestinationPlan, schema: Schema) -> None:
        self._fields = destination.spec
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
        self._placement = placement(destination, self._spec, schema)

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
                to_json(kind, value) if isinstance(kind, FloatType | DoubleType) else value
                for kind, value in zip(self._types, values, strict=True)
            ),
            rows=row["rows"],
        )

    def location(self, partition: Partition, file_name: str) -> str:
        """The full URI of a data file, where the destination puts it."""
        if not self._fields:
            return self._placement.file(None, file_name)
        return self._placement.file(record(self._spec, self._schema, partition.values), file_name)


def _json_sql(kind: IcebergType, select: str) -> str:
    """A partition value in the form that receipts carry; see `calve.destination.description`."""
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
