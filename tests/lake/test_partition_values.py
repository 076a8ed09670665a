"""Partition values survive the way through a receipt, whatever they are."""

import json
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as some
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestamptzType,
    UUIDType,
)

from calve.destination.description import from_json, to_json
from calve.model.errors import PermanentError

VALUES: list[tuple[IcebergType, some.SearchStrategy[Any]]] = [
    (BooleanType(), some.booleans()),
    (IntegerType(), some.integers(-(2**31), 2**31 - 1)),
    (LongType(), some.integers(-(2**63), 2**63 - 1)),
    (DateType(), some.integers(-700_000, 3_000_000)),
    (TimestamptzType(), some.integers(-(2**60), 2**60)),
    (DoubleType(), some.floats()),
    (DecimalType(20, 4), some.decimals(allow_nan=False, allow_infinity=False, places=4)),
    (StringType(), some.text()),
    (UUIDType(), some.uuids()),
    (BinaryType(), some.binary()),
    (FixedType(3), some.binary(min_size=3, max_size=3)),
]


@given(some.one_of(*(some.tuples(some.just(kind), some.none() | values) for kind, values in VALUES)))
def test_a_value_is_the_same_after_json(case: tuple[IcebergType, Any]) -> None:
    kind, value = case
    found = from_json(kind, json.loads(json.dumps(to_json(kind, value), allow_nan=False)))
    assert found == value or (value != value and found != found)
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (IntegerType(), "1"),
        (IntegerType(), True),
        (BooleanType(), 1),
        (StringType(), 7),
        (DecimalType(9, 2), "x"),
        (UUIDType(), "../../x"),
        (BinaryType(), "zz"),
    ],
)
def test_a_value_of_another_type_is_refused(kind: IcebergType, value: object) -> None:
    with pytest.raises(PermanentError, match="is no"):
        from_json(kind, value)


def test_forms_are_those_the_documentation_states() -> None:
    assert to_json(DecimalType(9, 2), Decimal("12.30")) == "12.30"
    assert to_json(DoubleType(), float("-inf")) == "-Infinity"
    assert to_json(BinaryType(), b"\x00\xff") == "00ff"
    text = "f79c3e09-677c-4bbd-a479-3f349cb785e7"
    assert to_json(UUIDType(), UUID(text)) == text
