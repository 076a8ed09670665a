"""Supervisors and terminals signal more than the worker: its process group, or every process it started. Real workers
with a real Spark drain all the same, exit 0, use no budget and leave nothing behind."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import DESTINATION, TABLE, Folder, opened

from calve.app.wiring import App
from calve.model.process import ProcessId
from calve.model.states import PROCESS_TERMINAL, ProcessState

pytestmark = pytest.mark.spark


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    path = tmp_path / "place"
    path.mkdir()
    # The engine of a task takes seconds to start: long enough to be stopped in.
    with opened(path, CALVE_SPARK__MASTER="local[2]", CALVE_LIMITS__LEASE_SECONDS="20") as made:
        yield made


def running(app: App, process_id: ProcessId) -> bool:
    return app.store.process(process_id).tasks.running > 0


def descendants(pid: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, open_ends = set(), [pid]
    while open_ends:
        for child in children.get(open_ends.pop(), []):
            found.add(child)
            open_ends.append(child)
    return found


def alive(pids: set[int]) -> set[str]:
    left = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            if " Z " not in Path(f"/proc/{pid}/stat").read_text():
                left.add(Path(f"/proc/{pid}/cmdline").read_text()[:200])
    return left


@pytest.mark.parametrize("to", ["the group by SIGTERM", "the group by SIGINT", "every process by SIGTERM"])
def test_a_worker_whose_whole_group_is_signalled_drains(folder: Folder, to: str) -> None:
    worker = folder.calve("worker", spark=True)
    worker.wait_ready(lambda: " reaches " in worker.said)
    process_id = folder.submit()
    folder.wait_until(worker, lambda app: running(app, process_id), seconds=120)
    below = descendants(worker.pid)
    if to == "every process by SIGTERM":
        for pid in {worker.pid, *below}:
            os.kill(pid, signal.SIGTERM)
    else:
        os.killpg(worker.pid, signal.SIGTERM if "SIGTERM" in to else signal.SIGINT)
    assert worker.wait(seconds=90) == 0, worker.said
    assert "defect" not in worker.said and "Traceback" not in worker.said
    assert alive(below | descendants(worker.pid)) == set()
    with folder.place.app() as app:
        assert app.store.workers() == []
        for task in app.store.tasks(process_id):
            assert task.attempt - task.free_attempts <= (task.state.value == "DONE"), task
    row = folder.row(process_id)
    assert row.owner is None and row.state not in {ProcessState.FAILED, ProcessState.CANCELLED}
    code, _, said = folder.call("worker", "--until-idle")  # which needs no Spark for it
    assert code == 0, said
    folder.check_exported_once(process_id)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_export_whose_whole_group_is_signalled_hands_its_work_back(
    folder: Folder, number: signal.Signals
) -> None:
    export = folder.calve("export", TABLE, "--all", "--to", DESTINATION, spark=True)
    with folder.place.app() as app:
        export.wait_ready(lambda: any(running(app, one.id) for one in app.store.live()), 120)
        (process,) = app.store.live()
    below = descendants(export.pid)
    os.killpg(export.pid, number)
    assert export.wait(seconds=90) == 130, export.said
    assert "Traceback" not in export.said
    assert alive(below) == set()
    row = folder.row(process.id)
    assert row.owner is None and row.state not in PROCESS_TERMINAL
    code, _, said = folder.call("worker", "--until-idle")  # which needs no Spark for it
    assert code == 0, said
    folder.check_exported_once(process.id)
