"""The tables of a SELECT: Altinity's three (`altinity`) and seven of our own, with the names of `--json`, flat."""

from collections.abc import Iterator, Mapping
from itertools import islice

from calve.sql import altinity
from calve.sql.reader import (
    PROCESSES_AT_ONCE,
    DeskReader,
    Json,
    SqlTable,
    error_columns,
    files_of,
    mapping,
    moment,
    number,
    table,
)


def _processes(reader: DeskReader) -> Iterator[Json]:
    for one in reader.processes():
        yield {
            "id": one["id"],
            "batch": one["batch"] or "",
            "kind": one["kind"],
            "state": one["state"],
            "source": one["source"],
            "destination": one["destination"],
            "partitions": one["partitions"],
            "tasks_total": one["tasks"]["total"],
            "tasks_done": one["tasks"]["done"],
            "tasks_failed": one["tasks"]["failed"],
            "tasks_running": one["running_tasks"],
            "rows": one["rows"],
            "files": one["files"],
            "bytes": one["bytes"],
            "snapshot_id": str(one["snapshot_id"] or ""),
            "retry_of": one["retry_of"] or "",
            **error_columns(one["error"]),
            "cancel_requested": one["cancel_requested"],
            "owner": one["owner"] or "",
            "needs": one["needs"],
            "created_at": moment(one["created_at"]),
            "finished_at": moment(one["finished_at"]),
            "deadline_at": moment(one["deadline_at"]),
        }


def _tasks(reader: DeskReader) -> Iterator[Json]:
    waiting = reader.processes()
    while some := {one["id"]: one for one in islice(waiting, PROCESSES_AT_ONCE)}:
        for task in reader.tasks(list(some)):
            one = some[task["process"]]
            receipt = mapping(task["receipt"])
            yield {
                "process_id": one["id"],
                "kind": one["kind"],
                "source": one["source"],
                "destination": one["destination"],
                "number": task["number"],
                "state": task["state"],
                "attempts": task["attempts"],
                "rows": number(receipt.get("rows")),
                "bytes": number(receipt.get("bytes")),
                "files": [file["path"] for file in files_of(receipt)],
                **error_columns(task["error"]),
                "started_at": moment(task["started_at"]),
                "finished_at": moment(task["finished_at"]),
            }


def _events(reader: DeskReader) -> Iterator[Json]:
    for event in reader.details(reader.processes(), "events"):
        yield {
            "process_id": event["process"],
            "number": event["number"],
            "at": moment(event["at"]),
            "name": event["name"],
            "message": event["message"],
        }


def _backups(reader: DeskReader) -> Iterator[Json]:
    for one, proofs in reader.beside("proofs", "proven_at", reader.processes("backup")):
        proven = [proof["made_at"] for proof in proofs if proof["ok"] and proof["process_id"] == one["id"]]
        source, _, patterns = one["source"].partition(":")
        yield {
            "name": one["destination"].rpartition("/")[2],
            "process_id": one["id"],
            "state": one["state"],
            "source": source,
            "tables": patterns.split(",") if patterns else [],
            "location": one["destination"],
            "rows": one["rows"],
            "files": one["files"],
            "bytes": one["bytes"],
            **error_columns(one["error"]),
            "created_at": moment(one["created_at"]),
            "finished_at": moment(one["finished_at"]),
            "proven_at": moment(max(proven, default=None)),
        }


def _tables(reader: DeskReader) -> Iterator[Json]:
    made: dict[tuple[str, str, str], Json] = {}
    processes = reader.processes()
    for one in islice(processes, reader.most):
        key = (one["kind"], one["source"], one["destination"])
        row = made.setdefault(
            key,
            {
                "kind": one["kind"],
                "source": one["source"],
                "destination": one["destination"],
                "live": 0,
                "completed": 0,
                "failed": 0,
                "last_process_id": one["id"],
                "last_success_at": None,
                "last_failure_at": None,
            },
        )
        match one["state"]:
            case "COMPLETED":
                row["completed"] += 1
                row["last_success_at"] = row["last_success_at"] or moment(one["finished_at"])
            case "FAILED":
                row["failed"] += 1
                row["last_failure_at"] = row["last_failure_at"] or moment(one["finished_at"])
            case "PENDING" | "RUNNING" | "PUBLISHING":
                row["live"] += 1
    if next(processes, None) is not None:
        reader.truncated.add("calve.tables")
    yield from made.values()


def _workers(reader: DeskReader) -> Iterator[Json]:
    for one in reader.ask("workers", {}):
        yield {
            "id": one["id"],
            "host": one["host"],
            "state": one["state"],
            "version": one.get("version") or "",
            "slots": one["slots"],
            "executors": (one.get("granted") or {}).get("executors"),
            "processes": one["processes"],
            "reach": list(one["reach"]),
            "kinds": one["kinds"],
            **error_columns(one["error"]),
            "started_at": moment(one["started_at"]),
            "heartbeat_at": moment(one["heartbeat_at"]),
        }


def _holds(reader: DeskReader) -> Iterator[Json]:
    for one in reader.ask("hold_list", {"every": True}):
        yield {
            "id": one["id"],
            "table": one["name"],
            "uuid": one["uuid"],
            "partition": one["partition"],
            "who": one["who"],
            "reason": one["reason"],
            "standing": one["standing"],
            "made_at": moment(one["made_at"]),
            "until_at": moment(one["until_at"]),
            "released_at": moment(one["released_at"]),
            "released_by": one["released_by"],
        }


def _schedules(reader: DeskReader) -> Iterator[Json]:
    for one in reader.ask("schedule_list", {}):
        yield {
            "name": one["name"],
            "source": one["source"],
            "tables": one["tables"],
            "every_seconds": int(one["every_seconds"]),
            "at": one["at"],
            "zone": one["zone"],
            "paused": one["paused"],
            "last_backup": one["last"]["destination"].rpartition("/")[2] if one["last"] else "",
            "last_at": moment(one["last"]["finished_at"]) if one["last"] else None,
            "next_at": moment(one["next"]["at"]),
            "restored_at": moment(one["drilled_at"]),
            "error": one["error"],
        }


_OWN = (
    table(
        "calve.processes",
        _processes,
        """
        id String; batch String; kind LowCardinality(String); state LowCardinality(String);
        source String; destination String; partitions Array(String); tasks_total UInt64;
        tasks_done UInt64; tasks_failed UInt64; tasks_running UInt64; rows UInt64; files UInt64;
        bytes UInt64; snapshot_id String; retry_of String; error_code LowCardinality(String);
        error_message String; error_hint String; cancel_requested Bool; owner String;
        needs Array(String); created_at DateTime('UTC'); finished_at Nullable(DateTime('UTC'));
        deadline_at Nullable(DateTime('UTC'))
        """,
    ),
    table(
        "calve.tasks",
        _tasks,
        """
        process_id String; kind LowCardinality(String); source String; destination String; number UInt64;
        state LowCardinality(String); attempts UInt64; rows UInt64; bytes UInt64; files Array(String);
        error_code LowCardinality(String); error_message String; error_hint String;
        started_at Nullable(DateTime('UTC')); finished_at Nullable(DateTime('UTC'))
        """,
    ),
    table(
        "calve.events",
        _events,
        """
        process_id String; number UInt64; at DateTime('UTC'); name LowCardinality(String);
        message String
        """,
    ),
    table(
        "calve.backups",
        _backups,
        """
        name String; process_id String; state LowCardinality(String); source String;
        tables Array(String); location String; rows UInt64; files UInt64; bytes UInt64;
        error_code LowCardinality(String); error_message String; error_hint String;
        created_at DateTime('UTC'); finished_at Nullable(DateTime('UTC'));
        proven_at Nullable(DateTime('UTC'))
        """,
    ),
    table(
        "calve.tables",
        _tables,
        """
        kind LowCardinality(String); source String; destination String; live UInt64; completed UInt64;
        failed UInt64; last_process_id String; last_success_at Nullable(DateTime('UTC'));
        last_failure_at Nullable(DateTime('UTC'))
        """,
    ),
    table(
        "calve.workers",
        _workers,
        """
        id String; host String; state LowCardinality(String); version String; slots UInt64;
        executors Nullable(UInt64); processes UInt64; reach Array(String); kinds Array(String); error_code LowCardinality(String);
        error_message String; error_hint String; started_at DateTime('UTC');
        heartbeat_at DateTime('UTC')
        """,
    ),
    table(
        "calve.schedules",
        _schedules,
        """
        name String; source String; tables Array(String); every_seconds UInt64; at String; zone String; paused Bool;
        last_backup String; last_at Nullable(DateTime('UTC')); next_at DateTime('UTC');
        restored_at Nullable(DateTime('UTC')); error String
        """,
    ),
    table(
        "calve.holds",
        _holds,
        """
        id String; table String; uuid String; partition String; who String; reason String; standing Bool;
        made_at DateTime('UTC'); until_at Nullable(DateTime('UTC')); released_at Nullable(DateTime('UTC'));
        released_by String
        """,
    ),
)
TABLES: Mapping[str, SqlTable] = {one.schema.name: one for one in (*altinity.TABLES, *_OWN)}
SCHEMAS = tuple(one.schema for one in TABLES.values())
