"""Releasing freezes: inline in the task's slot, as a batch at the end, and by the drain.

    python bench/release.py --tables 1000 --release-ms 100

A backup of 1,000 tables of a ClickHouse server: the HTTP front, whose every UNFREEZE takes so much
longer. The backup, the control plane, its store, the freezes and the copies are real. Measured from
the first copy on, since taking the freezes is the same for all three: the seconds of slots held for
releases (bound: about none, against 100 s inline), the wall time until the backup stands and until
the last freeze is gone, and what was pinned: the peak, and how long a table was on average.
"""

import argparse
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from calve.archive.location import Location
from calve.backup import submit
from calve.backup.frozen import Frozen
from calve.backup.kind import BackupKind
from calve.backup.task import BackupPayload, run
from calve.clickhouse.server.source import ServerOptions, ServerSource
from calve.clickhouse.source import LiveSource
from calve.control.ports import TaskOrder, TaskResult
from calve.control.worker import WorkerLoop
from calve.model.change import PinChange
from calve.model.limits import Limits
from calve.model.process import Pin, Process
from calve.model.states import PIN_HELD, PROCESS_TERMINAL
from calve.objects.storage import Storage
from calve.store import open_store
from support.clickhouse_front import NO_USERS, ClickHouseFront, FrontOptions, clickhouse_front

WAYS = ("inline", "batch", "drain")
STAND_INS = {**NO_USERS, "serverUUID()": "toUUID('11111111-2222-3333-4444-555555555555')"}
ROWS = 1000


@dataclass
class Pinned:
    """What the source holds: its peak, and its sum over time since the first copy."""

    held: dict[str, int] = field(default_factory=dict)  # bytes by pin
    peak: int = 0
    table_seconds: float = 0.0
    since: float | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, name: str, size: int) -> None:
        with self._lock:
            self.held[name] = size
            self.peak = max(self.peak, sum(self.held.values()))

    def begin(self) -> None:
        with self._lock:
            self.since = self.since or time.monotonic()

    def let_go(self, name: str) -> None:
        with self._lock:
            if self.held.pop(name, None) is not None and self.since is not None:
                self.table_seconds += time.monotonic() - self.since


class Ports:
    hard_links = False

    def __init__(self, folder: Path, source: LiveSource, limits: Limits) -> None:
        self.folder, self.limits, self._source = folder, limits, source

    def source(self, name: str) -> LiveSource:
        return self._source

    def location(self) -> Location:
        return Location(f"file://{self.folder}", Storage())

    def location_properties(self) -> dict[str, str]:
        return {}


class Tables(BackupKind):
    """The backup kind, watched. Only the drain's way knows which tasks a pin is needed for."""

    def __init__(self, ports: Ports, pinned: Pinned, *, way: str) -> None:
        super().__init__(ports)
        self.pinned, self.way = pinned, way
        self.pins_by_path: dict[str, Pin] = {}

    def take(self, process: Process, pins: Sequence[Pin]) -> list[PinChange]:
        changes = super().take(process, pins)
        for pin, change in zip(pins, changes, strict=True):
            frozen = Frozen.from_json(change.detail or "")
            self.pinned.take(pin.name, frozen.table.bytes if frozen.table else 0)
            taken = Pin(
                name=pin.name, process_id=pin.process_id, source=pin.source, detail=change.detail or ""
            )
            self.pins_by_path |= dict.fromkeys(frozen.paths, taken)
        return changes

    def pin_tasks(self, process: Process, plan: str, number: int) -> tuple[str, range] | None:
        return super().pin_tasks(process, plan, number) if self.way == "drain" else None

    def release(self, pin: Pin) -> None:
        super().release(pin)
        self.pinned.let_go(pin.name)


class Slots:
    """A runner of so many slots. Inline, a slot that has copied its table releases it as well."""

    def __init__(self, slots: int, kind: Tables) -> None:
        self.slots, self.kind = slots, kind
        self.held_seconds = 0.0
        self.began: float | None = None
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(slots)

    def run(self, group: str, orders: Sequence[TaskOrder], on_result: Callable[[TaskResult], None]) -> None:
        self.began = self.began or time.monotonic()
        self.kind.pinned.begin()
        list(self._pool.map(lambda order: on_result(self._one(order)), orders))

    def _one(self, order: TaskOrder) -> TaskResult:
        answer = json.loads(run(order.payload))
        if self.kind.way == "inline":
            [upload, *_] = BackupPayload.from_json(order.payload).uploads
            began = time.monotonic()
            self.kind.release(self.kind.pins_by_path[upload.path])
            with self._lock:
                self.held_seconds += time.monotonic() - began
        return TaskResult(number=order.number, attempt=order.attempt, **answer)

    def cancel(self, group: str) -> None:
        """Not asked for here."""

    def close(self) -> None:
        self._pool.shutdown()


def measure(way: str, source: LiveSource, folder: Path, args: argparse.Namespace) -> None:
    limits = Limits(slots=args.slots, releases_at_once=args.releases, tick_seconds=0.05)
    ports, pinned = Ports(folder / way, source, limits), Pinned()
    kind = Tables(ports, pinned, way=way)
    runner = Slots(args.slots, kind)
    store = open_store(f"sqlite:///{folder / f'{way}.db'}")
    worker = WorkerLoop(
        store=store, kinds={"backup": kind}, runner=runner, limits=limits,
        reach=frozenset({"source:main", f"backup:{ports.location().url}"}),
    )  # fmt: skip
    process = submit.submit(ports, store, submit.request_of(ports, way, "main", ["db.*"])).process
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    stood = 0.0
    while store.process(process.id).state not in PROCESS_TERMINAL or store.pins(process.id, PIN_HELD):
        time.sleep(0.05)
        if not stood and store.process(process.id).state in PROCESS_TERMINAL:
            stood = time.monotonic()
    ended = time.monotonic()
    worker.request_stop()
    thread.join(30)
    runner.close()
    row = store.process(process.id)
    store.close()
    assert row.error is None and runner.began is not None, row.error
    print(
        f"{way:>7}: {runner.held_seconds:6.1f} s of slots held for releases; backup after "
        f"{(stood or ended) - runner.began:5.1f} s, last freeze gone after {ended - runner.began:5.1f} s; "
        f"peak {pinned.peak / 1e6:.1f} MB pinned, {pinned.table_seconds / args.tables:.1f} s a table on average",
        flush=True,
    )


def fill(source: ServerSource, tables: int) -> None:
    with source.visit() as session:
        session.execute("CREATE DATABASE db")

    def make(number: int) -> None:
        with source.visit() as session:
            name = f"db.t{number:04}"
            session.execute(f"CREATE TABLE {name} (id UInt64, s String) ENGINE = MergeTree ORDER BY id")
            session.execute(
                f"INSERT INTO {name} SELECT number + {number}, randomString(20) FROM numbers({ROWS})"
            )

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(make, range(tables)))


@contextmanager
def front(folder: Path, release_seconds: float) -> Iterator[ClickHouseFront]:
    options = FrontOptions(stand_ins=STAND_INS, delays={"UNFREEZE": release_seconds})
    with clickhouse_front(folder, options) as started:
        yield started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--release-ms", type=float, default=100.0)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--releases", type=int, default=4, help="releases at once, of the drain")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="calve-bench-") as root, front(Path(root) / "front", args.release_ms / 1000) as server:  # fmt: skip
        source = ServerSource("main", ServerOptions(url=server.url, disks={"default": str(server.data)}))
        fill(source, args.tables)
        print(
            f"{args.tables} tables, {args.release_ms:g} ms added to each UNFREEZE, load {os.getloadavg()[0]:.1f}"
        )
        for way in WAYS:
            measure(way, source, Path(root), args)


if __name__ == "__main__":
    main()
