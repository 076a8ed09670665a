"""Partition values at rest: the JSON form that receipts carry, and the typed form that manifests hold.

| Iceberg type                   | in a receipt                            | in a manifest |
| ------------------------------ | --------------------------------------- | ------------- |
| null of any type               | null                                    | None          |
| boolean, int, long, string     | as it is                                | as it is      |
| date                           | days since 1970-01-01                   | int           |
| time, timestamp, timestamptz   | microseconds                            | int           |
| float, double                  | number, "NaN", "Infinity", "-Infinity"  | float         |
| decimal                        | digits as text, "12.30"                 | Decimal       |
| uuid                           | text with hyphens                       | UUID          |
| fixed, binary                  | hex                                     | bytes         |

A value never chooses a path by itself and is never parsed from one (D10).
"""

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from calve.model.errors import PermanentError


def to_json(kind: IcebergType, value: Any) -> Any:
    """The receipt's form of a typed value."""
    if value is None:
        return None
    match kind:
        case FloatType() | DoubleType():
            number = float(value)
            if number != number:
                return "NaN"
            return {float("inf"): "Infinity", float("-inf"): "-Infinity"}.get(number, number)
        case DecimalType() | UUIDType():
            return str(value)
        case FixedType() | BinaryType():
            return bytes(value).hex()
        case _:
            return value


def from_json(kind: IcebergType, value: Any) -> Any:
    """The typed value of a receipt's form; PermanentError if it is not of that type."""
    if value is None:
        return None
    try:
        return _typed(kind, value)
    except (TypeError, ValueError, InvalidOperation) as cause:
        raise PermanentError(
            f"a receipt has the partition value {value!r}, which is not a valid {kind}",
            code="receipt_invalid",
            hint="export the partition again; the receipt was not written by a compatible version",
        ) from cause


def _typed(kind: IcebergType, value: Any) -> Any:
    match kind:
        case BooleanType() if isinstance(value, bool):
            return value
        case IntegerType() | LongType() | DateType() | TimeType() | TimestampType() | TimestamptzType():
            if isinstance(value, int) and not isinstance(value, bool):
                return value
        case FloatType() | DoubleType() if not isinstance(value, bool):
            return float(value)
        case DecimalType() if isinstance(value, str):
            return Decimal(value)
        case UUIDType() if isinstance(value, str):
            return UUID(value)
        case FixedType() | BinaryType() if isinstance(value, str):
            return bytes.fromhex(value)
        case StringType() if isinstance(value, str):
            return value
        case _:
            pass
    raise TypeError(f"{value!r} is not a {kind}")


def record(spec: PartitionSpec, schema: Schema, values: Sequence[Any]) -> Record:
    """A data file's partition, typed, from a receipt's values in the spec's field order."""
    fields = spec.partition_type(schema).fields
    if len(fields) != len(values):
        raise PermanentError(
            f"a receipt has {len(values)} partition values where spec {spec.spec_id} has {len(fields)} fields",
            code="receipt_invalid",
            hint="export the partition again; the receipt was written for another partition spec",
        )
    return Record(*(from_json(field.field_type, value) for field, value in zip(fields, values, strict=True)))
