"""PyIceberg, ClickHouse's `icebergLocal` and Spark, each asked the same, answering in one form."""

import datetime as dt
import decimal
import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pyarrow as pa
from generated_tables import LONG, LONG_TIMES, LONG_UNIT, text_sql
from pyiceberg.expressions import (
    BooleanExpression,
    EqualTo,
    GreaterThanOrEqual,
    IsNull,
    LessThan,
    LessThanOrEqual,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import TimeTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    ListType,
    MapType,
    StringType,
    StructType,
    TimestamptzType,
    UUIDType,
)

from support.place import Place
from support.spark_sql import SparkCatalog

_EXACT = decimal.Context(prec=60)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_OPERATORS = {"=": EqualTo, "<": LessThan, "<=": LessThanOrEqual, ">=": GreaterThanOrEqual}


# ---- one form for values of every reader


def plain(kind: IcebergType, value: Any) -> Any:
    """Bits for floats, unscaled integers for decimals, microseconds for instants, hex for bytes."""
    if value is None:
        return None
    match kind:
        case ListType():
            return [plain(kind.element_type, item) for item in value]
        case MapType():
            pairs = value.items() if isinstance(value, dict) else value
            return [[plain(kind.key_type, key), plain(kind.value_type, item)] for key, item in pairs]
        case StructType():
            items = value.values() if isinstance(value, dict) else value
            return [plain(field.field_type, item) for field, item in zip(kind.fields, items, strict=True)]
        case FloatType() | DoubleType():
            code = ">f" if isinstance(kind, FloatType) else ">d"
            return "nan" if math.isnan(value) else struct.pack(code, value).hex()
        case DecimalType():
            return int(decimal.Decimal(value).scaleb(kind.scale, _EXACT))
        case DateType():
            return str(value)
        case TimestamptzType():
            return _micros(value)
        case UUIDType():
            return str(UUID(bytes=value)) if isinstance(value, bytes) else str(value)
        case BinaryType() | FixedType():
            return (value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")).hex()
        case BooleanType():
            return bool(value)
        case StringType():
            return str(value)
        case _:
            return int(value)


def _micros(value: Any) -> int:
    if isinstance(value, str):
        value = dt.datetime.fromisoformat(value).replace(tzinfo=dt.UTC)
    return int((value - _EPOCH) // dt.timedelta(microseconds=1))


# ---- predicates


@dataclass(frozen=True)
class Predicate:
    """A comparison with a value, or IS NULL, over one column."""

    column: str
    operator: str
    value: Any = None

    def holds(self, value: Any) -> bool:
        if self.operator == "IS NULL":
            return value is None
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return False
        one, other = (item.encode() if isinstance(item, str) else item for item in (value, self.value))
        return {
            "=": one == other,
            "<": one < other,
            "<=": one <= other,
            ">=": one >= other,
        }[self.operator]

    def sql(self, kind: IcebergType, *, spark: bool) -> str:
        if self.operator == "IS NULL":
            return f"{self.column} IS NULL"
        literal = spark_literal(kind, self.value) if spark else clickhouse_literal(kind, self.value)
        return f"{self.column} {self.operator} {literal}"

    def expression(self) -> BooleanExpression:
        if self.operator == "IS NULL":
            return IsNull(self.column)
        return _OPERATORS[self.operator](self.column, self.value)


def edge_predicates(column: str, kind: IcebergType, values: Iterable[Any]) -> list[Predicate]:
    """Comparisons with each value, and beyond the lowest and highest, where all readers agree on
    what they mean: UUIDs have no common order, and NaN is above everything in Spark alone."""
    known = [value for value in values if value is not None and value == value]
    if isinstance(kind, FloatType):
        # PyIceberg takes an infinity for a number that no float can hold, and finds nothing.
        known = [value for value in known if not math.isinf(value)]
    found = [Predicate(column, "IS NULL")]
    for value in {repr(value): value for value in known}.values():
        found.append(Predicate(column, "=", value))
    if not known or isinstance(kind, UUIDType | BooleanType):
        return found
    order = sorted(known, key=lambda value: value.encode() if isinstance(value, str) else value)
    found += [Predicate(column, operator, order[0]) for operator in ("<", "<=")]
    found.append(Predicate(column, "<", order[-1]))
    if not isinstance(kind, FloatType | DoubleType):
        found.append(Predicate(column, ">=", order[-1]))
    return found


def spark_literal(kind: IcebergType, value: Any) -> str:
    match kind:
        case BooleanType():
            return str(value).lower()
        case FloatType() | DoubleType():
            return f"CAST('{value!r}' AS {'FLOAT' if isinstance(kind, FloatType) else 'DOUBLE'})"
        case DecimalType():
            return f"CAST('{decimal.Decimal(value):f}' AS DECIMAL({kind.precision}, {kind.scale}))"
        case DateType():
            return f"DATE'{value.isoformat()}'"
        case TimestamptzType():
            return f"timestamp_micros({_micros(value)}L)"
        case StringType() if value.startswith(LONG):
            unit = f"CAST(X'{LONG_UNIT.encode().hex()}' AS STRING)"
            return f"concat(repeat({unit}, {LONG_TIMES}), {spark_literal(kind, value[len(LONG) :])})"
        case StringType():
            return f"CAST(X'{value.encode().hex()}' AS STRING)" if value else "''"
        case UUIDType():
            return f"'{value}'"
        case BinaryType() | FixedType():
            return f"X'{value.hex()}'"
        case _:
            return f"CAST('{value}' AS BIGINT)"


def clickhouse_literal(kind: IcebergType, value: Any) -> str:
    match kind:
        case BooleanType():
            return str(value).lower()
        case FloatType() | DoubleType():
            code, word, bits = ("f", "I", 32) if isinstance(kind, FloatType) else ("d", "Q", 64)
            return (
                f"reinterpretAsFloat{bits}(toUInt{bits}({struct.unpack(word, struct.pack(code, value))[0]}))"
            )
        case DecimalType():
            return f"CAST('{decimal.Decimal(value):f}', 'Decimal({kind.precision}, {kind.scale})')"
        case DateType():
            return f"toDate32('{value.isoformat()}')"
        case TimestamptzType():
            return f"fromUnixTimestamp64Micro(toInt64({_micros(value)}), 'UTC')"
        case StringType():
            return text_sql(value)
        case UUIDType():
            return f"toUUID('{value}')"
        case FixedType():
            return f"toFixedString(unhex('{value.hex()}'), {len(kind)})"
        case BinaryType():
            return f"unhex('{value.hex()}')"
        case _:
            return f"toInt64('{value}')"


# ---- the readers

Rows = dict[int, list[Any]]  # by id


@dataclass(frozen=True)
class Readers:
    """The three, over one place. A table is `lake.ns.<name>`; its first column is `id`."""

    place: Place
    spark: SparkCatalog

    def rows(self, name: str) -> dict[str, Rows]:
        """Every row by every reader."""
        schema = self.place.table(f"lake.ns.{name}").schema()
        return {
            "pyiceberg": _of_arrow(schema, self.place.read(f"lake.ns.{name}")),
            "clickhouse": _by_id(schema, self.place.read_by_clickhouse("*", f"lake.ns.{name}")),
            "spark": _of_arrow(schema, self.spark.query(f"SELECT * FROM lake.ns.{name}")),
        }

    def matches(self, name: str, predicates: Sequence[Predicate]) -> dict[str, list[list[int]]]:
        """The ids that fulfil each predicate, for each reader."""
        table = self.place.table(f"lake.ns.{name}")
        types = {field.name: field.field_type for field in table.schema().fields}
        location = table.location().removeprefix("file://")
        spark = self.spark.query(_union(predicates, types, f"lake.ns.{name}", spark=True)).to_pylist()
        union = _union(predicates, types, f"icebergLocal('{location}')", spark=False)
        clickhouse = self.place.select(f"SELECT * FROM ({union}) {_before_1970(table)}")
        return {
            "pyiceberg": [
                sorted(
                    table.scan(row_filter=one.expression(), selected_fields=("id",))
                    .to_arrow()["id"]
                    .to_pylist()
                )
                for one in predicates
            ],
            "clickhouse": _grouped(clickhouse, len(predicates)),
            "spark": _grouped(spark, len(predicates)),
        }

    def ids(self, name: str) -> dict[str, list[int]]:
        return {reader: sorted(rows) for reader, rows in self.rows(name).items()}


def _before_1970(table: Table) -> str:
    """ClickHouse takes the hour, day, month and year of a time before 1970 for 0 when it prunes, and misses
    the rows that have another in their partition; see the page about types."""
    places = [
        place for place, one in enumerate(table.spec().fields) if isinstance(one.transform, TimeTransform)
    ]
    values = [task.file.partition[place] for task in table.scan().plan_files() for place in places]
    pruned = any(value is not None and value < 0 for value in values)
    return "SETTINGS use_iceberg_partition_pruning = 0" if pruned else ""


def _union(predicates: Sequence[Predicate], types: dict[str, IcebergType], table: str, *, spark: bool) -> str:
    return " UNION ALL ".join(
        f"SELECT {place} AS k, id FROM {table} WHERE {one.sql(types[one.column], spark=spark)}"
        for place, one in enumerate(predicates)
    )


def _grouped(found: Iterable[dict[str, Any]], count: int) -> list[list[int]]:
    groups: list[list[int]] = [[] for _ in range(count)]
    for row in found:
        groups[row["k"]].append(row["id"])
    return [sorted(group) for group in groups]


def _of_arrow(schema: Schema, table: pa.Table) -> Rows:
    return _by_id(schema, table.to_pylist())


def _by_id(schema: Schema, rows: Iterable[dict[str, Any]]) -> Rows:
    found: Rows = {}
    for row in rows:
        assert row["id"] not in found, f"id {row['id']} came twice"
        found[row["id"]] = [plain(field.field_type, row[field.name]) for field in schema.fields]
    return found
