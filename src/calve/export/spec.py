"""Partition specs and sort orders: derived from ClickHouse's keys, or as a person asked.

The source's key decides only what a new table gets. Rows are filed by the destination's
spec, whatever the source's key is (P13).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
    UUIDType,
)

from calve.clickhouse.sql import types
from calve.clickhouse.sql.tokens import Call, Expression, Name, Number, Text, expression, members
from calve.destination.plan import ColumnPlan, SpecField
from calve.export.transforms import transform_sql, unfit
from calve.model.errors import RefusedError, UsageError

AnyTransform = Transform[Any, Any]
_Time = Callable[[], AnyTransform]
_HOUR: _Time = HourTransform
_DAY: _Time = DayTransform
_MONTH: _Time = MonthTransform
_YEAR: _Time = YearTransform
_OF_CLICKHOUSE: Mapping[str, _Time] = {
    "toYYYYMM": _MONTH,
    "toStartOfMonth": _MONTH,
    "toDate": _DAY,
    "toDate32": _DAY,
    "toYYYYMMDD": _DAY,
    "toStartOfDay": _DAY,
    "toStartOfHour": _HOUR,
    "toYear": _YEAR,
    "toStartOfYear": _YEAR,
    "toRelativeHourNum": _HOUR,
    "toRelativeDayNum": _DAY,
    "toRelativeMonthNum": _MONTH,
    "toRelativeYearNum": _YEAR,
    "toMonthNumSinceEpoch": _MONTH,
    "toYearNumSinceEpoch": _YEAR,
}
_OF_ICEBERG: Mapping[str, _Time] = {
    "year": _YEAR,
    "years": _YEAR,
    "month": _MONTH,
    "months": _MONTH,
    "day": _DAY,
    "days": _DAY,
    "hour": _HOUR,
    "hours": _HOUR,
    "identity": IdentityTransform,
}
_EXAMPLE = '--partition-by "day(ts), bucket(16, id), country"'


@dataclass(frozen=True, kw_only=True)
class DerivedSpec:
    spec: PartitionSpec
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Member:
    column: str
    transform: AnyTransform


# ---- specs


def derive_spec(partition_key: str, names: Mapping[str, str], schema: Schema) -> DerivedSpec:
    """The spec that keeps the source's partitions, or none, with a note why.

    `names` maps source columns to the destination's. A key of which only some members are
    understood gives no spec: half a key would make few, arbitrary partitions.
    """
    found: list[_Member] = []
    for text in members(partition_key):
        member = _of_clickhouse(expression(text))
        if member is None or not _fits(member, names, schema):
            note = f"the partition key {partition_key} has no Iceberg transform: the table is unpartitioned"
            return DerivedSpec(spec=PartitionSpec(), notes=(f"{note}; choose one with --partition-by",))
        found.append(member)
    renamed = [_Member(names[member.column], member.transform) for member in found]
    return DerivedSpec(spec=_spec(renamed, schema))


def parse_partition_by(text: str, schema: Schema) -> PartitionSpec:
    """`--partition-by`: names of the destination's columns; "" or "none" for no partitions."""
    if text.strip().lower() in ("", "none"):
        return PartitionSpec()
    given = [(part, _of_iceberg(expression(part))) for part in members(text)]
    found = [member for _, member in given if member is not None]
    strange = [f"invalid partition field {part!r}" for part, member in given if member is None]
    absent = [
        f"there is no exported column {one.column!r}" for one in found if _field(schema, one.column) is None
    ]
    if strange or absent:
        columns = f"columns: {', '.join(field.name for field in schema.fields)}"
        raise UsageError(
            f"--partition-by: {'; '.join(strange + absent)}",
            code="partition_by",
            hint="; ".join([_EXAMPLE] * bool(strange) + [columns] * bool(absent)),
        )
    return _spec(found, schema)


def plan_spec(spec: PartitionSpec, schema: Schema, columns: Sequence[ColumnPlan]) -> tuple[SpecField, ...]:
    """The fields of a table's spec with the SQL of their values. Refuses what cannot be computed."""
    selects = {column.field_id: column.select for column in columns}
    planned = []
    for item in spec.fields:
        if isinstance(item.transform, VoidTransform):
            select = "NULL"
        elif item.source_id in selects:
            kind = schema.find_field(item.source_id).field_type
            select = transform_sql(item.transform, kind, selects[item.source_id])
        else:
            raise RefusedError(
                f"the table is partitioned by {item.name}, which comes of no exported column",
                code="partition_source_missing",
                hint="export the column that the partition is made of",
            )
        planned.append(
            SpecField(
                field_id=item.field_id,
                source_id=item.source_id,
                name=item.name,
                transform=str(item.transform),
                select=select,
            )
        )
    return tuple(planned)


def _of_clickhouse(expression: Expression | None) -> _Member | None:
    match expression:
        case Name(name):
            return _Member(name, IdentityTransform())
        case Call(function, (Name(name), *zone)) if function in _OF_CLICKHOUSE and _is_utc(zone):
            return _Member(name, _OF_CLICKHOUSE[function]())
        case Call("icebergBucket", (Number(buckets), Name(name))) if buckets > 0:
            return _Member(name, BucketTransform(buckets))
        case Call("icebergTruncate", (Number(width), Name(name))) if width > 0:
            return _Member(name, TruncateTransform(width))
        case _:
            return None


def _is_utc(zone: Sequence[Expression | None]) -> bool:
    return not zone or list(zone) == [Text("UTC")]


def _of_iceberg(expression: Expression | None) -> _Member | None:
    match expression:
        case Name(name):
            return _Member(name, IdentityTransform())
        case Call(function, (Name(name),)) if function.lower() in _OF_ICEBERG:
            return _Member(name, _OF_ICEBERG[function.lower()]())
        case Call(function, (Number(number), Name(name)) | (Name(name), Number(number))) if number > 0:
            match function.lower():
                case "bucket":
                    return _Member(name, BucketTransform(number))
                case "truncate":
                    return _Member(name, TruncateTransform(number))
    return None


def _fits(member: _Member, names: Mapping[str, str], schema: Schema) -> bool:
    field = _field(schema, names.get(member.column, ""))
    if field is None or _breaks_clickhouse(member.transform, field.field_type):
        return False
    return _computable(member.transform, field.field_type)


def _computable(transform: AnyTransform, kind: IcebergType) -> bool:
    try:
        transform_sql(transform, kind, "c")
    except UsageError:
        return False
    return kind.is_primitive and not _breaks_spark(transform, kind)


def _breaks_spark(transform: AnyTransform, kind: IcebergType) -> bool:
    """Iceberg's Java runtime (1.11, tried) cannot read a manifest with partition values of type fixed:
    one such file, and Spark no longer reads the table at all."""
    return isinstance(transform, IdentityTransform) and isinstance(kind, FixedType)


def _breaks_clickhouse(transform: AnyTransform, kind: IcebergType) -> bool:
    """ClickHouse's own reader (26.9, tried) cannot read a table with partition values of type uuid. A
    person may ask for them all the same."""
    return isinstance(transform, IdentityTransform) and isinstance(kind, UUIDType)


def _field(schema: Schema, name: str) -> NestedField | None:
    return next((field for field in schema.fields if field.name == name), None)


def _spec(found: Sequence[_Member], schema: Schema) -> PartitionSpec:
    fields: list[PartitionField] = []
    taken = {field.name for field in schema.fields}
    for place, member in enumerate(found):
        source = _field(schema, member.column)
        assert source is not None, member
        if _breaks_spark(member.transform, source.field_type):
            raise UsageError(
                f"Spark cannot read a table that is partitioned by values of type {source.field_type}",
                code="partition_by",
                hint=f'--partition-by "bucket(16, {member.column})", or --cast {member.column}=binary',
            )
        if not _computable(member.transform, source.field_type):
            raise unfit(member.transform, source.field_type)
        identity = isinstance(member.transform, IdentityTransform)
        name = member.column if identity else _field_name(member, taken)
        if any(field.name == name for field in fields):
            raise UsageError(f"the partition field {name} is given twice", code="partition_by", hint=_EXAMPLE)
        fields.append(
            PartitionField(
                source_id=source.field_id,
                field_id=PARTITION_FIELD_ID_START + place,
                transform=member.transform,
                name=name,
            )
        )
    return PartitionSpec(*fields)


def _field_name(member: _Member, taken: set[str]) -> str:
    """Iceberg's usual name; another where a column has it already."""
    kind = str(member.transform).partition("[")[0]
    suffix = {"truncate": "trunc"}.get(kind, kind)
    name = f"{member.column}_{suffix}"
    while name in taken:
        name += "_"
    return name


# ---- sort orders


def derive_sort_order(
    sorting_key: str, source_types: Mapping[str, str], names: Mapping[str, str], schema: Schema
) -> SortOrder:
    """The longest prefix of the sorting key whose order ClickHouse and Iceberg agree on."""
    fields = []
    for text in members(sorting_key):
        member, direction = _sorted_member(text)
        field = _field(schema, names.get(member.column, "")) if member else None
        if member is None or field is None or not _same_order(source_types[member.column], field):
            break
        if not _keeps_order(member.transform, source_types[member.column]):
            break
        fields.append(
            SortField(
                source_id=field.field_id,
                transform=member.transform,
                direction=direction,
                null_order=NullOrder.NULLS_FIRST if direction is SortDirection.ASC else NullOrder.NULLS_LAST,
            )
        )
    return SortOrder(*fields)


def is_sorted_by(
    sorting_key: str,
    source_types: Mapping[str, str],
    names: Mapping[str, str],
    schema: Schema,
    order: SortOrder,
) -> bool:
    """Whether rows of one part, in their order, are sorted by a table's sort order."""
    derived = derive_sort_order(sorting_key, source_types, names, schema)
    wanted = [(field.source_id, str(field.transform), field.direction) for field in order.fields]
    given = [(field.source_id, str(field.transform), field.direction) for field in derived.fields]
    return bool(wanted) and given[: len(wanted)] == wanted


def _sorted_member(text: str) -> tuple[_Member | None, SortDirection]:
    plain, direction = text, SortDirection.ASC
    words = text.rsplit(None, 1)
    if len(words) == 2 and words[1].upper() in ("ASC", "DESC"):
        plain = words[0]
        direction = SortDirection.DESC if words[1].upper() == "DESC" else SortDirection.ASC
    return _of_clickhouse(expression(plain)), direction


def _keeps_order(transform: AnyTransform, source_type: str) -> bool:
    """ClickHouse's `toDate` and its like count in the column's zone, Iceberg's in UTC."""
    kind = types.strip_wrappers(types.parse(source_type))
    match transform:
        case IdentityTransform():
            return True
        case YearTransform() | MonthTransform() | DayTransform() | HourTransform():
            dates = (types.Simple("Date"), types.Simple("Date32"), types.DateTime("UTC"))
            return kind in dates or (isinstance(kind, types.DateTime64) and kind.zone == "UTC")
        case _:
            return False


def _same_order(source_type: str, field: NestedField) -> bool:
    """NULLs, NaNs, UUIDs, enums, addresses and what was cast from text order differently."""
    kind = types.parse(source_type)
    stored = types.strip_wrappers(kind)
    integer = isinstance(stored, types.Simple) and stored.name in types.INTEGERS
    if types.is_nullable(kind):
        return False
    match field.field_type:
        case StringType() | BinaryType():
            return stored == types.Simple("String")
        case IntegerType() | LongType():
            return integer
        case DecimalType():
            return integer or isinstance(stored, types.Decimal)
        case DateType():
            return stored in (types.Simple("Date"), types.Simple("Date32"))
        case TimestamptzType():
            return isinstance(stored, types.DateTime | types.DateTime64)
        case FixedType():
            return isinstance(stored, types.FixedString)
        case _:
            return False
