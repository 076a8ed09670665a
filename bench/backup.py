"""Bytes a second of a backup against a plain copy of the same files to the same place.

    python bench/backup.py --mb 4096

The plain copy is what `cp -r` followed by `sync` does: files that are not on the disk yet are no
backup. Then the same with hard links (`[backup] hard_links`), and a second backup after 1 % of new
data: what it moves, over what there is. Bounds: at least 0.8 of the plain copy, 1.0 with hard links;
about 1 % moved. Encryption and compression are compared with the plain backup of the same run. Kinds take turns, and the best run of each counts: a busy machine is busy for all.
"""

import argparse
import json
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from calve.archive import backups as archived
from calve.archive.location import Location
from calve.archive.vault import properties
from calve.backup import submit
from calve.backup.kind import BackupKind
from calve.backup.plan import BackupReceipt
from calve.backup.task import run
from calve.clickhouse.source import LiveSource
from calve.model.change import NewPin
from calve.model.limits import Limits
from calve.model.process import Pin, ProcessId, Task
from calve.model.states import PinState, TaskState
from calve.objects.storage import Storage
from calve.testing.clock import FakeClock
from calve.testing.memory_store import MemoryStore
from support.kept_source import KeptSource

BOUND = 0.8
LINKED_BOUND = 1.0
TASKS_AT_ONCE = 2


class Ports:
    limits = Limits()

    def __init__(
        self,
        folder: Path,
        source: LiveSource,
        *,
        hard_links: bool = False,
        sealing: Mapping[str, str] | None = None,
    ) -> None:
        self._folder, self._source = folder, source
        self.hard_links = hard_links
        self._sealing = dict(sealing or {})

    def source(self, name: str) -> LiveSource:
        return self._source

    def location(self) -> Location:
        return Location(f"file://{self._folder}", Storage(self._sealing))

    def location_properties(self) -> dict[str, str]:
        return self._sealing


@dataclass
class Measured:
    """What the copying took; CPU seconds are what a busy machine does not distort."""

    seconds: float
    cpu_seconds: float
    bytes: int = 0
    moved_bytes: int = 0


def back_up(ports: Ports, name: str) -> Measured:
    kind, store = BackupKind(ports), MemoryStore(FakeClock())
    request = submit.request_of(ports, name, "main", ["db.*"])
    process = submit.submit(ports, store, request).process
    pins = [
        replace(_pin(new, process.id), detail=change.detail or "", state=PinState.TAKEN)
        for new in kind.pins(process, 1)
        for change in kind.take(process, [_pin(new, process.id)])
    ]
    planned = kind.plan(process, pins, None)
    plan = planned.plan  # type: ignore[union-attr]
    tasks = [
        Task(process_id=process.id, number=one.number, state=TaskState.RUNNING, attempt=1, spec="")
        for one in planned.tasks  # type: ignore[union-attr]
    ]
    orders = [kind.order(process, plan, task, 1) for task in tasks]
    began, cpu_began = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(TASKS_AT_ONCE) as pool:
        answers = list(pool.map(run, [order.payload for order in orders]))
    os.sync()
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    receipts = [json.loads(answer)["receipt"] for answer in answers]
    kind.publish(process, plan, receipts, lambda _: None)
    for pin in pins:
        kind.release(pin)
    read = [BackupReceipt.from_json(text) for text in receipts]
    return Measured(
        seconds, cpu_seconds, sum(one.bytes for one in read), sum(one.moved_bytes for one in read)
    )


def _pin(new: NewPin, process_id: ProcessId) -> Pin:
    return Pin(name=new.name, process_id=process_id, source=new.source, detail=new.detail)


def plain_copy(folders: Sequence[Path], target: Path) -> Measured:
    os.sync()
    began, cpu_began = time.perf_counter(), time.process_time()
    for at, folder in enumerate(folders):
        shutil.copytree(folder, target / str(at))
    os.sync()
    return Measured(time.perf_counter() - began, time.process_time() - cpu_began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=1024, help="data to back up")
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="calve-bench-")))
        source = stack.enter_context(KeptSource(root / "clickhouse"))
        rows = args.mb * 1_000_000 // 108  # random bytes do not compress
        source.execute(
            "CREATE DATABASE db",
            "CREATE TABLE db.t (id UInt64, s String) ENGINE = MergeTree PARTITION BY id % 4 ORDER BY id",
            f"INSERT INTO db.t SELECT number, randomString(100) FROM numbers({rows})",
        )
        parts = [
            Path(row["path"])
            for row in source.select("SELECT path FROM system.parts WHERE active AND database = 'db'")
        ]
        copies: list[Measured] = []
        backups: list[Measured] = []
        linked: list[Measured] = []
        key = secrets.token_hex(32)
        sealings = {
            "encrypted": properties(keys=key),
            "zstd": properties(keys="", compression="zstd"),
            "both": properties(keys=key, compression="zstd"),
        }
        sealed: dict[str, list[Measured]] = {name: [] for name in sealings}
        for at in range(args.runs):
            copies.append(plain_copy(parts, root / f"copy-{at}"))
            shutil.rmtree(root / f"copy-{at}")
            linked.append(back_up(Ports(root / f"linked-{at}", source, hard_links=True), "full"))
            shutil.rmtree(root / f"linked-{at}")
            for name, sealing in sealings.items():
                sealed[name].append(back_up(Ports(root / name, source, sealing=sealing), "full"))
                shutil.rmtree(root / name)
            backups.append(back_up(Ports(root / f"backup-{at}", source), "full"))
            if at + 1 < args.runs:
                shutil.rmtree(root / f"backup-{at}")
        copied, backed_up, links = (
            min(found, key=lambda one: one.seconds) for found in (copies, backups, linked)
        )
        print(f"{backed_up.bytes / 1e6:.0f} MB in {len(parts)} parts, load {os.getloadavg()[0]:.1f}")
        size = backed_up.bytes
        best = {name: min(found, key=lambda one: one.seconds) for name, found in sealed.items()}
        for name, found in (
            ("plain copy", copied), ("backup", backed_up), ("hard links", links), *best.items()
        ):  # fmt: skip
            print(f"{name:>10}: {size / found.seconds / 1e6:6.0f} MB/s, {found.cpu_seconds:.2f} CPU s")
        print(f"backup over plain copy: {copied.seconds / backed_up.seconds:.2f} (bound {BOUND})")
        print(f"hard links over plain copy: {copied.seconds / links.seconds:.2f} (bound {LINKED_BOUND})")
        for name, found in best.items():
            ratio, cpu = backed_up.seconds / found.seconds, found.cpu_seconds / backed_up.cpu_seconds
            print(f"{name} over plain backup: {ratio:.2f}, with {cpu:.1f} times its CPU seconds")
        source.execute(
            f"INSERT INTO db.t SELECT number, randomString(100) FROM numbers({rows}, {rows // 100})"
        )
        ports = Ports(root / f"backup-{args.runs - 1}", source)
        second = back_up(ports, "increment")
        share = second.moved_bytes / second.bytes
        print(f"second backup after 1 % new data: {share:.2%} of the bytes moved, in {second.seconds:.2f} s")
        assert len(archived.listed(ports.location())) == 2


if __name__ == "__main__":
    main()
