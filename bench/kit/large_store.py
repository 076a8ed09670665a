"""A store as it is after a year: many ended processes of many tables, some that run, and one with very many tasks.

Rows are inserted, not made by work: a hundred thousand processes would take a day.
"""

import json
import random
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from sqlalchemy import Table, insert, text

from calve import __version__
from calve.app.pages.sightings import pair
from calve.app.policies.look import PartitionLook, TableLook
from calve.model.process import ProcessId
from calve.model.seen import Sighting
from calve.model.states import ProcessState, TaskState
from calve.store import SqlStore
from calve.store.tables import attempts, breakers, events, outages, pins, processes, sightings, tasks, workers

BIG = ProcessId("big0000000000")
PAIRS = 500
LIVE = 200
PARTITIONS = 200  # of a table: a page of them
BACKUPS = 365
POLICY_TABLES = 20  # of a policy, with so many partitions each
_DAY = 86_400_000_000
_DAYS = 60
_LOOK_US = 900_000_000  # each is looked at every 15 minutes
_KINDS = ("export",) * 8 + ("backup", "optimize")
_CODES = ("access_denied", "s3_slow_down", "cast_failed", "table_changed")
_ROWS_A_STATEMENT = 5_000
Row = dict[str, Any]
_HEALTH = {
    "score": 67, "files": 12, "rows": 10**8, "bytes": 10**10, "snapshots": 40, "partitions_due": 0,
    "location": "s3://lake/ns/events", "parts": [{"name": "file sizes", "weight": 40, "good": 0.25}],
    "sizes": [{"name": name, "files": 2} for name in ("under 1 MiB", "1 to 16 MiB", "16 to 64 MiB")],
}  # fmt: skip
_SNAPSHOTS = [
    {"id": str(10**18), "at": "2026-01-01T00:00:00+00:00", "operation": "append", "rows": 10**6, "files": 4,
     "process": "p000000000001"}
] * 50  # fmt: skip


def source(number: int) -> str:
    return f"main:db.events_{number % PAIRS}"


def destination(number: int) -> str:
    return f"lake.ns.events_{number % PAIRS}"


def fill(store: SqlStore, *, count: int, tasks_of_big: int, backups: str) -> None:
    now = time.time_ns() // 1_000
    chosen = random.Random(15)
    _put(store, processes, _processes(now, count, tasks_of_big, chosen))
    _put(store, events, _events(now, count))
    _put(store, tasks, _tasks(now, tasks_of_big))
    _put(store, attempts, _attempts(now, tasks_of_big, chosen))
    _put(store, workers, (_worker(now, number) for number in range(3)))
    _put(store, breakers, [_breaker(now)])
    _put(store, outages, (_outage(now, number) for number in range(30)))
    _put(store, pins, (_pin(now, number) for number in range(LIVE)))
    _put(store, sightings, _sightings(now, backups))
    look = Sighting(subject="events", what="policy", summary="{}", seen_by="bench")
    store.put_sighting(look, [_policy_look(number).to_json() for number in range(POLICY_TABLES)])
    if store.database.dialect == "postgresql":  # which autovacuum has done within a year
        with store.database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))


def _policy_look(number: int) -> TableLook:
    """A table of a policy whose partitions are days, half of them exported."""
    now = datetime.now(UTC)
    ends = [now - timedelta(days=ago) for ago in range(PARTITIONS)]
    days = [
        PartitionLook(
            id=f"{end:%Y%m%d}", rows=10**6, bytes=10**8, content="c", changed_at=end, lower=end - timedelta(days=1),
            closed_at=end, process=name(number + PAIRS * ago) if ago > PARTITIONS // 2 else "", unchanged=True,
        )
        for ago, end in enumerate(ends)
    ]  # fmt: skip
    return TableLook(
        database="db", table=f"events_{number}", source=source(number), destination=destination(number),
        identity=f"i{number}", uuid=f"u{number}", looked_at=now, partitions=tuple(days),
    )  # fmt: skip


def _put(store: SqlStore, table: Table, rows: Iterable[Row]) -> None:
    left = iter(rows)
    while some := list(islice(left, _ROWS_A_STATEMENT)):
        store.database.write(lambda connection, some=some: connection.execute(insert(table), some))


def name(number: int) -> str:
    return f"p{number:012d}"


def _processes(now: int, count: int, tasks_of_big: int, chosen: random.Random) -> Iterator[Row]:
    for number in range(count):
        ended = number < count - LIVE
        created = now - _DAYS * _DAY * (count - number) // count
        state = _ended(chosen) if ended else _live(number)
        yield _process(created, name(number), number, state) | {
            "kind": _KINDS[number // PAIRS % len(_KINDS)] if ended else "export",
            "retry_of": name(number - 1) if ended and number % 97 == 1 else None,
        }
    running = _process(now - _DAY // 4, BIG, 7, ProcessState.RUNNING)
    done = tasks_of_big * 97 // 100
    yield running | {"tasks_total": tasks_of_big, "tasks_done": done, "tasks_running": 8, "batch": None}


def _ended(chosen: random.Random) -> ProcessState:
    [state] = chosen.choices(
        (ProcessState.COMPLETED, ProcessState.FAILED, ProcessState.CANCELLED), (965, 25, 10)
    )
    return state


def _live(number: int) -> ProcessState:
    return (ProcessState.RUNNING, ProcessState.PENDING, ProcessState.RUNNING, ProcessState.PUBLISHING)[
        number % 4
    ]


def _process(created: int, id: str, number: int, state: ProcessState) -> Row:
    failed = state is ProcessState.FAILED
    total, done = (0, 0) if state is ProcessState.PENDING else (60, 60)
    if failed or state in (ProcessState.RUNNING, ProcessState.CANCELLED):
        done = 41
    ended = state in (ProcessState.COMPLETED, ProcessState.FAILED, ProcessState.CANCELLED)
    owned = not ended and state is not ProcessState.PENDING
    error = {
        "code": _CODES[number % len(_CODES)], "message": f"the write of part {number} was refused by the storage",
        "hint": "calve doctor", "retryable": False, "outcome": "not_applied",
    }  # fmt: skip
    return {
        "id": id,
        "kind": "export",
        "state": state.value,
        "version": 9,
        "source": source(number),
        "destination": destination(number),
        "lane": "catalog:lake",
        "needs": '["catalog:lake", "source:main"]',
        "request": json.dumps({"partitions": [f"2024{number % 12 + 1:02d}"], "columns": ["a"] * 40}),
        "partitions": json.dumps([f"2024{number % 12 + 1:02d}"]),
        "locks": "[]",
        "batch": f"batch-{number // 10}",
        "priority": 0,
        "retry_of": None,
        "adopted": False,
        "created_at": created,
        "deadline_at": created + _DAY,
        "finished_at": created + 90_000_000 if ended else None,
        "cancel_requested": False,
        "owner": f"worker-{number % 3}" if owned else None,
        "lease_until": created + 2 * _DAYS * _DAY if owned else None,
        "planned": state is not ProcessState.PENDING,
        "tasks_total": total,
        "tasks_done": done,
        "tasks_running": 4 if state is ProcessState.RUNNING else 0,
        "rows": done * 1_000_000,
        "files": done,
        "bytes": done * 40_000_000,
        "snapshot_id": str(10**18 + number) if state is ProcessState.COMPLETED else None,
        "error": json.dumps(error) if failed else None,
    }


def _events(now: int, count: int) -> Iterator[Row]:
    ids = [(name(number), now - _DAYS * _DAY * (count - number) // count) for number in range(count)]
    for id, at in [*ids, *((str(BIG), now - _DAY // 4 + second) for second in range(2_000))]:
        for later, said in enumerate(("submitted", "leased", "planned")):
            yield {
                "process_id": id, "at": at + later * 1_000_000, "name": said,
                "message": f"{said} by worker-1 of a host", "position": 0,
            }  # fmt: skip


def _tasks(now: int, count: int) -> Iterator[Row]:
    receipt = json.dumps({"rows": 1_000_000, "files": [{"path": "x" * 900}]})
    for number in range(count):
        done = number < count * 97 // 100
        running = not done and number < count * 97 // 100 + 8
        state = TaskState.DONE if done else TaskState.RUNNING if running else TaskState.PENDING
        yield {
            "process_id": BIG, "number": number, "state": state.value, "attempt": 1, "free_attempts": 0, "fence": 1,
            "started_at": now - _DAY // 5 if done or running else None, "finished_at": now if done else None,
            "not_before": None, "spec": '{"slices": [[0, 0, 1000000]]}', "receipt": receipt if done else "",
            "error": None,
        }  # fmt: skip


def _attempts(now: int, count: int, chosen: random.Random) -> Iterator[Row]:
    """Of every task one that was done, and of every fifth one that failed before it."""
    began, step = now - _DAY // 4, _DAY // 4 // max(count, 1)
    for number in range(count):
        read, write, upload = (chosen.randrange(200, 4_000) for _ in range(3))
        start = began + number * step
        end = start + (read + write + upload + chosen.randrange(900)) * 1_000
        row = {
            "process_id": BIG,
            "number": number,
            "started_at": start,
            "ended_at": end,
            "worker": "worker-1",
        }
        if number % 5 == 0:
            yield row | {
                "attempt": 1, "ending": "again", "code": _CODES[number % 4], "rows": 0, "bytes": 0,
                "read_ms": None, "write_ms": None, "upload_ms": None,
            }  # fmt: skip
        yield row | {
            "attempt": 2, "ending": "done", "code": "", "rows": 1_000_000, "bytes": 40_000_000,
            "read_ms": read, "write_ms": write, "upload_ms": upload,
        }  # fmt: skip


def _worker(now: int, number: int) -> Row:
    return {
        "id": f"worker-{number}", "host": f"host-{number}", "reach": '["catalog:lake", "source:main"]', "slots": 8,
        "started_at": now - _DAY, "heartbeat_at": now + _DAY, "draining": False, "error": None, "version": __version__,
    }  # fmt: skip


def _breaker(now: int) -> Row:
    return {
        "lane": "storage:s3", "reason": "no answer in 10 s", "opened_at": now - _DAY // 100, "probe_at": now, "probes": 3
    }  # fmt: skip


def _outage(now: int, number: int) -> Row:
    at = now - _DAY * number // 4
    return {
        "service": "catalog:lake",
        "reason": "no answer in 10 s",
        "opened_at": at,
        "closed_at": at + 10**9,
    }


def _pin(now: int, number: int) -> Row:
    return {
        "name": f"pin-{number}", "process_id": BIG, "source": source(number), "detail": "{}", "state": "RELEASED",
        "created_at": now - _DAY, "not_before": None, "release_attempts": 1, "error": None,
    }  # fmt: skip


def _sightings(now: int, location: str) -> Iterator[Row]:
    """Of every pair, of every destination, and of the backups."""
    for number in range(PAIRS):
        partitions = [
            {"id": f"2{place:05d}", "value": f"2{place:05d}", "rows": 10**6, "bytes": 10**8, "parts": 4,
             "modified_at": "2026-01-01T00:00:00Z", "exported": ("unchanged", "changed", "no")[place % 3],
             "process": name(place), "snapshot_id": str(10**18)}
            for place in range(PARTITIONS)
        ]  # fmt: skip
        third = PARTITIONS // 3
        counts = {"exported": PARTITIONS - 2 * third, "changed": third, "new": third, "missing": 0, "gone": 0}
        summary = {"counts": counts, "partitions": PARTITIONS, "rows": 10**8, "hot": 10**10}
        looked = now - number * _LOOK_US // PAIRS
        yield _sighting(looked, pair(source(number), destination(number)), "pair", summary, partitions)
        yield _sighting(looked, destination(number), "health", _HEALTH, _SNAPSHOTS)
    backups = [
        {"name": f"nightly-{place:04d}", "created_at": "2026-01-01T00:00:00+00:00", "source": "main", "process": None,
         "tables": 2, "parts": 40, "rows": 10**9, "bytes": 10**11, "own_bytes": 10**10, "moved_bytes": 10**10,
         "skipped": [], "error": None, "rbac": False, "left_out": [],
         "contents": {f"db.events_{table}": ["200001", "200002"] for table in range(2)}}
        for place in range(BACKUPS)
    ]  # fmt: skip
    yield _sighting(now, location, "backups", {"count": BACKUPS, "stored_bytes": 10**12}, backups)


def _sighting(now: int, subject: str, what: str, summary: Row, body: list[Row]) -> Row:
    return {
        "subject": subject, "what": what, "piece": 0, "seen_at": now, "tried_at": now, "looked_until": None,
        "seen_by": "host-1", "error": "", "pieces": 1, "summary": json.dumps(summary), "body": json.dumps(body),
    }  # fmt: skip
