"""`limits.upload_mb_per_second`: all that a worker uploads together keeps the pace. By the clock of the pace, which
tests move; nothing here is timed."""

import os
import threading
import time
from pathlib import Path

import pytest

from calve.app.backups.requests import BackupReach
from calve.backup import submit
from calve.model.limits import Limits
from calve.model.process import Process
from calve.model.states import ProcessState
from calve.objects.pace import PIECE_BYTES, Pace, free_at
from calve.objects.storage import Storage
from calve.tasks.attempts import upload_pace
from support.local_runner import LocalRunner
from support.place import Place, kept_place

MB = 1_000_000


class Clock:
    """Sleeping moves it."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def pace(folder: Path, clock: Clock, rate: str = "2") -> Pace:
    return Pace(f"{rate}@host-1", folder, monotonic=clock, sleep=clock.sleep)


def test_programs_that_share_a_pace_are_together_as_slow_as_one(tmp_path: Path) -> None:
    clock = Clock()
    programs = [pace(tmp_path, clock) for _ in range(3)]
    for turn in range(30):
        programs[turn % 3].take(MB)
    programs[0].take(1)
    assert clock.now == pytest.approx(1_000 + 30 / 2)


def test_what_was_not_used_is_not_saved_up(tmp_path: Path) -> None:
    clock = Clock()
    one = pace(tmp_path, clock)
    one.take(MB)
    clock.now += 3600
    one.take(2 * MB)
    one.take(1)
    assert clock.now == pytest.approx(1_000 + 3600 + 1)


def test_a_clock_of_before_a_restart_of_the_machine_holds_up_nobody(tmp_path: Path) -> None:
    long_up, fresh = Clock(), Clock()
    long_up.now = 9e6
    pace(tmp_path, long_up).take(MB)
    pace(tmp_path, fresh).take(MB)
    assert fresh.now == 1_000


def test_threads_and_processes_lose_no_turn(tmp_path: Path) -> None:
    waited: list[float] = []
    programs = [Pace("1@host-1", tmp_path, monotonic=lambda: 5.0, sleep=waited.append) for _ in range(4)]
    threads = [
        threading.Thread(target=lambda one=one: [one.take(1000) for _ in range(50)]) for one in programs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(round(seconds, 6) for seconds in waited) == [round(turn / 1000, 6) for turn in range(200)]


def test_a_file_is_uploaded_whole_whatever_its_pace(tmp_path: Path) -> None:
    data = os.urandom(2 * PIECE_BYTES + 7)
    (tmp_path / "local").write_bytes(data)
    storage = Storage(pace="1000@test-whole")
    storage.upload(tmp_path / "local", (tmp_path / "there").as_uri())
    assert (tmp_path / "there").read_bytes() == data


def test_no_limit_is_the_default() -> None:
    assert upload_pace(Limits()) == ""


def test_uploads_of_exports_and_of_backups_move_the_worker_s_clock(
    tmp_path: Path, runner: LocalRunner
) -> None:
    """One file each, and the first never waits, so a pace of 100 bytes a second costs no time."""
    limit = Limits(upload_mb_per_second=0.0001)
    setting = str(limit.upload_mb_per_second)
    with kept_place(tmp_path, runner, CALVE_LIMITS__UPLOAD_MB_PER_SECOND=setting) as place:
        place.execute(
            "CREATE DATABASE db",
            "CREATE TABLE db.t (id UInt64, s FixedString(64)) ENGINE = MergeTree ORDER BY id",
            "INSERT INTO db.t SELECT number, randomFixedString(64) FROM numbers(200)",
        )
        clock = Pace(upload_pace(limit)).file
        for run in (_export, _backup):
            clock.unlink(missing_ok=True)
            began = time.monotonic()
            process = run(place)
            assert process.state is ProcessState.COMPLETED, process.error
            assert process.bytes > 200 * 64
            assert free_at(clock.read_bytes()) >= began + 200 * 64 / 100
        clock.unlink()


def _export(place: Place) -> Process:
    [process] = place.export("db.t", "all", to="lake.ns.t")
    return process


def _backup(place: Place) -> Process:
    with place.app() as app:
        reach = BackupReach(app)
        request = submit.request_of(reach, "b", "main", ("db.*",))
        [process] = place.finish(app, [submit.submit(reach, app.store, request).process.id])
    return process
