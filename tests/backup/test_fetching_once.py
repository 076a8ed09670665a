"""A huge part of a backup that several tasks read in ranges is fetched once by a machine."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from backup_place import DirectRunner

from calve.app.backups.requests import BackupReach
from calve.archive import parts, reader
from calve.backup import submit
from calve.destination.plan import PartPlan
from calve.model.errors import PermanentError
from calve.model.states import ProcessState
from support.local_runner import LocalRunner
from support.place import Place


def test_the_ranges_of_a_part_share_one_fetch_and_give_every_row_once(tmp_path: Path) -> None:
    runner = LocalRunner()
    place = Place(tmp_path, runner, CALVE_LIMITS__TASK_BYTES_MB="1")
    try:
        place.execute(
            "CREATE DATABASE db",
            "CREATE TABLE db.events (id UInt64, s String) ENGINE = MergeTree ORDER BY id",
            "INSERT INTO db.events SELECT number, randomPrintableASCII(40) FROM numbers(100000)",
        )
        with place.app() as app:
            app.__dict__["runner"] = DirectRunner()
            request = submit.request_of(BackupReach(app), "b", "main", ("db.*",))
            queued = submit.submit(BackupReach(app), app.store, request).process
            [made] = place.finish(app, [queued.id])
        assert made.state is ProcessState.COMPLETED, made.error
        [exported] = place.export("db.events", from_backup="b")
        assert exported.error is None and exported.tasks.total > 2  # the one part was split
        ids = place.read().column("id").to_pylist()
        assert sorted(int(one) for one in ids) == list(range(100000))
    finally:
        runner.close()


class _Fetches:
    """`fetch`, counted."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, location: Any, part: Any, folder: Path) -> int:
        self.names.append(part.name)
        folder.mkdir(parents=True)
        return 0


def _part(name: str) -> PartPlan:
    return PartPlan(name=name, partition_id="all", rows=100, bytes=1, path=f"p/0-1/{'0' * 40}#{'1' * 64}")


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> _Fetches:
    counted = _Fetches()
    monkeypatch.setattr(reader, "fetch", counted)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return counted


def test_a_part_is_fetched_once_and_another_backup_s_part_of_that_name_is_another(
    fetches: _Fetches, location: Callable[[str], Any]
) -> None:
    for _ in range(3):
        with reader.fetched_once(location("s3://bucket/a"), _part("all_1_1_0")):
            pass
    assert fetches.names == ["all_1_1_0"]
    with reader.fetched_once(location("s3://bucket/b"), _part("all_1_1_0")):
        pass
    assert len(fetches.names) == 2


def test_a_damaged_part_is_never_shared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, location: Callable[[str], Any]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for _ in range(2):
        with pytest.raises(PermanentError, match="damaged"):
            reader.fetched_once(location(f"file://{tmp_path}"), _part("all_1_1_0")).__enter__()
    assert parts.fetch is reader.fetch


@pytest.fixture
def location() -> Callable[[str], Any]:
    from calve.archive.location import Location
    from calve.objects.storage import Storage

    return lambda url: Location(url, Storage())
