"""A worker of release 0.1.0 that runs while a newer version changes the store's schema goes on, and what it
does is seen.

`worker_v0_1.tar.xz` holds that release's control plane: `git archive 420a629 src/calve/__init__.py
src/calve/{model,control,store} src/calve/testing/{__init__,clock,crashing,fake_kind,fake_runner,fake_world,scene}.py`.
"""

import contextlib
import sqlite3
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from calve.control.registry import Registry
from calve.model.errors import UsageError
from calve.model.limits import Limits
from calve.model.process import Event, ProcessId
from calve.model.states import ProcessState
from calve.store import SqlStore, open_store
from calve.store.store import current_version, newest
from calve.testing.clock import FakeClock
from calve.testing.scene import Scene
from support.calve_command import Run

ARCHIVE = Path(__file__).with_name("worker_v0_1.tar.xz")
OLD_PROGRAM = """
import sys
from calve.model.limits import Limits
from calve.model.states import PROCESS_TERMINAL
from calve.store import open_store
from calve.testing.clock import FakeClock
from calve.testing.scene import Scene

with open_store(sys.argv[1]) as store:
    scene = Scene(store=store, clock=FakeClock(), limits=Limits(slots=2))
    mine = scene.submit(tasks=3, pins=1)
    worker = scene.worker()
    worker.tick()
    print(mine, worker.id, flush=True)
    for line in sys.stdin:
        for _ in range(50):
            worker.tick()
        store.forget_history(days=90, after=0, limit=100)
        print(" ".join(f"{process_id}:{store.process(process_id).state.value}" for process_id in line.split()), flush=True)
"""


class OldProgram:
    def __init__(self, program: "subprocess.Popen[str]") -> None:
        self._program = program
        self.process_id, self.worker = self._answer().split()

    def _answer(self) -> str:
        assert self._program.stdout is not None
        line = self._program.stdout.readline()
        assert line, self._program.communicate()[1]
        return line

    def run(self, *ids: str) -> dict[str, str]:
        """Tick until all has been done that can be; the states of these processes."""
        assert self._program.stdin is not None
        self._program.stdin.write(" ".join(ids) + "\n")
        self._program.stdin.flush()
        return dict(pair.split(":") for pair in self._answer().split())


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.services)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'calve.db'}"
    made: str = request.getfixturevalue("postgres_url")
    return made


@pytest.fixture
def old(url: str, tmp_path: Path) -> Iterator[OldProgram]:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path / "old", filter="data")
    with subprocess.Popen(
        [sys.executable, "-c", OLD_PROGRAM, url],
        env={"PYTHONPATH": str(tmp_path / "old" / "src")},
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        yield OldProgram(program)
        assert program.stdin is not None
        program.stdin.close()
        assert program.wait(timeout=30) == 0


def version(store: SqlStore) -> int:
    return store.database.read(current_version)


def test_the_schema_is_not_changed_under_a_running_worker_unless_asked_for_and_then_the_worker_goes_on(
    url: str, old: OldProgram
) -> None:
    with pytest.raises(UsageError, match=old.worker) as refused:
        open_store(url)
    assert refused.value.code == "older_workers" and "--migrate" in refused.value.hint
    with open_store(url, migrate_beside_workers=True) as store:
        assert version(store) == newest() > 2
        scene = Scene(store=store, clock=FakeClock(), limits=Limits(slots=2))
        ours = scene.submit(tasks=2, pins=1)
        assert old.run(old.process_id, ours) == dict.fromkeys([old.process_id, ours], "COMPLETED")
        assert [worker.version for worker in store.workers() if worker.id == old.worker] == [""]
        followed = everything(store)
        assert [event.position for event in followed] == list(range(1, len(followed) + 1))
        for process_id in (ProcessId(old.process_id), ours):
            assert store.process(process_id).state is ProcessState.COMPLETED
            positions = [event.position for event in store.events(process_id)]
            assert positions == sorted(positions)
            assert followed[positions[-1] - 1].name == store.events(process_id)[-1].name
        assert store.events(ProcessId(old.process_id))[0].position == 0, "it happened before there was a feed"
    open_store(url).close()  # nothing is left to change: old workers are no reason to refuse


def everything(store: Registry) -> list[Event]:
    while store.number_events():
        pass
    return store.feed(0, 1000)


def test_workers_that_were_silent_for_a_minute_are_not_waited_for(url: str, old: OldProgram) -> None:
    clock = FakeClock()
    clock.advance(61)
    with open_store(url, clock_offset_seconds=clock.offset_seconds) as store:
        assert version(store) == newest()


@pytest.mark.parametrize("root", ["v0_1"], indirect=True)
def test_a_command_says_which_workers_are_in_the_way_and_how_to_go_on(root: Path, run: Run) -> None:
    with contextlib.closing(sqlite3.connect(root / "calve.db")) as database, database:
        now_us = time.time_ns() // 1000
        database.execute(
            "INSERT INTO workers VALUES ('old-1', 'host', '[]', 2, ?, ?, FALSE, NULL)", [now_us, now_us]
        )
    refused = run("ps", "--json")
    assert (refused.code, refused.json["error"]["code"]) == (2, "older_workers")
    assert "old-1" in refused.json["error"]["message"]
    assert run("--migrate", "ps").code == 0
    workers = run("ps", "--workers", "--json").json
    assert [worker["version"] for worker in workers if worker["id"] == "old-1"] == [""]
