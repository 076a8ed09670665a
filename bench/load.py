"""1,000 processes with 100,000 tasks, submitted at once, over four worker programs that share a PostgreSQL, with a runner
that does nothing: is anything lost, how long does a process take, how long a call to the store, how much memory.

Afterwards every row is read: each process COMPLETED with all its tasks, each task DONE at its first attempt, no lease
and no event missing.
"""

import json
import logging
import multiprocessing
import statistics
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from calve.control.ports import Store
from calve.control.worker import WorkerLoop
from calve.model.limits import Limits
from calve.model.process import NewProcess, Process, ProcessQuery, new_process_id
from calve.model.states import ProcessState, TaskState
from calve.store import open_store
from calve.testing.fake_runner import NoOpRunner
from kit.report import Report, core_seconds, peak_mb, tree
from kit.world import folder
from scale_simulation import LANE, NoOpKind, Place
from support.postgres import postgres

WORKERS, SLOTS, LEASE_SECONDS = 4, 16, 30.0
SUBMITTED_TOGETHER = 100


class TimedStore:
    """A store, and how long each of its calls took."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.seconds: dict[str, list[float]] = defaultdict(list)

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)
        return partial(self._timed, name, real) if callable(real) else real

    def _timed(self, name: str, real: Callable[..., Any], *given: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return real(*given, **named)
        finally:
            self.seconds[name].append(time.perf_counter() - began)


def work(place: Place, over: Event, told: str) -> None:
    """A worker program."""
    logging.disable(logging.WARNING)
    with open_store(place.store) as real:
        store = TimedStore(real)
        loop = WorkerLoop(
            store=store,  # type: ignore[arg-type]
            kinds={"fake": NoOpKind(place.open_catalog())},
            runner=NoOpRunner(slots=SLOTS),
            limits=Limits(slots=SLOTS, lease_seconds=LEASE_SECONDS),
            reach=frozenset({LANE}),
        )
        loop.run(over.is_set)
    Path(told).write_text(json.dumps(store.seconds))


def submit(store: Store, processes: int, tasks: int) -> None:
    new = [
        NewProcess(
            id=new_process_id(), kind="fake", source="main:db.t", destination=f"lake.ns.{number}",
            lane=LANE, needs=(LANE,), request=json.dumps({"tasks": tasks}),
        )
        for number in range(processes)
    ]  # fmt: skip
    for first in range(0, processes, SUBMITTED_TOGETHER):
        store.submit(new[first : first + SUBMITTED_TOGETHER])


def lost(store: Store, processes: Sequence[Process], tasks: int) -> list[str]:
    """What is not as it must be."""
    found = []
    for one in processes:
        if one.state is not ProcessState.COMPLETED or one.owner is not None or one.rows != tasks:
            found.append(
                f"{one.id} is {one.state} with {one.rows} of {tasks}, owner {one.owner}: {one.error}"
            )
        rows = store.tasks(one.id)
        if Counter((task.state, task.attempt) for task in rows) != {(TaskState.DONE, 1): tasks}:
            found.append(f"{one.id} has tasks {Counter((str(task.state), task.attempt) for task in rows)}")
        names = [event.name for event in store.events(one.id)]
        if (names[0], names[-1], names.count("completed")) != ("submitted", "completed", 1):
            found.append(f"{one.id} has events {names}")
    return found


def watch(store_url: str, over: threading.Event, seconds: list[float]) -> None:
    """A person who lists what runs, every half second: how long the answer takes meanwhile."""
    with open_store(store_url) as store:
        while not over.wait(0.5):
            began = time.perf_counter()
            store.processes(ProcessQuery(limit=50))
            seconds.append(time.perf_counter() - began)


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """In milliseconds."""
    cut = statistics.quantiles(seconds, n=100)
    return {name: round(cut[n - 1] * 1000, 1) for name, n in (("p50", 50), ("p95", 95), ("p99", 99))}


def main() -> None:
    report = Report("load", __doc__)
    processes, tasks = (100, 20) if report.quick else (1_000, 100)
    with folder() as home, postgres() as server:
        place = Place(
            store=server.new_database(), catalog=server.new_database(), warehouse=f"file://{home}/warehouse"
        )
        place.open_catalog().create_namespace("ns")
        context = multiprocessing.get_context("spawn")
        over, looked, looking = context.Event(), list[float](), threading.Event()
        with open_store(place.store) as store:
            programs: list[BaseProcess] = [
                context.Process(target=work, args=(place, over, f"{home}/calls-{n}.json"))
                for n in range(WORKERS)
            ]
            for program in programs:
                program.start()
            while len(store.workers()) < WORKERS:
                time.sleep(0.1)
            viewer = threading.Thread(target=watch, args=(place.store, looking, looked))
            viewer.start()
            before = tree(server.pid)
            with report.timed(f"{processes * tasks:,} tasks") as run:
                submit(store, processes, tasks)
                while store.live(limit=1):
                    time.sleep(0.5)
                run.detail["postgres_core_s"] = round(core_seconds(before, tree(server.pid)), 2)
                run.detail["worker_peak_mb"] = [round(peak_mb(one.pid or 0)) for one in programs]
            looking.set()
            viewer.join()
            over.set()
            for program in programs:
                program.join()
            rows = store.processes(ProcessQuery(limit=10 * processes))
            wrong = lost(store, rows, tasks)
        calls: dict[str, list[float]] = defaultdict(list)
        for number in range(WORKERS):
            for name, seconds in json.loads((home / f"calls-{number}.json").read_text()).items():
                calls[name] += seconds
    assert len(rows) == processes and not wrong, wrong[:5]
    ended = [one for one in rows if one.finished_at is not None]
    took = [(one.finished_at - one.created_at).total_seconds() for one in ended if one.finished_at]
    run.detail |= {
        "submit_to_done_ms": percentiles(took),
        "list_of_50_ms": percentiles(looked),
        "store_calls": sum(map(len, calls.values())),
        "store_calls_ms": {
            name: percentiles(seconds)
            for name, seconds in sorted(calls.items(), key=lambda one: -sum(one[1]))[:6]
            if len(seconds) > 1
        },
    }
    print(json.dumps(run.detail, indent=1))
    cores = report.cores(f"{processes * tasks:,} tasks")
    report.ratio(
        "ms of CPU a task, PostgreSQL beside it", 1000 * cores / (processes * tasks), 5, at_least=False
    )
    report.ratio("MB of the largest worker", max(run.detail["worker_peak_mb"]), 400, at_least=False)
    report.ratio("lost", 0, 0)
    report.finish()


if __name__ == "__main__":
    main()
