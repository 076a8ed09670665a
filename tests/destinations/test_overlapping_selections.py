"""D8: only parts whose blocks do not meet are known to hold different rows."""

import json

import pytest

from calve.destination.content import block_ranges, disjoint
from calve.model.reach import meet, piece_of, whole_of

WHOLE = "0123456789abcdef" * 2


def parts(*names: str, **more: object) -> str:
    return json.dumps({"parts": list(names), **more})


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (parts("202401_1_1_0"), parts("202401_2_2_0"), True),
        (parts("202401_1_1_0"), parts("202401_2_2_0", "202401_3_9_1"), True),
        (parts("202401_1_1_0", where="id < 5"), parts("202401_2_2_0"), True),
        (parts("202401_1_1_0"), parts("202401_1_1_0_7"), False),
        (parts("202401_1_1_0"), parts("202401_1_3_1"), False),
        (parts("202401_4_6_1"), parts("202401_5_5_0"), False),
        (parts("202401_1_1_0"), "", False),
        (parts("202401_1_1_0"), json.dumps({"where": "id < 5"}), False),
        (parts("202401_1_1_0", final=True), parts("202401_2_2_0"), False),
        (parts("20240101_20240131_1_1_0"), parts("20240101_20240131_2_2_0"), False),
        (parts("of no form"), parts("202401_2_2_0"), False),
    ],
)
def test_D8_selections_are_disjoint_only_where_it_is_proven(one: str, other: str, expected: bool) -> None:
    assert disjoint(one, other) is disjoint(other, one) is expected


def test_the_blocks_of_a_selection_are_those_of_its_parts() -> None:
    assert block_ranges(parts("all_1_1_0", "all_2_5_1_9")) == [(1, 1), (2, 5)]
    assert block_ranges("") is None


def test_D8_locks_meet_as_the_selections_do() -> None:
    first, second, across = piece_of(WHOLE, 1, 1), piece_of(WHOLE, 2, 5), piece_of(WHOLE, 5, 7)
    assert {whole_of(one) for one in (WHOLE, first, second)} == {WHOLE}
    assert not meet(first, second) and not meet(first, across)
    assert meet(second, across) and meet(first, first)
    assert all(meet(WHOLE, piece) and meet(piece, WHOLE) for piece in (first, second, across))
    assert not meet(first, piece_of("f" * 32, 1, 1))


def test_a_name_that_only_looks_like_a_piece_is_a_whole() -> None:
    """A backup may be called anything."""
    assert whole_of("backup s3://b a#1-2") == "backup s3://b a#1-2"
    assert not meet("backup s3://b a#1-2", "backup s3://b a#1-3")
