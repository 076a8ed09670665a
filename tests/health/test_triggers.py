"""When a partition is due, and when it is not: pure."""

from typing import Any

import pytest
from pyiceberg.manifest import DataFileContent

from calve.iceberg.health.due import Level, evaluate
from calve.iceberg.health.entries import Entry, count
from calve.iceberg.health.settings import DAY_MS, HOUR_MS, MIB, Settings, settings_of
from calve.iceberg.health.stats import Deletes, PartitionStats, Place, TableStats
from calve.model.errors import RefusedError
from calve.optimize.finish import with_wishes

PLACE = Place(spec_id=0, values=(1,))
NOW = 10 * DAY_MS
POSITION, EQUALITY = int(DataFileContent.POSITION_DELETES), int(DataFileContent.EQUALITY_DELETES)


def due(
    settings: Settings | None = None, *, full: bool = False, full_at_ms: int | None = None, **counts: Any
) -> list[Any]:
    part = PartitionStats(place=PLACE, **{"oldest_sequence": 1, **counts})
    stats = TableStats(partitions={PLACE: part})
    found = evaluate(stats, settings or Settings(), now_ms=NOW, full=full, full_at_ms=full_at_ms)
    return [(item.level, item.files) for item in found]


@pytest.mark.parametrize(
    ("fragments", "age_ms", "expected"),
    [
        (12, 0, [(Level.MINOR, 12)]),
        (11, HOUR_MS - 1, []),
        (2, HOUR_MS, [(Level.MINOR, 2)]),
        (1, 9 * DAY_MS, []),
    ],
)
def test_minor_wants_a_dozen_fragments_or_two_of_which_one_is_an_hour_old(
    fragments: int, age_ms: int, expected: list[Any]
) -> None:
    counts = {"files": fragments, "rows": 100, "fragments": fragments, "fragment_bytes": fragments}
    assert due(oldest_fragment_ms=NOW - age_ms, **counts) == expected


def test_major_wants_undersized_files_that_together_fill_one() -> None:
    two = {"files": 2, "rows": 100, "undersized": 2}
    assert due(**two, bytes=100 * MIB, undersized_bytes=100 * MIB) == []
    three = {"files": 3, "rows": 100, "undersized": 3, "bytes": 150 * MIB, "undersized_bytes": 150 * MIB}
    assert due(**three) == [(Level.MAJOR, 3)]


def test_major_is_not_due_where_as_many_files_would_come_out_of_it() -> None:
    """Two files of 0.6 of the target become two files of 0.6 of the target, for ever."""
    assert due(files=2, rows=100, undersized=2, bytes=154 * MIB, undersized_bytes=154 * MIB) == []


@pytest.mark.parametrize(("deleted", "expected"), [(10, []), (11, [(Level.MAJOR, 3)])])
def test_major_wants_more_than_a_tenth_of_the_rows_deleted(deleted: int, expected: list[Any]) -> None:
    deletes = {(POSITION, 2): Deletes(files=1, rows=deleted)}
    assert due(files=3, rows=100, bytes=400 * MIB, deletes=deletes) == expected


def test_deletes_that_apply_to_nothing_are_dangling_and_trigger_nothing() -> None:
    deletes = {(EQUALITY, 5): Deletes(files=9, rows=90), (POSITION, 4): Deletes(files=9, rows=90)}
    counts = {"files": 1, "rows": 100, "bytes": 128 * MIB, "deletes": deletes}
    assert due(oldest_sequence=5, **counts) == []
    part = PartitionStats(place=PLACE, oldest_sequence=5, files=1, deletes=deletes)
    assert part.delete_files == 0


def test_position_deletes_of_the_same_commit_as_the_data_apply() -> None:
    part = PartitionStats(
        place=PLACE, oldest_sequence=5, files=1, deletes={(POSITION, 5): Deletes(files=1, rows=1)}
    )
    assert part.position_deletes == 1


def test_full_is_off_until_its_interval_is_set_and_then_waits_for_it() -> None:
    healthy = {"files": 1, "rows": 100, "bytes": 128 * MIB}
    assert due(**healthy) == []
    weekly = Settings(full_interval_ms=7 * DAY_MS)
    assert due(weekly, **healthy) == [(Level.FULL, 1)]
    assert due(weekly, full_at_ms=NOW - 6 * DAY_MS, **healthy) == []
    assert due(weekly, full_at_ms=NOW - 7 * DAY_MS, **healthy) == [(Level.FULL, 1)]
    assert due(full=True, **healthy) == [(Level.FULL, 1)]
    assert due(Settings(full_rewrites_all=False), full=True, **healthy) == []


def test_files_of_an_older_spec_are_major_where_there_are_several() -> None:
    part = PartitionStats(place=PLACE, files=2, rows=9, fragments=2, oldest_sequence=1)
    stats = TableStats(partitions={PLACE: part}, current_spec_id=1)
    assert [item.level for item in evaluate(stats, Settings(), now_ms=0)] == [Level.MAJOR]


def test_the_neediest_partition_comes_first() -> None:
    parts = {
        Place(spec_id=0, values=(number,)): PartitionStats(
            place=Place(spec_id=0, values=(number,)),
            files=number,
            fragments=number,
            rows=1,
            oldest_sequence=1,
        )
        for number in (12, 40, 20)
    }
    found = evaluate(TableStats(partitions=parts), Settings(), now_ms=0)
    assert [item.files for item in found] == [40, 20, 12]


def test_counting_sorts_files_by_size_and_takes_expired_snapshots_for_old() -> None:
    stats, settings = TableStats(), Settings()
    entries = [
        Entry(7, 1, 0, "a", (1,), 10, 16 * MIB),  # exactly an eighth: a fragment
        Entry(8, 1, 0, "b", (1,), 10, 16 * MIB + 1),
        Entry(8, 1, 0, "c", (1,), 10, 96 * MIB),  # exactly three quarters: fine
        Entry(8, 1, 0, "d", (1,), 10, 300 * MIB),
        Entry(8, 2, POSITION, "e", (1,), 3, 1),
    ]
    count(stats, 0, entries, {8: 500}, settings)
    [part] = stats.partitions.values()
    assert (part.fragments, part.undersized, part.oversized, part.files) == (1, 1, 1, 4)
    assert (part.oldest_fragment_ms, part.position_deletes, part.deleted_rows) == (0, 1, 3)
    assert stats.sizes == {"16 to 64 MiB": 2, "64 to 128 MiB": 1, "128 to 512 MiB": 1}


def test_amoros_properties_are_honoured_before_icebergs() -> None:
    settings = settings_of(
        {
            "write.target-file-size-bytes": str(512 * MIB),
            "self-optimizing.target-size": str(64 * MIB),
            "self-optimizing.fragment-ratio": "16",
            "self-optimizing.minor.trigger.file-count": "3",
            "self-optimizing.minor.trigger.interval": "1000",
            "self-optimizing.major.trigger.duplicate-ratio": "0.5",
            "self-optimizing.full.trigger.interval": "86400000",
            "self-optimizing.enabled": "false",
            "snapshot.keep.duration": "12h",
            "clean-orphan-file.min-existing-time-minutes": "60",
        }
    )
    assert (settings.target_bytes, settings.fragment_bytes) == (64 * MIB, 4 * MIB)
    assert (settings.minor_files, settings.minor_interval_ms) == (3, 1000)
    assert (settings.major_delete_ratio, settings.full_interval_ms) == (0.5, DAY_MS)
    assert (settings.enabled, settings.snapshot_age_ms, settings.orphan_age_ms) == (
        False,
        12 * HOUR_MS,
        HOUR_MS,
    )
    assert settings_of({"write.target-file-size-bytes": "1024"}).target_bytes == 1024


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("self-optimizing.target-size", "0"),
        ("self-optimizing.minor.trigger.file-count", "many"),
        ("self-optimizing.major.trigger.duplicate-ratio", "1.5"),
        ("self-optimizing.enabled", "perhaps"),
        ("snapshot.keep.duration", "12 moons"),
    ],
)
def test_a_property_that_cannot_be_read_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(RefusedError, match=name):
        settings_of({name: value})


def test_a_table_that_shares_its_files_loses_none_whatever_else_it_says() -> None:
    settings = settings_of(
        {"gc.enabled": "false", "table-expire.enabled": "true", "clean-orphan-file.enabled": "true"}
    )
    assert (settings.expire, settings.clean_orphans) == (False, False)
    assert with_wishes(settings, expire=True, orphans=True) == settings
    assert with_wishes(Settings(expire=False), expire=True, orphans=False).expire is True
