import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform, VoidTransform
from pyiceberg.types import (
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
    UUIDType,
)

from calve.clickhouse.sql.tokens import Call, Name, Number, expression, members
from calve.destination.plan import ColumnPlan
from calve.export.spec import (
    derive_sort_order,
    derive_spec,
    is_sorted_by,
    parse_partition_by,
    plan_spec,
)
from calve.model.errors import RefusedError, UsageError

SCHEMA = Schema(
    NestedField(1, "ts", TimestamptzType(), required=True),
    NestedField(2, "id", LongType(), required=True),
    NestedField(3, "country", StringType(), required=True),
    NestedField(4, "d", DateType(), required=True),
    NestedField(5, "u", UUIDType(), required=True),
    NestedField(6, "f", DoubleType(), required=True),
    NestedField(7, "ts_day", IntegerType(), required=True),
)
NAMES = {field.name: field.name for field in SCHEMA.fields} | {"co.untry": "country"}
TYPES = {
    "ts": "DateTime('UTC')",
    "id": "Int64",
    "country": "LowCardinality(String)",
    "d": "Date",
    "u": "UUID",
    "f": "Float64",
    "local": "DateTime",
    "e": "Enum8('a' = 1)",
}


def fields(spec: PartitionSpec) -> list[tuple[str, str]]:
    return [(field.name, str(field.transform)) for field in spec.fields]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("", []),
        ("tuple()", []),
        ("toYYYYMM(ts)", [("ts_month", "month")]),
        ("toStartOfMonth(ts)", [("ts_month", "month")]),
        ("toDate(ts)", [("ts_day_", "day")]),
        ("toYYYYMMDD(d)", [("d_day", "day")]),
        ("toStartOfDay(ts)", [("ts_day_", "day")]),
        ("toStartOfHour(ts)", [("ts_hour", "hour")]),
        ("toYear(d)", [("d_year", "year")]),
        ("country", [("country", "identity")]),
        ("`co.untry`", [("country", "identity")]),
        ("(toYYYYMM(ts), country)", [("ts_month", "month"), ("country", "identity")]),
        ("tuple(toYYYYMM(ts), id)", [("ts_month", "month"), ("id", "identity")]),
        ("icebergBucket(16, id)", [("id_bucket", "bucket[16]")]),
        ("icebergTruncate(4, country)", [("country_trunc", "truncate[4]")]),
    ],
)
def test_a_source_s_key_becomes_a_spec(key: str, expected: list[tuple[str, str]]) -> None:
    derived = derive_spec(key, NAMES, SCHEMA)
    assert fields(derived.spec) == expected and not derived.notes


@pytest.mark.parametrize(
    "key",
    [
        "intDiv(id, 10)",
        "id % 7",
        "toStartOfWeek(ts)",
        "(toYYYYMM(ts), cityHash64(id))",
        "toYYYYMM(ts, 'Asia/Tokyo')",
        "toYYYYMM(missing)",
        "toStartOfHour(d)",
        "toYYYYMM(ts) + 1",
    ],
)
def test_a_key_without_a_transform_gives_no_partitions_and_a_note(key: str) -> None:
    derived = derive_spec(key, NAMES, SCHEMA)
    assert derived.spec.is_unpartitioned()
    assert key in derived.notes[0] and "--partition-by" in derived.notes[0]


def test_partition_by_is_read_in_either_order_of_arguments() -> None:
    spec = parse_partition_by("day(ts), bucket(16, id), truncate(country, 3), hours(ts), u", SCHEMA)
    assert fields(spec) == [
        ("ts_day_", "day"),
        ("id_bucket", "bucket[16]"),
        ("country_trunc", "truncate[3]"),
        ("ts_hour", "hour"),
        ("u", "identity"),
    ]
    assert [field.field_id for field in spec.fields] == [1000, 1001, 1002, 1003, 1004]
    assert parse_partition_by("none", SCHEMA).is_unpartitioned()


@pytest.mark.parametrize(
    "text",
    ["day(nope)", "bucket(id)", "bucket(0, id)", "week(ts)", "day(id)", "truncate(2, f)", "id, id", "day(ts"],
)
def test_a_partition_by_that_cannot_be_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        parse_partition_by(text, SCHEMA)


def test_a_spec_whose_column_is_not_exported_is_refused_unless_void() -> None:
    column = ColumnPlan(
        name="id", source="id", source_type="Int64", select="`id`", field_id=2, type="long", required=True
    )
    by_day = PartitionSpec(PartitionField(source_id=1, field_id=1000, transform=DayTransform(), name="d"))
    with pytest.raises(RefusedError):
        plan_spec(by_day, SCHEMA, [column])
    void = PartitionSpec(
        PartitionField(source_id=1, field_id=1000, transform=VoidTransform(), name="v"),
        PartitionField(source_id=2, field_id=1001, transform=IdentityTransform(), name="id"),
    )
    assert [field.select for field in plan_spec(void, SCHEMA, [column])] == ["NULL", "`id`"]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("", []),
        ("(id, country)", [(2, "identity", "asc"), (3, "identity", "asc")]),
        ("id DESC, d", [(2, "identity", "desc"), (4, "identity", "asc")]),
        ("toStartOfHour(ts), id", [(1, "hour", "asc"), (2, "identity", "asc")]),
        ("id, u", [(2, "identity", "asc")]),  # UUIDs order differently
        ("f, id", []),  # NaNs do
        ("cityHash64(id), id", []),
        ("id, icebergBucket(4, id)", [(2, "identity", "asc")]),
    ],
)
def test_a_sort_order_is_the_prefix_that_both_agree_on(
    key: str, expected: list[tuple[int, str, str]]
) -> None:
    order = derive_sort_order(key, TYPES, NAMES, SCHEMA)
    found = [(field.source_id, str(field.transform), field.direction.name.lower()) for field in order.fields]
    assert found == expected


@pytest.mark.parametrize("kind", ["Nullable(Int64)", "Enum8('a' = 1)", "IPv4"])
def test_nulls_enums_and_addresses_end_a_sort_order(kind: str) -> None:
    assert not derive_sort_order("id", TYPES | {"id": kind}, NAMES, SCHEMA).fields


def test_days_of_another_zone_are_not_sorted_as_iceberg_s() -> None:
    for kind in ("DateTime", "DateTime('Asia/Tokyo')", "DateTime64(3)"):
        assert not derive_sort_order("toDate(ts)", TYPES | {"ts": kind}, NAMES, SCHEMA).fields


def test_a_file_is_sorted_by_a_prefix_of_its_key_only() -> None:
    long = derive_sort_order("(id, country)", TYPES, NAMES, SCHEMA)
    short = derive_sort_order("id", TYPES, NAMES, SCHEMA)
    assert is_sorted_by("(id, country)", TYPES, NAMES, SCHEMA, short)
    assert not is_sorted_by("id", TYPES, NAMES, SCHEMA, long)
    assert not is_sorted_by("id", TYPES, NAMES, SCHEMA, derive_sort_order("", TYPES, NAMES, SCHEMA))


def test_expressions_are_read_and_what_is_more_than_a_key_is_not() -> None:
    assert members("(a, f(b, 'x,y'))") == ["a", "f(b, 'x,y')"]
    assert members("(a), (b)") == ["(a)", "(b)"]
    assert expression("f(3, `a b`)") == Call("f", (Number(3), Name("a b")))
    assert expression("(a)") == Name("a")
    assert expression("n.a") == Name("n.a")
    assert expression("a + 1") is None
    assert expression("(a) + (b)") is None
