"""Which delete files delete nothing any more: Iceberg's rules of what applies to what. Pure."""

import pytest

from calve.iceberg.health.stats import Deletes, PartitionStats, Place, TableStats

POSITION, EQUALITY = 1, 2
UNPARTITIONED, BY_DAY = 0, 1


def table(**deletes: tuple[int, int, int]) -> TableStats:
    """Data of sequences 5 and 9 in two partitions; a delete file (place, content, sequence) each."""
    places = {
        "everywhere": Place(spec_id=UNPARTITIONED, values=()),
        "first": Place(spec_id=BY_DAY, values=(1,)),
        "second": Place(spec_id=BY_DAY, values=(2,)),
    }
    parts = {place: PartitionStats(place=place) for place in places.values()}
    for name, oldest in (("first", 5), ("second", 9)):
        parts[places[name]].files, parts[places[name]].oldest_sequence = 1, oldest
    for name, (content, sequence, files) in deletes.items():
        parts[places[name]].deletes[content, sequence] = Deletes(files=files, rows=files)
    return TableStats(partitions=parts, unpartitioned_spec_ids=frozenset({UNPARTITIONED}))


@pytest.mark.parametrize(
    ("content", "sequence", "applies"),
    [(POSITION, 4, False), (POSITION, 5, True), (EQUALITY, 5, False), (EQUALITY, 6, True)],
)
def test_a_delete_applies_to_older_data_of_its_own_partition(
    content: int, sequence: int, applies: bool
) -> None:
    stats = table(first=(content, sequence, 1))
    assert (stats.dangling_deletes == 0) is applies
    assert stats.position_deletes + stats.equality_deletes == (1 if applies else 0)


@pytest.mark.parametrize(("sequence", "applies"), [(5, False), (6, True), (12, True)])
def test_P19_an_equality_delete_of_an_unpartitioned_spec_applies_to_older_data_of_every_partition(
    sequence: int, applies: bool
) -> None:
    stats = table(everywhere=(EQUALITY, sequence, 1))
    assert (stats.dangling_deletes == 0) is applies
    assert stats.global_deletes == stats.equality_deletes == (1 if applies else 0)


def test_a_position_delete_of_an_unpartitioned_spec_applies_to_no_other() -> None:
    assert table(everywhere=(POSITION, 12, 3)).dangling_deletes == 3
