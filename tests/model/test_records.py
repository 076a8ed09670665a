"""Records: read by other versions than wrote them, and never half."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import pytest

from calve.model.errors import DamagedError
from calve.model.process import ProcessId
from calve.model.record import SPACED, Record, loads


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, kw_only=True)
class Leaf:
    name: str
    size: int = 0


@dataclass(frozen=True, kw_only=True)
class Tree(Record):
    id: ProcessId
    leaves: tuple[Leaf, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()
    by_id: Mapping[int, str] = field(default_factory=dict)
    by_name: Mapping[str, Leaf] = field(default_factory=dict)
    colour: Colour = Colour.RED
    grown_at: datetime | None = None
    only: Leaf | None = None
    seconds: float = 0.0
    words: frozenset[str] = frozenset()
    partition: tuple[Any, ...] = ()


WHOLE = Tree(
    id=ProcessId("p"),
    leaves=(Leaf(name="a", size=2**40), Leaf(name="b")),
    spans=((0, 3), (3, 9)),
    by_id={2: "two", 10: "ten"},
    by_name={"x": Leaf(name="x")},
    grown_at=datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC),
    only=Leaf(name="o"),
    seconds=1.5,
    words=frozenset({"b", "a"}),
    partition=(None, 1, "1.50", True),
)


def test_a_record_reads_back_equal() -> None:
    assert Tree.from_json(WHOLE.to_json()) == WHOLE
    assert Tree.from_json(WHOLE.to_json().encode()) == WHOLE


def test_numbers_as_keys_sort_as_numbers() -> None:
    assert '"by_id":{"2":"two","10":"ten"}' in WHOLE.to_json()


def test_L12_fields_of_a_newer_version_are_ignored_at_every_depth() -> None:
    data = json.loads(WHOLE.to_json())
    for part in (data, data["leaves"][0], data["by_name"]["x"], data["only"]):
        part["added_later"] = {"any": ["thing"]}
    assert Tree.from_json(json.dumps(data)) == WHOLE


def test_L12_fields_that_an_older_version_did_not_have_get_their_defaults() -> None:
    assert Tree.from_json('{"id": "p", "leaves": [{"name": "a"}]}') == Tree(
        id=ProcessId("p"), leaves=(Leaf(name="a"),)
    )


def test_null_is_the_default_where_a_value_was_expected() -> None:
    assert Tree.from_json('{"id": "p", "leaves": null, "colour": null}') == Tree(id=ProcessId("p"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expecting value"),
        ("{", "Expecting"),
        ("[]", "an object was expected, not list"),
        ("{}", "id is missing"),
        ('{"id": null}', "id: str was expected, not null"),
        ('{"id": "p", "leaves": [{"name": "a"}, {"size": 1}]}', r"leaves: \[1\] name is missing"),
        ('{"id": "p", "leaves": {"name": "a"}}', "leaves: a list was expected, not dict"),
        ('{"id": "p", "leaves": [{"name": "a", "size": "big"}]}', "size: int was expected, not str"),
        ('{"id": "p", "leaves": [{"name": "a", "size": true}]}', "size: int was expected, not bool"),
        ('{"id": "p", "spans": [[1, 2, 3]]}', r"spans: \[0\] a list of 2 was expected"),
        ('{"id": "p", "by_id": {"two": "x"}}', "by_id: invalid literal"),
        ('{"id": "p", "colour": "blue"}', "colour: invalid Colour"),
        ('{"id": "p", "grown_at": "yesterday"}', "grown_at: invalid datetime"),
    ],
)
def test_T10_what_is_damaged_says_which_object_and_where_in_it(text: str, why: str) -> None:
    with pytest.raises(DamagedError, match=why) as met:
        Tree.from_json(text, "s3://lake/receipt.json")
    assert met.value.message.startswith("s3://lake/receipt.json cannot be read: ")
    assert (met.value.code, met.value.retryable) == ("damaged", False)


def test_an_error_about_a_record_shows_no_value_of_it() -> None:
    with pytest.raises(DamagedError) as met:
        Tree.from_json('{"id": 4711}')
    assert "4711" not in met.value.message


def test_the_layout_of_a_record_is_its_own() -> None:
    @dataclass(frozen=True)
    class Asked(Record, layout=SPACED):
        b: int
        a: int

    assert Asked(b=1, a=2).to_json() == '{"a": 2, "b": 1}'


def test_values_that_are_no_dataclass_are_read_by_their_type_as_well() -> None:
    assert loads(tuple[Leaf, ...], '[{"name": "a", "more": 1}]', "locks") == (Leaf(name="a"),)
    assert loads(tuple[str, ...], '["a"]', "needs") == ("a",)
