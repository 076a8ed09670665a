"""What the control plane itself costs: a runner that does nothing, and many tasks.

Through SQLite and PostgreSQL. Prints milliseconds a task (bound: 5), the largest over the smallest
(bound: 1.2), both decided by CPU, so that a busy machine does not count, and the peak of memory; with
`--trace` also how it grew. Ends with 1 if a bound is broken.
"""

import argparse
import gc
import json
import os
import resource
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from calve.control.background import inline
from calve.control.kind import AdoptedWork, NothingToDo, Planned, Published
from calve.control.ports import Store, TaskOrder
from calve.control.worker import WorkerLoop
from calve.model.change import NewPin, Result
from calve.model.limits import Limits
from calve.model.process import NewProcess, NewTask, Pin, Process, Task, new_process_id
from calve.model.states import PROCESS_TERMINAL, ProcessState
from calve.store import open_store
from calve.testing.fake_kind import FakeKind
from calve.testing.fake_runner import NoOpRunner
from calve.testing.fake_world import World
from support.postgres import postgres

BOUND = 1.2
BOUND_MS = 5.0


class NoOpKind(FakeKind):
    """Plans tasks and publishes nothing."""

    def pins(self, process: Process, attempt: int) -> tuple[NewPin, ...]:
        return ()

    def plan(
        self, process: Process, pins: Sequence[Pin], adopted: AdoptedWork | None
    ) -> Planned | NothingToDo:
        count = int(json.loads(process.request)["tasks"])
        return Planned(plan="{}", tasks=tuple(NewTask(number=n, spec="{}") for n in range(count)))

    def order(self, process: Process, plan: str, task: Task, attempt: int) -> TaskOrder:
        return TaskOrder(process_id=process.id, number=task.number, attempt=attempt, function="", payload="")

    def publish(
        self, process: Process, plan: str, receipts: Sequence[str], note: Callable[[str], None]
    ) -> Published:
        note("{}")
        return Published(result=Result(rows=len(receipts), files=0, bytes=0), message="done")


@dataclass
class Measured:
    tasks: int
    seconds: float
    cpu_seconds: float  # of this program: what a busy machine does not distort
    grown_mb: float  # what the worker's own memory grew by while tasks ran
    server_seconds: float = 0.0  # CPU of the database server, where it is a program of its own

    @property
    def ms_a_task(self) -> float:
        return self.seconds * 1000 / self.tasks

    @property
    def cpu_ms_a_task(self) -> float:
        return self.cpu_seconds * 1000 / self.tasks

    @property
    def all_cpu_ms_a_task(self) -> float:
        """The worker's and the database's: what grows, grows in one of them, however busy the machine."""
        return (self.cpu_seconds + self.server_seconds) * 1000 / self.tasks


def server_cpu_seconds(postmaster: int) -> float:
    """Of a PostgreSQL and its children, those that ended included. Linux only."""
    ticks = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            after_name = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile: then it is in its parent's count
            continue
        parent, (user, system, child_user, child_system) = int(after_name[1]), map(int, after_name[11:15])
        if int(folder.name) == postmaster:
            ticks += user + system + child_user + child_system
        elif parent == postmaster:
            ticks += user + system
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(store: Store, tasks: int, slots: int, *, trace: bool, postmaster: int | None = None) -> Measured:
    worker = WorkerLoop(
        store=store,
        kinds={"fake": NoOpKind(World())},
        runner=NoOpRunner(slots=slots),
        limits=Limits(slots=slots),
        reach=frozenset({"lake"}),
        spawn=inline,
    )
    new = NewProcess(
        id=new_process_id(), kind="fake", source="main:db.t", destination="lake.ns.t", lane="lake",
        needs=("lake",), request=json.dumps({"tasks": tasks}),
    )  # fmt: skip
    store.submit([new])
    server_began = server_cpu_seconds(postmaster) if postmaster else 0.0
    began, cpu_began = time.perf_counter(), time.process_time()
    while store.process(new.id).state is ProcessState.PENDING:
        worker.tick()
    grown = _run_tasks(worker, store, new, trace=trace)
    while store.process(new.id).state not in PROCESS_TERMINAL:
        worker.tick()
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    ended = store.process(new.id)
    assert ended.state is ProcessState.COMPLETED, ended.error
    assert ended.tasks.done == tasks
    server_seconds = server_cpu_seconds(postmaster) - server_began if postmaster else 0.0
    return Measured(
        tasks=tasks,
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        grown_mb=grown / 1e6,
        server_seconds=server_seconds,
    )


def best(store: Store, tasks: int, slots: int, *, trace: bool, postmaster: int | None) -> Measured:
    """Short runs are repeated: one that another program disturbed says nothing."""
    runs = max(1, min(5, 10_000 // tasks))
    measured = [measure(store, tasks, slots, trace=trace, postmaster=postmaster) for _ in range(runs)]
    return min(measured, key=lambda run: run.all_cpu_ms_a_task)


def _run_tasks(worker: WorkerLoop, store: Store, new: NewProcess, *, trace: bool) -> int:
    """Until all tasks are done; how many bytes of Python's memory that added."""
    for _ in range(5):
        worker.tick()
    if trace:
        tracemalloc.start()
    while store.process(new.id).state is ProcessState.RUNNING:
        worker.tick()
    gc.collect()  # what waits for the collector has not grown
    grown = tracemalloc.get_traced_memory()[0] if trace else 0
    tracemalloc.stop()
    return grown


def stores(stack: ExitStack, url: str) -> Iterator[tuple[str, Store, int | None]]:
    """Each by its name, with the process of its server where it has one: the one that was named, or an
    empty SQLite and then an empty PostgreSQL."""
    if url:
        yield "the store", _opened(stack, url), None
        return
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    yield "SQLite", _opened(stack, f"sqlite:///{Path(folder) / 'bench.db'}"), None
    server = stack.enter_context(postgres())
    yield "PostgreSQL", _opened(stack, server.new_database()), server.pid


def _opened(stack: ExitStack, url: str) -> Store:
    store = open_store(url)
    stack.callback(store.close)
    return store


def show(name: str, results: Sequence[Measured], *, traced: bool) -> bool:
    """Whether the bounds hold."""
    print(f"-- {name}")
    for result in results:
        memory = f", memory grew by {result.grown_mb:.2f} MB" if traced else ""
        cpu = f"{result.cpu_ms_a_task:.3f} ms of CPU here"
        if result.server_seconds:
            cpu += f" and {result.server_seconds * 1000 / result.tasks:.3f} in the server"
        print(
            f"{result.tasks:>8} tasks: {result.ms_a_task:.3f} ms a task, {cpu} ({result.seconds:.1f} s){memory}"
        )
    smallest, largest = results[0], results[-1]
    ratio = largest.ms_a_task / smallest.ms_a_task
    cpu_ratio = largest.all_cpu_ms_a_task / smallest.all_cpu_ms_a_task
    print(f"largest over smallest: {cpu_ratio:.2f} in CPU (bound {BOUND}), {ratio:.2f} on the clock")
    return cpu_ratio <= BOUND and largest.all_cpu_ms_a_task < BOUND_MS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", default="", help="URL of an empty store, instead of one of each kind")
    parser.add_argument("--tasks", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--trace", action="store_true", help="measure memory (slower)")
    args = parser.parse_args()
    hold = True
    with ExitStack() as stack:
        for name, store, postmaster in stores(stack, args.store):
            measure(store, 200, args.slots, trace=False)  # warm
            results = [
                best(store, tasks, args.slots, trace=args.trace, postmaster=postmaster)
                for tasks in args.tasks
            ]
            hold = show(name, results, traced=args.trace) and hold
    load = os.getloadavg()[0]
    print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB; load {load:.1f}")
    return 0 if hold else 1


if __name__ == "__main__":
    sys.exit(main())
