"""A backup of parts that do not compress: to a folder, against a plain copy of the same files (`cp -r`, then `sync`:
files that are not on the disk yet are no backup); to S3, against the same files put by AWS's own client library (the
C++ SDK, through pyarrow). Kinds take turns.

Beside it: hard links, encryption, compression, each against the plain backup, and a second backup after 1 % of new
rows, which moves about 1 % of the bytes.
"""

import json
import os
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow.fs as pafs

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
from kit.report import Report, Run
from kit.world import folder
from support.kept_source import KeptSource
from support.s3 import S3Server, s3_server

TASKS_AT_ONCE = 2
ROW_BYTES = 108
BUCKET = "backups"


class Ports:
    limits = Limits()

    def __init__(
        self,
        url: str,
        source: LiveSource,
        *,
        hard_links: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._url, self._source = url, source
        self.hard_links = hard_links
        self._settings = dict(settings or {})

    def source(self, name: str) -> LiveSource:
        return self._source

    def location(self) -> Location:
        return Location(self._url, Storage(self._settings))

    def location_properties(self) -> dict[str, str]:
        return self._settings

    def disks_are_near(self, source: str) -> bool:
        return True


def back_up(ports: Ports, name: str) -> Run:
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
    return Run(
        seconds=round(seconds, 4),
        core_seconds=round(cpu_seconds, 3),
        detail={
            "mb": round(sum(one.bytes for one in read) / 1e6),
            "moved_mb": round(sum(one.moved_bytes for one in read) / 1e6, 1),
        },
    )


def _pin(new: NewPin, process_id: ProcessId) -> Pin:
    return Pin(name=new.name, process_id=process_id, source=new.source, detail=new.detail)


def plain_copy(folders: Sequence[Path], target: Path) -> Run:
    os.sync()
    began, cpu_began = time.perf_counter(), time.process_time()
    for at, one in enumerate(folders):
        shutil.copytree(one, target / str(at))
    os.sync()
    return _ran(began, cpu_began)


def put_by_client(folders: Sequence[Path], server: S3Server, prefix: str) -> Run:
    """What a copy to S3 takes without anything around it."""
    client = pafs.S3FileSystem(
        access_key=server.keys.access_key_id,
        secret_key=server.keys.secret_access_key,
        endpoint_override=server.endpoint,
        region=server.region,
    )
    began, cpu_began = time.perf_counter(), time.process_time()
    for at, one in enumerate(folders):
        pafs.copy_files(
            str(one), f"{BUCKET}/{prefix}/{at}", pafs.LocalFileSystem(), client, chunk_size=8 * 1024 * 1024
        )
    return _ran(began, cpu_began)


def _ran(began: float, cpu_began: float) -> Run:
    return Run(
        seconds=round(time.perf_counter() - began, 4), core_seconds=round(time.process_time() - cpu_began, 3)
    )


def main() -> None:
    report = Report("backup", __doc__)
    rows = (128 if report.quick else 1024) * 1_000_000 // ROW_BYTES
    runs = 2 if report.quick else 3
    with folder() as home, KeptSource(home / "clickhouse") as source, s3_server(home / "s3") as server:
        server.create_bucket(BUCKET)
        source.execute(
            "CREATE DATABASE db",
            "CREATE TABLE db.t (id UInt64, s String) ENGINE = MergeTree PARTITION BY id % 4 ORDER BY id"
            " SETTINGS max_bytes_to_merge_at_max_space_in_pool = 1",  # parts stay where the copies find them
            f"INSERT INTO db.t SELECT number, randomString(100) FROM numbers({rows})",  # does not compress
        )
        parts = [
            Path(row["path"])
            for row in source.select("SELECT path FROM system.parts WHERE active AND database = 'db'")
        ]
        for turn in range(runs):
            to_a_folder(report, home, source, parts)
            to_s3(report, source, server, parts, turn)
        increment(report, home, source, rows)
    for name, least in (("backup", 0.95), ("backup, hard links", 1.0)):
        report.ratio(
            f"{name} over plain copy", report.best("plain copy") / report.best(name), least, at_least=True
        )
    ratio = report.best("S3: AWS's client") / report.best("S3: backup")
    report.ratio("S3: backup over AWS's client", ratio, 0.95, at_least=True)
    for name in SEALED:
        report.ratio(f"{name} over backup", report.best("backup") / report.best(f"backup, {name}"))
    [second] = report.runs["second backup"]
    report.ratio(
        "second backup, share moved", second.detail["moved_mb"] / second.detail["mb"], 0.02, at_least=False
    )
    report.finish()


def to_a_folder(report: Report, home: Path, source: LiveSource, parts: Sequence[Path]) -> None:
    report.note("plain copy", plain_copy(parts, home / "copy"))
    shutil.rmtree(home / "copy")
    kinds = {
        "backup": Ports(f"file://{home}/plain", source),
        "backup, hard links": Ports(f"file://{home}/linked", source, hard_links=True),
    } | {
        f"backup, {name}": Ports(f"file://{home}/{name}", source, settings=settings)
        for name, settings in SEALED.items()
    }
    for name, ports in kinds.items():
        os.sync()
        report.note(name, back_up(ports, "full"))
        shutil.rmtree(ports.location().url.removeprefix("file://"))


def to_s3(report: Report, source: LiveSource, server: S3Server, parts: Sequence[Path], turn: int) -> None:
    report.note("S3: AWS's client", put_by_client(parts, server, f"client-{turn}"))
    ports = Ports(f"s3://{BUCKET}/calve-{turn}", source, settings=server.properties())
    report.note("S3: backup", back_up(ports, "full"))


def increment(report: Report, home: Path, source: KeptSource, rows: int) -> None:
    ports = Ports(f"file://{home}/plain", source)
    back_up(ports, "full")
    source.execute(f"INSERT INTO db.t SELECT number, randomString(100) FROM numbers({rows}, {rows // 100})")
    report.note("second backup", back_up(ports, "increment"))
    assert len(archived.listed(ports.location())) == 2


_KEY = secrets.token_hex(32)
SEALED = {
    "encrypted": properties(keys=_KEY),
    "zstd": properties(keys="", compression="zstd"),
    "both": properties(keys=_KEY, compression="zstd"),
}


if __name__ == "__main__":
    main()
