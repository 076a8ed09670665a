"""Rows by value: a row is a text that no other row has, `id:version`, and a day. Data files of the lake hold them as real
Parquet, so that the product's own readers read them; what was written is kept beside, so that the check need not."""

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, NestedField, StringType

from calve.destination import checksums
from calve.destination.plan import SpecField
from calve.destination.receipt import FileReceipt
from calve.policy.row_hash import HashedColumn, RowHash, RowSums

SCHEMA = Schema(
    NestedField(1, "id", StringType(), required=True), NestedField(2, "day", DateType(), required=True)
)
ARROW = schema_to_pyarrow(SCHEMA)
_EPOCH = date(1970, 1, 1)
_HASH = RowHash(
    (HashedColumn(field_id=1, expression="id", type="String"), HashedColumn(field_id=2, expression="day", type="Date")),
    SCHEMA,
)  # fmt: skip


@dataclass
class KnownRows:
    """The day of each row, and the rows of each data file that anybody wrote."""

    days: dict[str, date] = field(default_factory=dict)  # by the row's id
    files: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by URI

    def day(self, row: str) -> date:
        return self.days[row.partition(":")[0]]

    def arrow(self, rows: Sequence[str]) -> Any:
        return pa.table({"id": list(rows), "day": [self.day(one) for one in rows]}, schema=ARROW)

    def parquet(self, uri: str, rows: Sequence[str]) -> bytes:
        buffer = io.BytesIO()
        pq.write_table(self.arrow(rows), buffer, compression="none")
        self.files[uri] = tuple(rows)
        return buffer.getvalue()

    def receipt(self, uri: str, rows: Sequence[str], size: int, spec: Sequence[SpecField]) -> FileReceipt:
        days = [self.day(one) for one in rows]
        ends = min(days), max(days)
        ids = min(rows), max(rows)
        lower, upper = (
            {1: to_bytes(StringType(), id).hex(), 2: to_bytes(DateType(), (day - _EPOCH).days).hex()}
            for id, day in zip(ids, ends, strict=True)
        )
        return FileReceipt(
            path=uri,
            rows=len(rows),
            bytes=size,
            partition=tuple(partition_value(one.transform, days[0]) for one in spec),
            value_counts=dict.fromkeys((1, 2), len(rows)),
            null_counts=dict.fromkeys((1, 2), 0),
            lower_bounds=lower,
            upper_bounds=upper,
            split_offsets=(4,),
        )

    def checksums(self, rows: Sequence[str]) -> dict[str, str]:
        """By column, as the tasks of an export leave them."""
        table = self.arrow(rows)
        return {
            one.name: checksums.text(checksums.of_arrow(one.field_type, table.column(one.name)))
            for one in SCHEMA.fields
        }

    def sums(self, rows: Iterable[str]) -> RowSums:
        return sum((self._sum(one) for one in rows), RowSums())

    def _sum(self, row: str) -> RowSums:
        return _row_sum(row, self.day(row))


@cache
def _row_sum(row: str, day: date) -> RowSums:
    return _HASH.of_batch(pa.table({"id": [row], "day": [day]}, schema=ARROW))


def partition_value(transform: str, day: date) -> Any:
    """As Iceberg's transforms of the day make it."""
    match transform:
        case "month":
            return (day.year - 1970) * 12 + day.month - 1
        case "day":
            return (day - _EPOCH).days
        case "year":
            return day.year - 1970
        case _:
            raise NotImplementedError(transform)


Days = Mapping[str, date]
