"""Which parts can be a merge of which: the marks that content ids carry."""

import pytest

from calve.destination.content import MOST_MARKS, PartMark, marked, merged_since, parts_gone, unchanged


def part(text: str, rows: int = 10, digest: str = "f00") -> PartMark:
    """From `1-3-1` or, mutated, `1-3-1-7`."""
    low, high, level, *mutation = map(int, text.split("-"))
    return PartMark(
        min_block=low,
        max_block=high,
        level=level,
        mutation=mutation[0] if mutation else 0,
        rows=rows,
        hash=digest,
    )


def same(before: list[PartMark], after: list[PartMark]) -> bool:
    return unchanged(marked("c1-x", before), marked("c1-x", after))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([part("1-1-0"), part("2-2-0")], [part("2-2-0"), part("1-1-0")]),
        ([part("1-1-0"), part("3-3-0")], [part("1-3-1", 20)]),
        ([part("1-1-0"), part("3-3-0"), part("5-5-0")], [part("1-3-1", 20), part("5-5-0")]),
        ([part("1-3-1", 20)], [part("1-3-2", 20)]),
        ([part("1-1-0-4"), part("6-6-0")], [part("1-6-1-4", 15)]),
        ([part("1-1-0-4"), part("2-2-0-4"), part("3-3-0-4")], [part("1-1-0-4"), part("3-3-0-4")]),
        ([part("1-1-0", digest="")], [part("1-1-0", digest="fab")]),
        ([part("1-1-0", digest="sab")], [part("1-1-0", digest="fab")]),
    ],
    ids=["order", "a-merge", "a-merge-of-some", "merged-again", "deleted-rows-dropped", "empty-part-taken-away",
         "hash-unknown", "hashes-of-two-kinds"],
)  # fmt: skip
def test_what_a_merge_can_do_is_no_change(before: list[PartMark], after: list[PartMark]) -> None:
    assert same(before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([part("1-1-0")], [part("1-1-0", digest="f01")]),
        ([part("1-1-0")], [part("1-1-0", 11)]),
        ([part("1-2-1", 20)], [part("1-1-0"), part("2-2-0")]),
        ([part("1-1-0"), part("2-2-0")], [part("1-2-1", 21)]),
        ([part("1-1-0"), part("2-2-0")], [part("1-2-1", 19)]),
        ([part("1-2-1", 20), part("3-3-0")], [part("1-3-1", 30)]),
        ([part("1-1-0"), part("2-2-0")], [part("1-1-0")]),
        ([part("1-1-0")], [part("1-1-0"), part("2-2-0")]),
        ([part("1-1-0-5"), part("2-2-0")], [part("1-1-0-5"), part("2-2-0-5", digest="f01")]),
    ],
    ids=["other-files", "other-rows", "unmerged", "rows-added", "rows-lost", "too-low-a-level", "a-part-gone",
         "a-part-more", "mutated-since"],
)  # fmt: skip
def test_what_no_merge_does_is_a_change(before: list[PartMark], after: list[PartMark]) -> None:
    assert not same(before, after)


def test_of_many_parts_a_digest_of_bounded_length_is_kept() -> None:
    many = [part(f"{block}-{block}-0", digest=f"f{block:08}") for block in range(1, 2001)]
    other = [*many[:-1], part("2000-2000-0", digest="fother")]
    assert len(marked("c1-x", many)) < 100 and len(marked("c1-x", many[:MOST_MARKS])) < 600
    assert same(many, many[::-1]) and not same(many, other)
    assert same(many, [part("1-2000-4", 20_000)]) and not same([part("1-2000-4", 20_000)], many)
    merged = [part("1-2-1", 20), *many[2:]]
    assert same(many, merged) and not same(merged, many)


def test_ids_of_older_versions_and_of_replicated_tables_have_no_marks() -> None:
    marks = marked("c1-x", [part("1-1-0")])
    assert unchanged("c1-x", marks) and unchanged(marks, "c1-x") and unchanged("c1-x", "c1-x")
    assert not unchanged("c1-x", "c1-y") and not unchanged("parts", "p2-x") and not unchanged("p1-x", "p2-x")


def moved(before: list[PartMark], after: list[PartMark]) -> bool:
    """Under other block numbers, as after DETACH and ATTACH."""
    return unchanged(marked("c1-x", before), marked("c1-y", after))


def test_the_same_parts_under_other_numbers_are_no_change() -> None:
    before = [part("1-3-1", 20, "fab"), part("4-4-0-9", 10, "fcd")]
    after = [part("7-7-0", 10, "fcd"), part("8-8-1", 20, "fab")]
    assert moved(before, after) and not merged_since(marked("c1-x", before), marked("c1-y", after))
    assert not parts_gone(marked("c1-x", before), marked("c1-y", after))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([part("1-1-0", 10, "fab")], [part("2-2-0", 10, "fac")]),
        ([part("1-1-0", 10, "fab")], [part("2-2-0", 11, "fab")]),
        ([part("1-1-0", 10, "fab")], [part("2-2-0", 10, "fab"), part("3-3-0", 10, "fab")]),
        ([part("1-1-0", 10, "fab"), part("2-2-0", 10, "fab")], [part("3-3-0", 10, "fab")]),
        ([part("1-1-0", 10, "fab")], [part("2-2-0", 10, "sab")]),
        ([part("1-1-0", 10, "tab")], [part("2-2-0", 10, "tab")]),
        ([part("1-1-0", 10, "")], [part("2-2-0", 10, "")]),
    ],
    ids=[
        "other-files",
        "other-rows",
        "doubled",
        "fewer",
        "hashes-of-two-kinds",
        "times-and-sizes",
        "hash-unknown",
    ],
)
def test_anything_else_under_other_numbers_is_a_change(before: list[PartMark], after: list[PartMark]) -> None:
    assert not moved(before, after)


def test_more_parts_than_are_marked_one_by_one_are_not_recognized() -> None:
    many = [part(f"{number}-{number}-0", digest=f"f{number:02}") for number in range(MOST_MARKS + 1)]
    again = [
        part(f"{number + 50}-{number + 50}-0", digest=f"f{number:02}") for number in range(MOST_MARKS + 1)
    ]
    assert not moved(many, again)
