"""`calve serve` on 1,000 processes with 100,000 tasks: the 99th percentile of lists, of `show` and of `why`, alone and
with 100 viewers on the event stream while 20 events a second are written; its memory; what it asks the store. Against
a store of a tenth, and against one viewer, in the same run."""

import json
import re
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from calve.model.change import Change, MoveTo, TaskChange, WritePlan
from calve.model.process import NewProcess, NewTask, Process, ProcessId, WorkerId
from calve.model.states import ProcessState, TaskState
from calve.store import SqlStore, open_store
from calve.testing.contracts.contract import REACH, lease_of
from kit.report import Report, Run, core_seconds, peak_mb, tree
from support.served import Served

LARGE, TASKS = 1_000, 100
VIEWERS, EVENTS_A_SECOND = 100, 20
SETTINGS = """
[source.main]
url = "chdb://clickhouse"
[catalog.lake]
type = "sql"
uri = "sqlite:///lake.db"
warehouse = "lake"
[limits]
requests_per_second = 100000
"""
_CALLS = re.compile(r"^calve_store_call_seconds_count\{.*\} (\S+)$", re.MULTILINE)
_WORKER = WorkerId("bench-1")


def fill(store: SqlStore, count: int) -> list[ProcessId]:
    """Running processes, half of whose tasks are done."""
    made = store.submit([_new(f"p{number:012d}", number) for number in range(count)])
    held = store.claim(_WORKER, REACH, lease_seconds=86_400, limit=count)
    assert len(held) == len(made)
    for process in held:
        _begin(store, process)
    return [process.id for process in made]


def _begin(store: SqlStore, process: Process) -> None:
    tasks = [NewTask(number=number, spec='{"slices": [[0, 0, 1000000]]}') for number in range(TASKS)]
    plan = json.dumps({"version": 1, "tasks": [[[0, 0, 1_000_000]]] * TASKS})
    row = store.apply(
        lease_of(process),
        Change(MoveTo(ProcessState.RUNNING), WritePlan(plan), *tasks, expect_version=process.version),
    )
    lease, receipt = lease_of(row), json.dumps({"rows": 1_000_000, "files": [{"path": "x" * 120}]})
    for before, after, given in (
        (TaskState.PENDING, TaskState.RUNNING, {}),
        (TaskState.RUNNING, TaskState.DONE, {"receipt": receipt, "rows": 1_000_000, "files": 1, "bytes": 1}),
    ):
        moved = [
            TaskChange(number=number, before=before, after=after, attempt=1, **given)
            for number in range(TASKS // 2)
        ]
        store.apply(lease, Change(*moved))


def _new(name: str, number: int) -> NewProcess:
    return NewProcess(
        id=ProcessId(name),
        kind="export",
        source="main:db.events",
        destination=f"lake.ns.t{number % 20}",
        lane="catalog:lake",
        needs=("catalog:lake", "source:main"),
        request="{}",
    )


class Viewers:
    """Open streams, read by one thread. As many addresses of this host as it takes: one may have twenty."""

    def __init__(self, port: int, count: int) -> None:
        self._open = [_stream(port, f"127.0.0.{2 + number // 20}") for number in range(count)]
        self.bytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        import selectors

        chosen = selectors.DefaultSelector()
        for one in self._open:
            chosen.register(one, selectors.EVENT_READ)
        while not self._stop.is_set():
            for key, _ in chosen.select(0.1):
                self.bytes += len(key.fileobj.recv(1 << 16))  # type: ignore[union-attr]

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        for one in self._open:
            one.close()


def _stream(port: int, source: str) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), timeout=10, source_address=(source, 0))
    made.sendall(f"GET /v1/events/stream HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    head = made.recv(4096)
    assert b" 200 " in head.split(b"\r\n")[0], head
    return made


@contextmanager
def writing(store: SqlStore) -> Iterator[None]:
    """Events, at an even pace: processes that are submitted and asked to stop."""
    stop = threading.Event()

    def write() -> None:
        number, began = 0, time.monotonic()
        while not stop.wait(max(0.0, began + number * 2 / EVENTS_A_SECOND - time.monotonic())):
            [row] = store.submit([_new(f"w{time.time_ns():020d}", number)])
            store.request_cancel(row.id)
            number += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def ask(
    report: Report, client: httpx.Client, pid: int, ids: list[ProcessId], condition: str, rounds: int
) -> None:
    """Seconds are the 99th percentile; core-seconds are the server's, for one answer."""
    some = ids[len(ids) // 2]
    for name, path in {
        "list of 200": "/v1/processes?limit=200",
        "list by table": "/v1/processes?limit=50&table=lake.ns.t3",
        "show": f"/v1/processes/{some}",
        "why": f"/v1/processes/{some}/why",
    }.items():
        client.get(path).raise_for_status()
        taken, used = [], tree(pid)
        for _ in range(rounds):
            began = time.perf_counter()
            client.get(path).raise_for_status()
            taken.append(time.perf_counter() - began)
        cores = core_seconds(used, tree(pid)) / rounds
        p99 = statistics.quantiles(taken, n=100)[98]
        detail = {
            "p50_ms": round(statistics.median(taken) * 1000, 1),
            "p99_ms": round(p99 * 1000, 1),
            "core_ms": round(cores * 1000, 2),
        }
        report.note(
            f"{name}, {condition}", Run(seconds=round(p99, 4), core_seconds=round(cores, 5), detail=detail)
        )


def store_calls(
    report: Report, client: httpx.Client, pid: int, condition: str, seconds: float
) -> tuple[float, float]:
    """Calls of the store and core-seconds, each a second, while nobody asks."""
    before, used = _calls(client), tree(pid)
    began = time.monotonic()
    time.sleep(seconds)
    span = time.monotonic() - began
    calls = (_calls(client) - before) / span
    cores = core_seconds(used, tree(pid)) / span
    detail = {"calls_a_second": round(calls, 1), "cores": round(cores, 3)}
    report.note(
        f"nobody asks, {condition}", Run(seconds=round(span, 2), core_seconds=round(cores, 3), detail=detail)
    )
    return calls, cores


def _calls(client: httpx.Client) -> float:
    return sum(map(float, _CALLS.findall(client.get("/metrics").text)))


def main() -> None:
    from kit.world import folder

    report = Report("serve", __doc__)
    rounds, seconds = (100, 5.0) if report.quick else (400, 20.0)
    with folder() as home:
        for name, count in (("a tenth", LARGE // 10), ("all", LARGE)):
            run_store(report, home / str(count), name, count, rounds, seconds)
    for name in ("list of 200", "list by table", "show", "why"):
        if name != "list of 200":  # a tenth has a hundred
            grown = report.cores(f"{name}, all") / report.cores(f"{name}, a tenth")
            report.ratio(f"{name}: core-seconds, ten times the processes", grown, 1.5)
        p99 = report.best(f"{name}, all, {VIEWERS} viewers") * 1000
        report.ratio(f"{name}: p99 in ms with {VIEWERS} viewers", p99, 100)
    report.finish()


def run_store(report: Report, home: Path, name: str, count: int, rounds: int, seconds: float) -> None:
    served = Served(home, settings=SETTINGS)
    try:
        with open_store(f"sqlite:///{home}/calve.db") as store, served.client() as client:
            ids = fill(store, count)
            pid = served.program.pid
            ask(report, client, pid, ids, name, rounds)
            if count < LARGE:
                return
            quiet, _ = store_calls(report, client, pid, "all", seconds)
            report.ratio("store calls a second, nobody there", quiet, 20)
            found = {}
            for viewers in (1, VIEWERS):
                shown = "1 viewer" if viewers == 1 else f"{viewers} viewers"
                watching = Viewers(served.port, viewers)
                with writing(store):
                    found[viewers] = store_calls(report, client, pid, shown, seconds)
                    if viewers == VIEWERS:
                        ask(report, client, pid, ids, f"all, {shown}", rounds)
                watching.close()
                assert watching.bytes > 0
            report.ratio("store calls: 100 viewers against 1", found[VIEWERS][0] / found[1][0], 1.2)
            report.ratio("cores: 100 viewers against 1", found[VIEWERS][1] / found[1][1], 4)
            report.ratio("memory in MB", peak_mb(pid), 300)
    finally:
        served.close()


if __name__ == "__main__":
    main()
