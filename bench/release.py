"""Releasing freezes: inline in the task's slot, as a batch at the end, and by the drain.

    python bench/release.py --tables 1000 --release-ms 100

The control plane, its drain and its store are real; a table's copy and the server's UNFREEZE are
waits of the given lengths. Prints the seconds of slots held for releases (bound: about none), the wall
time, and what was pinned: the peak, and over time, since all tables are frozen at the beginning.
"""

import argparse
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from calve.control.ports import AdoptedWork, NothingToDo, Planned, Published, TaskOrder, TaskResult
from calve.control.worker import WorkerLoop
from calve.model.change import NewPin, PinChange, Result
from calve.model.ids import new_process_id
from calve.model.limits import Limits
from calve.model.process import NewProcess, NewTask, Pin, Process, Task
from calve.model.states import PIN_HELD, PROCESS_TERMINAL, PinState
from calve.store import open_store
from calve.testing.fake_kind import FakeKind
from calve.testing.fake_world import World

TABLE_MB = 1


@dataclass
class Pinned:
    """What the source holds: its peak, and its sum over time."""

    held: set[str] = field(default_factory=set)
    peak: int = 0
    mb_seconds: float = 0.0
    _since: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def change(self, name: str, *, held: bool) -> None:
        with self._lock:
            now = time.monotonic()
            self.mb_seconds += len(self.held) * TABLE_MB * (now - self._since)
            self._since = now
            (self.held.add if held else self.held.discard)(name)
            self.peak = max(self.peak, len(self.held) * TABLE_MB)


class Tables(FakeKind):
    """One pin and one task for each table; released by whoever the way says."""

    def __init__(self, tables: int, release_seconds: float, pinned: Pinned, *, way: str) -> None:
        super().__init__(World())
        self.tables, self.release_seconds, self.pinned, self.way = tables, release_seconds, pinned, way

    def pins(self, process: Process, attempt: int) -> tuple[NewPin, ...]:
        return tuple(
            NewPin(name=f"calve-{process.id}-{attempt + at}", source="main", detail="{}")
            for at in range(self.tables)
        )

    def take(self, process: Process, pin: Pin) -> PinChange:
        self.pinned.change(pin.name, held=True)
        return PinChange(name=pin.name, after=PinState.TAKEN)

    def plan(
        self, process: Process, pins: Sequence[Pin], adopted: AdoptedWork | None
    ) -> Planned | NothingToDo:
        return Planned(plan="{}", tasks=tuple(NewTask(number=n, spec="") for n in range(self.tables)))

    def order(self, process: Process, plan: str, task: Task, attempt: int) -> TaskOrder:
        pin = f"calve-{process.id}-{task.number + 1}"
        return TaskOrder(process_id=process.id, number=task.number, attempt=attempt, function="", payload=pin)

    def release(self, pin: Pin) -> None:
        if pin.name in self.pinned.held:
            time.sleep(self.release_seconds)
            self.pinned.change(pin.name, held=False)

    def publish(
        self, process: Process, plan: str, receipts: Sequence[str], note: Callable[[str], None]
    ) -> Published:
        note("{}")
        return Published(result=Result(rows=0, files=0, bytes=0), message="done")


class EarlyTables(Tables):
    def pin_tasks(self, process: Process, plan: str, number: int) -> tuple[str, range] | None:
        return f"calve-{process.id}-{number + 1}", range(number, number + 1)


class Slots:
    """A runner whose tasks copy, and, inline, release as well."""

    def __init__(self, slots: int, copy_seconds: float, kind: Tables) -> None:
        self.slots = slots
        self.copy_seconds, self.kind = copy_seconds, kind
        self.held_seconds = 0.0
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(slots)

    def run(self, group: str, orders: Sequence[TaskOrder], on_result: Callable[[TaskResult], None]) -> None:
        list(self._pool.map(lambda order: on_result(self._one(order)), orders))

    def _one(self, order: TaskOrder) -> TaskResult:
        time.sleep(self.copy_seconds)
        if self.kind.way == "inline":
            began = time.monotonic()
            time.sleep(self.kind.release_seconds)
            self.kind.pinned.change(order.payload, held=False)
            with self._lock:
                self.held_seconds += time.monotonic() - began
        return TaskResult(number=order.number, attempt=order.attempt, receipt="{}")

    def cancel(self, group: str) -> None:
        """Not asked for here."""

    def close(self) -> None:
        self._pool.shutdown()


def measure(way: str, args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(f"sqlite:///{Path(folder) / 'bench.db'}")
        pinned = Pinned()
        made = EarlyTables if way == "drain" else Tables
        kind = made(args.tables, args.release_ms / 1000, pinned, way=way)
        runner = Slots(args.slots, args.copy_ms / 1000, kind)
        limits = Limits(slots=args.slots, releases_at_once=args.releases, tick_seconds=0.02)
        worker = WorkerLoop(
            store=store, kinds={"fake": kind}, runner=runner, limits=limits,
            reach=frozenset({"source:main", "lake"}),
        )  # fmt: skip
        new = NewProcess(
            id=new_process_id(), kind="fake", source="main:db.*", destination="backups", lane="lake",
            needs=("lake",), request="{}",
        )  # fmt: skip
        store.submit([new])
        began = time.monotonic()
        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        while store.process(new.id).state not in PROCESS_TERMINAL or pinned.held:
            time.sleep(0.02)
        seconds = time.monotonic() - began
        while store.pins(new.id, PIN_HELD):
            time.sleep(0.02)
        worker.request_stop()
        thread.join(30)
        runner.close()
        store.close()
    print(
        f"{way:>8}: {seconds:6.1f} s in all, {runner.held_seconds:6.1f} s of slots held for releases, "
        f"peak {pinned.peak} MB pinned, {pinned.mb_seconds / args.tables / TABLE_MB:.1f} s a table on average"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--release-ms", type=float, default=100.0)
    parser.add_argument("--copy-ms", type=float, default=50.0)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--releases", type=int, default=4, help="releases at once, of the drain")
    args = parser.parse_args()
    for way in ("inline", "batch", "drain"):
        measure(way, args)


if __name__ == "__main__":
    main()
