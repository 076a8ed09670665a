"""Which files may go (D15): pure judgement over a listing."""

from datetime import UTC, datetime, timedelta

import pytest

from calve.destination.names import process_of
from calve.iceberg.health.orphans import Orphans, Owner, PathSet, TableFile, judge
from calve.iceberg.health.report import orphan_limit
from calve.iceberg.health.settings import Settings
from calve.model.limits import Limits
from calve.objects.uri import comparable

NOW = datetime(2026, 1, 10, tzinfo=UTC)
OLD = NOW - timedelta(days=5)
OWNERS = {"ended": Owner.ENDED, "live": Owner.LIVE, "neighbour": Owner.OTHERS}


def judged(*paths: str, reachable: tuple[str, ...] = (), at: datetime = OLD) -> Orphans:
    files = [TableFile(f"file:///t/{path}", 10, at) for path in paths]
    return judge(
        files,
        PathSet(reachable),
        own="file:///t",
        older_than=NOW - timedelta(days=2),
        owner=lambda process: OWNERS.get(process, Owner.UNKNOWN),
    )


def names(found: Orphans) -> list[str]:
    return [item.path.removeprefix("file:///t/") for item in found.removable]


def test_D15_files_of_a_process_that_this_store_does_not_know_stay_however_old() -> None:
    found = judged(
        "data/calve-stranger-0-1-0.parquet",
        "data/day=1/calve-stranger-0-1-1.parquet",
        "metadata/calve-stranger-123-m0.avro",
        "metadata/snap-123-0-calve-stranger.avro",
        at=NOW - timedelta(days=3650),
    )
    assert names(found) == [] and found.of_unknown == 4


def test_D15_files_of_a_live_process_stay_and_those_of_an_ended_one_go() -> None:
    found = judged("data/calve-live-0-1-0.parquet", "data/calve-ended-0-1-0.parquet")
    assert names(found) == ["data/calve-ended-0-1-0.parquet"] and found.of_live == 1


def test_D15_a_file_of_a_process_that_wrote_to_another_table_stays() -> None:
    found = judged("data/calve-neighbour-0-1-0.parquet", "data/calve-ended-0-1-0.parquet")
    assert names(found) == ["data/calve-ended-0-1-0.parquet"] and found.of_others == 1


def test_what_the_table_refers_to_stays_however_its_path_is_spelled() -> None:
    found = judged(
        "data/a.parquet", "data/b.parquet", reachable=("file:/t/data/a.parquet", "/t/data/b.parquet")
    )
    assert names(found) == []


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("file:/a/b", "file:///a/b", True),
        ("/a/b", "file:/a/b", True),
        ("s3a://bucket/a", "s3://bucket/a", True),
        ("s3://bucket/a", "s3://other/a", False),
        ("s3://bucket/a:b", "s3://bucket/a:c", False),
        ("file:/a%20b", "file:/a b", False),
    ],
)
def test_two_spellings_of_one_file_are_one_and_two_files_never_are(one: str, other: str, same: bool) -> None:
    assert (comparable(one) == comparable(other)) is same


def test_young_files_are_not_judged() -> None:
    found = judged("data/new.parquet", at=NOW - timedelta(hours=47))
    assert names(found) == [] and found.young == 1


def test_never_younger_than_the_longest_possible_export_whatever_the_table_says() -> None:
    hasty = Settings(orphan_age_ms=60_000)
    assert orphan_limit(hasty, Limits(process_hours=100), NOW) == NOW - timedelta(hours=100)
    assert orphan_limit(Settings(), Limits(process_hours=1), NOW) == NOW - timedelta(days=2)


def test_another_table_inside_the_folder_keeps_all_its_files() -> None:
    found = judged("inner/metadata/00001-x.metadata.json", "inner/data/a.parquet", "data/lost.parquet")
    assert names(found) == ["data/lost.parquet"] and found.of_others == 2


def test_a_checksum_beside_a_file_stays_and_goes_with_it() -> None:
    found = judged(
        "data/.kept.parquet.crc", "data/.lost.parquet.crc", reachable=("file:/t/data/kept.parquet",)
    )
    assert names(found) == ["data/.lost.parquet.crc"]


@pytest.mark.parametrize(
    ("path", "process"),
    [
        ("file:///t/data/calve-abc-0-1-2.parquet", "abc"),
        ("file:///t/metadata/snap-77-0-calve-abc.avro", "abc"),
        ("file:///t/metadata/calve/abc/0-1.json", "abc"),
        ("file:///t/calve-abc-0/data/plain.parquet", None),
        ("file:///t/data/00000-1-uuid.parquet", None),
    ],
)
def test_a_file_names_the_process_it_belongs_to(path: str, process: str | None) -> None:
    assert process_of(path) == process
