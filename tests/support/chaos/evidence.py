"""What is there at the end, gathered past the proxies: from the store, the lake, the bucket, ClickHouse and the machine."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from calve.model.process import Event, Pin, Process, ProcessQuery
from calve.model.states import PIN_HELD, ProcessState
from calve.restore.plan import RestoreRequest
from calve.store import open_store
from support.chaos.chronicle import Chronicle, Landed, rows, rows_of
from support.chaos.fleet import Fleet
from support.chaos.foreign import Effect
from support.chaos.ledger import Ledger, Row
from support.chaos.world import BUCKET, World


@dataclass(kw_only=True)
class Restored:
    """A table that a restore made."""

    process_id: str
    backup: str  # the process that made the backup
    table: str
    rows: list[Row]


@dataclass(kw_only=True)
class Evidence:
    """Plain values, so that a test can plant a fault in them."""

    ledger: Ledger
    processes: Sequence[Process]
    events: Mapping[str, Sequence[Event]] = field(default_factory=dict)
    pins_held: Sequence[Pin] = ()
    landed: Mapping[str, Sequence[Landed]] = field(default_factory=dict)  # by table, in order
    published: dict[tuple[str, int], list[Row]] = field(default_factory=dict)  # of Calve's snapshots
    effects: Mapping[str, Effect] = field(default_factory=dict)
    lake: dict[str, list[Row]] = field(default_factory=dict)  # by table, what a reader sees
    referenced: set[str] = field(default_factory=set)  # by some snapshot that is there
    objects: set[str] = field(default_factory=set)  # data files and receipts in the bucket
    restored: list[Restored] = field(default_factory=list)
    clones: Sequence[str] = ()
    frozen: Sequence[str] = ()
    programs_left: Sequence[str] = ()
    files_left: Sequence[str] = ()
    logs: Mapping[str, str] = field(default_factory=dict)


def gather(world: World, ledger: Ledger, chronicle: Chronicle, effects: Mapping[str, Effect]) -> Evidence:
    """All but what is known once the programs have ended."""
    with open_store(world.store_url) as store:
        processes = store.processes(ProcessQuery(limit=10_000))
        found = Evidence(
            ledger=ledger,
            processes=processes,
            events={one.id: store.events(one.id, limit=10_000) for one in processes},
            pins_held=store.pins(states=PIN_HELD),
            effects=effects,
        )
    chronicle.look(ledger.tables)
    landed = {}
    for name in ledger.tables:
        landed[name] = chronicle.of(name)
        _lake(found, chronicle, name, landed[name])
    found.landed = landed
    found.objects = set(_objects(world))
    found.clones, found.frozen = clones(world), frozen(world)
    found.restored = list(_restored(world, found))
    return found


def clones(world: World) -> list[str]:
    return [
        one["name"]
        for one in world.rows("SELECT name FROM system.tables WHERE database = 'calve_pins' ORDER BY name")
    ]


def frozen(world: World) -> list[str]:
    """Freezes that hold a file: UNFREEZE leaves empty folders."""
    shadow = world.clickhouse.data / "shadow"
    folders = [one for one in shadow.iterdir() if one.is_dir()] if shadow.is_dir() else []
    return sorted(one.name for one in folders if any(path.is_file() for path in one.rglob("*")))


def _lake(found: Evidence, chronicle: Chronicle, name: str, landed: Sequence[Landed]) -> None:
    table = chronicle.table(name)
    if table is None:
        found.lake[name] = []
        return
    found.lake[name] = rows(table.scan().to_arrow())
    for one in landed:
        if one.process_id and one.added and one.operation != "replace":
            found.published[name, one.snapshot_id] = rows_of(table, one.added)
    for snapshot in table.metadata.snapshots:
        for manifest in snapshot.manifests(table.io):
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                found.referenced.add(entry.data_file.file_path)


_LISTED = re.compile(rb"<Key>([^<]+)</Key>")
_NEXT = re.compile(rb"<NextContinuationToken>([^<]+)</NextContinuationToken>")


def _objects(world: World) -> list[str]:
    """Data files and receipts below the lake."""
    found: list[str] = []
    token = ""
    while True:
        query = {"list-type": "2", "prefix": "lake/"} | ({"continuation-token": token} if token else {})
        status, body = world.s3.request("GET", f"/{BUCKET}", query=query)
        assert status == 200, body
        found += [f"s3://{BUCKET}/{key.decode()}" for key in _LISTED.findall(body)]
        after = _NEXT.search(body)
        if after is None:
            return [one for one in found if one.endswith(".parquet") or "/metadata/calve/" in one]
        token = after[1].decode()


def _restored(world: World, found: Evidence) -> Iterator[Restored]:
    """What completed restores made, read from ClickHouse."""
    for process in found.processes:
        if process.kind == "restore" and process.state is ProcessState.COMPLETED:
            request = RestoreRequest.from_json(process.request)
            for item in request.items:
                if item.name in found.ledger.tables:
                    yield Restored(
                        process_id=process.id,
                        backup=request.backup_process,
                        table=item.name,
                        rows=_clickhouse_rows(world, f"{item.to_database}.{item.to_name}"),
                    )


def _clickhouse_rows(world: World, table: str) -> list[Row]:
    read = world.rows(
        "SELECT id, p, version, payload, toInt64(amount * 100) AS cents, toUnixTimestamp(at) AS at"
        f" FROM {table}"
    )
    return [
        Row(
            id=int(one["id"]),
            p=int(one["p"]),
            version=int(one["version"]),
            payload=one["payload"],
            cents=int(one["cents"]),
            at=int(one["at"]),
        )
        for one in read
    ]


def after_the_end(found: Evidence, fleet: Fleet) -> None:
    """What the programs left behind."""
    found.programs_left = fleet.left()
    for one in fleet.workers:
        if one.disk is not None:
            _sweep(one.disk.folder)
    found.files_left = [
        str(path.relative_to(one.disk.folder.parent))
        for one in fleet.workers
        if one.disk is not None
        for path in one.disk.folder.rglob("*")
        if path.is_file() and not _is_kept_log(path)
    ]
    found.logs = {one.name: one.log.read_text(errors="replace") for one in fleet.all}


def _is_kept_log(path: Path) -> bool:
    """Spark's log of a program that was killed stays for a week, and says so. And PySpark's note of a JVM's port, where
    the program was killed while that started."""
    log = path.name.startswith("calve-spark-") and path.suffix == ".log"
    return log or (path.name.startswith("tmp") and path.parent.name.startswith("tmp"))


def _sweep(folder: Path) -> None:
    """What the next program on that machine does before it starts an engine there, by the product's own hand."""
    sweep = "from calve.clickhouse.engine.folders import sweep, sweep_scratch; sweep(0.0); sweep_scratch()"
    subprocess.run([sys.executable, "-c", sweep], env=os.environ | {"TMPDIR": str(folder)}, check=True)
