from dataclasses import dataclass

import pytest
from pyiceberg.types import ListType, MapType, StructType

from calve.export.choices import (
    Choices,
    NanosecondsAs,
    StringAs,
    UInt64As,
    UuidAs,
    WideIntegersAs,
)
from calve.export.columns import ColumnMapping, map_columns, raise_refusals
from calve.model.errors import RefusedError, UsageError


@dataclass(frozen=True)
class Column:
    name: str
    type: str
    default_kind: str = ""


def mapped(*columns: Column, **choices: object) -> ColumnMapping:
    return map_columns(columns, Choices(**choices))  # type: ignore[arg-type]


def one(kind: str, **choices: object) -> tuple[str, bool]:
    mapping = mapped(Column("c", kind), **choices)
    assert not mapping.refusals, mapping.refusals
    (column,) = mapping.columns
    return str(column.type), column.required


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("Bool", "boolean"),
        ("Int8", "int"),
        ("Int16", "int"),
        ("Int32", "int"),
        ("Int64", "long"),
        ("UInt8", "int"),
        ("UInt16", "int"),
        ("UInt32", "long"),
        ("UInt64", "decimal(20, 0)"),
        ("Float32", "float"),
        ("Float64", "double"),
        ("BFloat16", "float"),
        ("Decimal(9, 2)", "decimal(9, 2)"),
        ("Decimal(38, 10)", "decimal(38, 10)"),
        ("String", "string"),
        ("FixedString(16)", "fixed[16]"),
        ("Date", "date"),
        ("Date32", "date"),
        ("DateTime", "timestamptz"),
        ("DateTime('Asia/Tokyo')", "timestamptz"),
        ("DateTime64(0)", "timestamptz"),
        ("DateTime64(6, 'UTC')", "timestamptz"),
        ("Time", "string"),
        ("Time64(3)", "string"),
        ("UUID", "uuid"),
        ("Enum8('a' = 1)", "string"),
        ("Enum16('a' = 1000)", "string"),
        ("IPv4", "string"),
        ("IPv6", "string"),
        ("LowCardinality(String)", "string"),
        ("SimpleAggregateFunction(sum, UInt32)", "long"),
        ("JSON", "string"),
        ("Array(UInt8)", "list<int>"),
        ("Map(LowCardinality(String), Array(Int64))", "map<string, list<long>>"),
        ("Ring", "list<struct<-1: _1: required double, -1: _2: required double>>"),
    ],
)
def test_every_type_has_one_home(kind: str, expected: str) -> None:
    assert one(kind) == (expected, True)


@pytest.mark.parametrize(
    "kind",
    ["Nullable(Int32)", "LowCardinality(Nullable(String))", "Variant(String, UInt64)", "Dynamic"],
)
def test_what_may_be_null_is_optional_and_all_else_required(kind: str) -> None:
    assert one(kind)[1] is False


def test_nested_types_keep_names_and_nullability_at_any_depth() -> None:
    mapping = mapped(Column("c", "Array(Tuple(a Nullable(Int8), b Map(String, Nullable(UInt64))))"))
    outer = mapping.schema.find_field("c").field_type
    assert isinstance(outer, ListType) and outer.element_required
    struct = outer.element_type
    assert isinstance(struct, StructType)
    assert [(field.name, field.required) for field in struct.fields] == [("a", False), ("b", True)]
    inner = struct.fields[1].field_type
    assert isinstance(inner, MapType) and not inner.value_required
    assert len(set(mapping.schema.field_ids)) == len(mapping.schema.field_ids)


def test_tuples_without_names_get_names_that_every_reader_takes() -> None:
    assert one("Tuple(Int32, String)")[0] == "struct<-1: _1: required int, -1: _2: required string>"


def test_choices_change_what_a_type_becomes() -> None:
    assert one("UInt64", uint64=UInt64As.LONG)[0] == "long"
    assert one("UUID", uuid=UuidAs.STRING)[0] == "string"
    assert one("String", strings=StringAs.BINARY)[0] == "binary"
    assert one("DateTime64(9)", nanoseconds=NanosecondsAs.TRUNCATE)[0] == "timestamptz"
    assert one("Int256", wide_integers=WideIntegersAs.DECIMAL)[0] == "decimal(38, 0)"
    assert one("Array(UInt64)", uint64=UInt64As.LONG)[0] == "list<long>"


@pytest.mark.parametrize(
    ("kind", "cast", "expected"),
    [
        ("UInt64", "long", "long"),
        ("Int128", "decimal(38,0)", "decimal(38, 0)"),
        ("Int128", "string", "string"),
        ("String", "binary", "binary"),
        ("DateTime64(9)", "timestamptz", "timestamptz"),
        ("Array(Tuple(Int8))", "string", "string"),
        ("IntervalDay", "long", "long"),
        ("String", "date", "date"),
    ],
)
def test_a_cast_decides_for_one_column(kind: str, cast: str, expected: str) -> None:
    assert one(kind, casts={"c": cast})[0] == expected


@pytest.mark.parametrize(
    "kind",
    [
        "Int128",
        "UInt256",
        "Decimal(76, 2)",
        "DateTime64(9)",
        "AggregateFunction(sum, UInt64)",
        "Nothing",
        "IntervalDay",
        "Array(Nullable(Nothing))",
        "Map(String, AggregateFunction(uniq, String))",
        "Object('json')",
        "TypeOfTomorrow(1, 'x')",
    ],
)
def test_what_has_no_home_is_refused_with_a_way_out(kind: str) -> None:
    mapping = mapped(Column("c", kind), Column("d", "Int8"))
    (refusal,) = mapping.refusals
    assert refusal.column == "c"
    assert "c" in refusal.hint and refusal.hint.startswith("--")
    assert [column.name for column in mapping.columns] == ["d"]


def test_all_refusals_come_in_one_list() -> None:
    mapping = mapped(
        Column("a", "Int128"),
        Column("b", "AggregateFunction(sum, UInt64)"),
        Column("c", "String"),
        casts={"c": "nonsense", "z": "long"},
        exclude=frozenset({"y"}),
    )
    assert sorted(refusal.column for refusal in mapping.refusals) == ["a", "b", "c", "y", "z"]
    with pytest.raises(UsageError) as error:
        raise_refusals("db.t", mapping.refusals)
    assert all(f"\n  {name}: " in error.value.message for name in "abcyz")


def test_an_impossible_cast_is_refused() -> None:
    (refusal,) = mapped(Column("c", "UUID"), casts={"c": "long"}).refusals
    assert "UUID cannot be written as long" in refusal.reason


def test_alias_and_ephemeral_are_left_out_materialized_and_default_are_not() -> None:
    mapping = mapped(
        Column("a", "Int8"),
        Column("b", "Int8", "ALIAS"),
        Column("c", "Int8", "EPHEMERAL"),
        Column("d", "Int8", "MATERIALIZED"),
        Column("e", "Int8", "DEFAULT"),
    )
    assert [column.name for column in mapping.columns] == ["a", "d", "e"]
    assert len(mapping.notes) == 2


def test_excluded_columns_are_gone_and_a_table_of_none_is_refused() -> None:
    mapping = mapped(Column("a", "Int128"), Column("b", "Int8"), exclude=frozenset({"a"}))
    assert [column.name for column in mapping.columns] == ["b"] and not mapping.refusals
    assert mapped(Column("a", "Int8"), exclude=frozenset({"a"})).refusals


def test_flattened_nested_columns_become_one_list_of_structs() -> None:
    mapping = mapped(
        Column("id", "Int8"), Column("n.a", "Array(UInt8)"), Column("n.b", "Array(Nullable(String))")
    )
    assert [column.name for column in mapping.columns] == ["id", "n"]
    assert str(mapping.columns[1].type) == "list<struct<-1: a: required int, -1: b: optional string>>"


def test_names_have_no_dots_and_may_not_meet() -> None:
    mapping = mapped(Column("a.b", "Int8"), Column("a_b", "Int8"))
    assert [refusal.column for refusal in mapping.refusals] == ["a.b", "a_b"]
    alone = mapped(Column("a.b", "Int8"))
    assert alone.columns[0].name == "a_b" and alone.notes


def test_a_refusal_that_no_command_can_mend_is_of_the_data() -> None:
    from calve.export.columns import Refusal

    with pytest.raises(RefusedError):
        raise_refusals("t", [Refusal(column="c", reason="r", usage=False)])
    raise_refusals("t", [])
