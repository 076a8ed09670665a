from dataclasses import dataclass

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
)

from calve.export.choices import Choices
from calve.export.columns import map_columns
from calve.export.layout import Match, match_schema


@dataclass(frozen=True)
class Column:
    name: str
    type: str
    default_kind: str = ""


def schema(*fields: tuple[str, IcebergType] | tuple[str, IcebergType, bool]) -> Schema:
    return Schema(
        *(
            NestedField(100 + place, field[0], field[1], required=len(field) > 2)
            for place, field in enumerate(fields)
        )
    )


def matched(table: Schema, *columns: Column, evolve: bool = False, **choices: object) -> Match:
    return match_schema(map_columns(columns, Choices(**choices)), table, evolve=evolve)  # type: ignore[arg-type]


def test_P5_columns_are_matched_by_name_never_by_position() -> None:
    match = matched(
        schema(("b", StringType()), ("a", StringType())), Column("a", "String"), Column("b", "String")
    )
    assert not match.refusals
    assert {(plan.name, plan.select, plan.field_id) for plan in match.columns} == {
        ("a", "`a`", 101),
        ("b", "`b`", 100),
    }


def test_P5_fields_of_structs_are_matched_by_name_too() -> None:
    table = StructType(
        NestedField(7, "y", IntegerType(), required=False), NestedField(8, "x", IntegerType(), required=False)
    )
    match = matched(schema(("t", table)), Column("t", "Tuple(x Int32, y Int32)"))
    (plan,) = match.columns
    assert plan.select.startswith("CAST(tuple(tupleElement(`t`, 2), tupleElement(`t`, 1))")


@pytest.mark.parametrize(
    ("source", "existing"),
    [
        ("Int32", LongType()),
        ("Float32", DoubleType()),
        ("Decimal(9, 2)", DecimalType(18, 2)),
        ("Array(Int32)", ListType(1, LongType(), False)),
        ("UInt64", DecimalType(38, 0)),
    ],
)
def test_types_are_widened_where_iceberg_allows_it(source: str, existing: IcebergType) -> None:
    assert not matched(schema(("c", existing)), Column("c", source)).refusals


@pytest.mark.parametrize(
    ("source", "existing"),
    [
        ("Int64", IntegerType()),
        ("Float64", LongType()),
        ("Decimal(9, 2)", DecimalType(9, 3)),
        ("UInt64", LongType()),
        ("String", LongType()),
        ("Array(Nullable(Int32))", ListType(1, IntegerType(), True)),
        ("Tuple(a Int32)", StructType(NestedField(1, "b", IntegerType(), required=False))),
    ],
)
def test_types_that_do_not_fit_are_refused(source: str, existing: IcebergType) -> None:
    (refusal,) = matched(schema(("c", existing)), Column("c", source)).refusals
    assert refusal.column == "c" and "c" in refusal.hint


def test_a_refused_type_names_the_cast_that_would_fit() -> None:
    (refusal,) = matched(schema(("c", LongType())), Column("c", "UInt64")).refusals
    assert "--cast c='long'" in refusal.hint
    assert not matched(schema(("c", LongType())), Column("c", "UInt64"), casts={"c": "long"}).refusals


def test_a_nullable_column_does_not_go_into_a_required_one() -> None:
    (refusal,) = matched(schema(("c", LongType(), True)), Column("c", "Nullable(Int64)")).refusals
    assert "required" in refusal.reason


def test_missing_extra_and_unfit_columns_are_refused_in_one_list() -> None:
    table = schema(("a", StringType()), ("only_there", StringType()), ("must", LongType(), True))
    match = matched(table, Column("a", "Int8"), Column("only_here", "Int8"))
    assert sorted(refusal.column for refusal in match.refusals) == ["a", "must", "only_here", "only_there"]


def test_evolve_adds_what_lacks_and_leaves_the_rest_null() -> None:
    table = schema(("only_there", StringType()))
    match = matched(table, Column("new", "Int8"), evolve=True)
    assert not match.refusals
    assert [column.name for column in match.lacking] == ["new"]
    required = matched(schema(("must", LongType(), True)), Column("new", "Int8"), evolve=True)
    assert not required.refusals
    assert [(field.name, field.required) for field in required.widened] == [("must", False)]


def test_evolve_does_not_make_a_column_optional_that_identifies_rows() -> None:
    table = Schema(NestedField(1, "must", LongType(), required=True), identifier_field_ids=[1])
    [refusal] = matched(table, Column("new", "Int8"), evolve=True).refusals
    assert not refusal.usage and refusal.hint == "if it was renamed at the source: --rename must=new"


def test_a_column_of_another_type_is_not_taken_for_a_renamed_one() -> None:
    table = schema(("old", StringType()))
    hints = [refusal.hint for refusal in matched(table, Column("new", "Int8")).refusals]
    assert hints == ["--evolve adds new; --exclude new leaves it out", "--evolve leaves old null"]


def test_an_excluded_column_may_stay_empty_in_the_table() -> None:
    table = schema(("a", LongType()), ("b", LongType()))
    columns = (Column("a", "Int64"), Column("b", "Int64"))
    assert not matched(table, *columns, exclude=frozenset({"b"})).refusals
