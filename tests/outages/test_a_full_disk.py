"""The disk of a worker is full: said clearly, nothing half-written to be seen, and it goes on once there is room.

A real small disk (tmpfs) where the test may mount one; a real limit on the size of files everywhere.
"""

import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from calve.control.client import retry
from calve.model.states import ProcessState
from support.child_runner import ChildRunner
from support.outage_place import Executors, OutagePlace, make_table, until
from support.sparks import CLUSTER, Sparks
from support.watched_runner import WatchedRunner

pytestmark = pytest.mark.services

ROWS = 2_000
DISK_MB = 64  # an engine with its own files needs some ten


class SmallDisk:
    """The folder for executors' files, and how it runs full."""

    def __init__(self, folder: Path, closing: ExitStack) -> None:
        self.folder = folder
        folder.mkdir()
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "none", str(folder)],
            capture_output=True,
            check=False,
        )
        if mounted.returncode:
            raise PermissionError(mounted.stderr.decode())
        closing.callback(lambda: subprocess.run(["umount", "-l", str(folder)], check=True))

    def fill(self, runner: Executors) -> None:
        with (self.folder / "ballast").open("wb", buffering=0) as ballast, pytest.raises(OSError):
            while True:
                ballast.write(bytes(4096))
        # Python tries the folder with a small file, and takes another where even that fails.
        os.truncate(self.folder / "ballast", (self.folder / "ballast").stat().st_size - 16 * 4096)

    def make_room(self, runner: Executors) -> None:
        (self.folder / "ballast").unlink()


class LimitedFiles:
    """No file of an executor may have a byte: the kernel refuses its writes as it does on a full disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def fill(self, runner: Executors) -> None:
        self._limit(runner, 0)

    def make_room(self, runner: Executors) -> None:
        self._limit(runner, resource.RLIM_INFINITY)

    def _limit(self, runner: Executors, size: int) -> None:
        assert isinstance(runner, ChildRunner)
        for pid in runner.pids:
            _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))


def _small_disk(folder: Path, closing: ExitStack) -> SmallDisk | LimitedFiles:
    try:
        return SmallDisk(folder, closing)
    except (PermissionError, FileNotFoundError) as refused:
        print(f"no disk of its own ({refused}): files are limited instead")
        return LimitedFiles(folder.with_name("limited"))


Disk = SmallDisk | LimitedFiles
WAYS: dict[str, Callable[[Path, ExitStack], Disk]] = {
    "a small disk": _small_disk,
    "limited files": lambda folder, closing: LimitedFiles(folder),
    CLUSTER: _small_disk,
}


@pytest.fixture(params=[pytest.param(way, marks=[pytest.mark.spark] * (way == CLUSTER)) for way in WAYS])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    with ExitStack() as closing:
        yield WAYS[request.param](tmp_path / "executors", closing)


on_children = pytest.mark.parametrize("disk", [way for way in WAYS if way != CLUSTER], indirect=True)


@pytest.fixture
def executors(
    request: pytest.FixtureRequest, disk: Disk, monkeypatch: pytest.MonkeyPatch, sparks: Sparks
) -> Iterator[Executors]:
    """Children whose own files are on that disk; or programs of a cluster, if it is a disk indeed."""
    if CLUSTER in request.node.name and isinstance(disk, SmallDisk):
        with sparks.own(CLUSTER, {"spark.executorEnv.TMPDIR": str(disk.folder)}) as spark:
            spark.warm()
            yield WatchedRunner(spark)
        return
    runner = ChildRunner(slots=1)
    monkeypatch.setenv("TMPDIR", str(disk.folder))
    runner.warm()
    monkeypatch.delenv("TMPDIR")
    yield runner
    runner.close()


@pytest.fixture
def place(tmp_path: Path, executors: Executors) -> Iterator[OutagePlace]:
    place = OutagePlace(tmp_path / "place", executors, {}, CALVE_LIMITS__BACKOFF_FIRST_SECONDS="1")
    place.place.execute(*make_table("events", rows=ROWS))
    yield place
    place.close()


def test_a_full_disk_is_said_and_the_export_goes_on_when_there_is_room(
    place: OutagePlace, executors: Executors, disk: Disk
) -> None:
    with place.worker():
        with executors.holding():
            ids = place.submit("events", "lake.ns.events", "0")
            until(lambda: place.planned(ids), "the plan")
            disk.fill(executors)
        until(lambda: bool(executors.errors), "a task to meet it")
        error = executors.errors[0]
        assert (error.code, error.retryable, error.service) == ("disk_full", True, ""), error
        assert str(disk.folder) in error.message
        assert "make room" in error.hint
        # It is nobody's outage, and no reader sees anything of it.
        assert place.breakers() == []
        assert _data_files(place) == []
        disk.make_room(executors)
        [process] = place.finish(ids)
    assert process.state is ProcessState.COMPLETED, place.told(process.id)
    assert len(place.ids_in("lake.ns.events")) == len(set(place.ids_in("lake.ns.events"))) == 2 * ROWS
    assert any("no room" in event.message for event in place.app.store.events(process.id))


@on_children
def test_a_disk_that_stays_full_fails_the_export_with_the_reason_and_a_retry_goes_on(
    place: OutagePlace, executors: Executors, disk: Disk
) -> None:
    with place.worker(CALVE_LIMITS__TASK_ATTEMPTS="2", CALVE_LIMITS__BACKOFF_FIRST_SECONDS="0.1"):
        with executors.holding():
            ids = place.submit("events", "lake.ns.events", "0")
            until(lambda: place.planned(ids), "the plan")
            disk.fill(executors)
        [process] = place.finish(ids)
        assert process.state is ProcessState.FAILED
        assert process.error is not None and process.error.code == "disk_full"
        assert "make room" in process.error.hint
        disk.make_room(executors)
        [done] = place.finish([retry(place.app.store, process.id).process.id])
    assert done.state is ProcessState.COMPLETED, place.told(done.id)
    assert len(place.ids_in("lake.ns.events")) == 2 * ROWS


def _data_files(place: OutagePlace) -> list[str]:
    return [
        name
        for _, _, names in os.walk(place.place.folder / "lake")
        for name in names
        if name.endswith(".parquet")
    ]
