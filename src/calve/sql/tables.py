"""The tables of a SELECT: Altinity's three, with their columns in their order, and six of our own.

Rows are made of the documents that the desk answers with, so a SELECT shows nothing that its caller could not read
otherwise, and nothing outside of the store is asked. What Calve does not know is empty or 0; docs/sql.md says which.
"""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any

from calve.app.desk import Desk
from calve.clickhouse.embedded.cage import TableSchema
from calve.clickhouse.sql import tokens
from calve.model.access import Caller
from calve.model.errors import NotFoundError, UsageError
from calve.model.states import PROCESS_LIVE

Json = dict[str, Any]
_PIECE = 5_000  # lines that are sent to the engine at once
_DETAILS = 50  # processes that are read in full at once
_LIVE = [state.value for state in PROCESS_LIVE]
_PAGE = 1000  # processes of one question to the desk

_TIME, _MAYBE = "DateTime('UTC')", "Nullable(DateTime('UTC'))"
_WORD = "LowCardinality(String)"
_NAMES = "Array(String)"


@dataclass(kw_only=True)
class Reader:
    """Reads for one statement. `ids`: only these processes. `columns`: those it names; None for all."""

    desk: Desk
    caller: Caller
    most: int
    ids: Sequence[str] = ()
    columns: frozenset[str] | None = None
    live: bool = False  # only processes that have not ended
    truncated: set[str] = field(default_factory=set)

    def processes(self, kind: str = "", *, live: bool = False) -> Iterator[Json]:
        """Newest first, page by page: who needs no more asks for no more."""
        if self.ids:
            with contextlib.suppress(NotFoundError, UsageError):  # a SELECT of what is not there has no rows
                yield from (
                    one for one in self.ask("find", {"ids": list(self.ids)}) if kind in ("", one["kind"])
                )
            return
        after: str | None = ""
        while after is not None:
            states = _LIVE if live or self.live else []
            asked = {"limit": _PAGE, "kind": kind, "after": after, "states": states}
            page = self.ask("page", {name: value for name, value in asked.items() if value})
            yield from page["processes"]
            after = page["next"]

    def details(self, processes: Iterable[Json], verb: str = "show") -> Iterator[Json]:
        """What `show` or `events` say of each, some at a time."""
        waiting = iter(processes)
        while ids := [one["id"] for one in islice(waiting, _DETAILS)]:
            yield from self.ask(verb, {"ids": ids})

    def wants(self, *columns: str) -> bool:
        return self.columns is None or not self.columns.isdisjoint(columns)

    def ask(self, verb: str, arguments: Mapping[str, Any]) -> Any:
        return self.desk.perform(self.caller, verb, arguments)


@dataclass(frozen=True, kw_only=True)
class Table:
    schema: TableSchema
    rows: Callable[[Reader], Iterator[Json]]

    def pieces(self, reader: Reader) -> Iterator[bytes]:
        """Rows as the cage takes them: JSONEachRow, some at a time, not more than `reader.most`."""
        name = self.schema.name
        rows = self.rows(reader)
        wanted = islice(rows, reader.most)
        while piece := list(islice(wanted, _PIECE)):
            yield "\n".join(map(json.dumps, piece)).encode()
        if next(rows, None) is not None:
            reader.truncated.add(name)


# -- our own -------------------------------------------------------------------------------------------


def _processes(reader: Reader) -> Iterator[Json]:
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
            **_error(one["error"]),
            "cancel_requested": one["cancel_requested"],
            "owner": one["owner"] or "",
            "needs": one["needs"],
            "created_at": _time(one["created_at"]),
            "finished_at": _time(one["finished_at"]),
            "deadline_at": _time(one["deadline_at"]),
        }


def _tasks(reader: Reader) -> Iterator[Json]:
    for one in reader.details(reader.processes()):
        for task in one["tasks"]:
            receipt = _object(task["receipt"])
            yield {
                "process_id": one["id"],
                "kind": one["kind"],
                "source": one["source"],
                "destination": one["destination"],
                "number": task["number"],
                "state": task["state"],
                "attempts": task["attempts"],
                "rows": _count(receipt.get("rows")),
                "bytes": _count(receipt.get("bytes")),
                "files": [file["path"] for file in _files(receipt)],
                **_error(task["error"]),
                "started_at": _time(task["started_at"]),
                "finished_at": _time(task["finished_at"]),
            }


def _events(reader: Reader) -> Iterator[Json]:
    for event in reader.details(reader.processes(), "events"):
        yield {
            "process_id": event["process"],
            "number": event["number"],
            "at": _time(event["at"]),
            "name": event["name"],
            "message": event["message"],
        }


def _backups(reader: Reader) -> Iterator[Json]:
    for one in reader.processes("backup"):
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
            **_error(one["error"]),
            "created_at": _time(one["created_at"]),
            "finished_at": _time(one["finished_at"]),
        }


def _tables(reader: Reader) -> Iterator[Json]:
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
                row["last_success_at"] = row["last_success_at"] or _time(one["finished_at"])
            case "FAILED":
                row["failed"] += 1
                row["last_failure_at"] = row["last_failure_at"] or _time(one["finished_at"])
            case "PENDING" | "RUNNING" | "PUBLISHING":
                row["live"] += 1
    if next(processes, None) is not None:
        reader.truncated.add("calve.tables")
    yield from made.values()


def _workers(reader: Reader) -> Iterator[Json]:
    for one in reader.ask("workers", {}):
        yield {
            "id": one["id"],
            "host": one["host"],
            "state": one["state"],
            "version": one.get("version") or "",
            "slots": one["slots"],
            "processes": one["processes"],
            "reach": list(one["reach"]),
            "kinds": one["kinds"],
            **_error(one["error"]),
            "started_at": _time(one["started_at"]),
            "heartbeat_at": _time(one["heartbeat_at"]),
        }


# -- Altinity's ------------------------------------------------------------------------------------------

_STATUS = {"COMPLETED": "COMPLETED", "FAILED": "FAILED", "CANCELLED": "KILLED"}  # else PENDING


def _exports(reader: Reader) -> Iterator[Json]:
    """Tasks that run now."""
    now = reader.ask("now", {})["now"]
    for one in reader.details(reader.processes("export", live=True)):
        plan = _object(one["plan"])
        for task in one["tasks"]:
            if task["state"] == "RUNNING":
                parts = _parts_of(plan, task["number"])
                yield {
                    **_ends(one),
                    "create_time": _time(one["created_at"]),
                    "part_name": ",".join(part["name"] for part in parts),
                    "elapsed": _seconds(task["started_at"], now),
                    "total_rows_to_read": sum(part["rows"] for part in parts),
                    "total_size_bytes_compressed": sum(part["bytes"] for part in parts),
                    "process_id": one["id"],
                    "task": task["number"],
                    "attempt": task["attempts"],
                }


_DEEP = (
    "parts",
    "parts_count",
    "parts_to_do",
    "destination_file_paths",
    "exception_part",
    "local_backoff_per_part",
)


def _partition_exports(reader: Reader) -> Iterator[Json]:
    """One row for each process and partition. Plans and tasks are read only where the statement names what is
    in them."""
    found = reader.processes("export")
    documents = reader.details(found) if reader.wants(*_DEEP) else found
    for one in documents:
        plan = _object(one.get("plan"))
        tasks = one["tasks"] if isinstance(one["tasks"], list) else []
        for partition in one["partitions"] or [""]:
            yield _partition_export(one, plan, tasks, partition)


def _partition_export(one: Json, plan: Json, tasks: Sequence[Json], partition: str) -> Json:
    parts = [part["name"] for part in plan.get("parts", ()) if part["partition_id"] == partition]
    done = {part for task in tasks if task["state"] == "DONE" for part in _names_of(plan, task["number"])}
    undone = {part for task in tasks if task["state"] != "DONE" for part in _names_of(plan, task["number"])}
    error = one["error"]
    failed = [task for task in tasks if task["error"]]
    message = error["message"] if error else failed[-1]["error"]["message"] if failed else ""
    at = _time(one["finished_at"]) or _time(one["created_at"])
    count = sum(max(1, task["attempts"]) for task in failed) or (1 if error else 0)
    part = next(iter(_names_of(plan, failed[-1]["number"])), "") if failed else ""
    paths: dict[str, list[str]] = {}
    for task in tasks:
        files = [file["path"] for file in _files(_object(task["receipt"]))]
        for own in _names_of(plan, task["number"]):
            if own in parts and files:
                paths.setdefault(own, []).extend(files)
    return {
        **_ends(one),
        "create_time": _time(one["created_at"]),
        "partition_id": partition,
        "transaction_id": one["id"],
        "parts": parts,
        "parts_count": len(parts),
        "parts_to_do": len([part for part in parts if part in undone or part not in done]),
        "status": _STATUS.get(one["state"], "PENDING"),
        "last_exception_per_replica": [["", message, part, at, count]] if message else [],
        "exception_count": count,
        "destination_file_paths": paths,
        "local_backoff_per_part": [
            [own, task["attempts"], at]
            for task in failed
            if task["state"] == "PENDING"
            for own in _names_of(plan, task["number"])
        ],
        "last_exception": message,
        "exception_part": part,
        "export_origin": "calve",
        "source": one["source"],
        "destination": one["destination"],
        "snapshot_id": str(one["snapshot_id"] or ""),
        "retry_of": one["retry_of"] or "",
    }


def _ends(one: Json) -> Json:
    """Source and destination as Altinity's columns have them."""
    catalog, _, table = one["destination"].partition(".")
    if "/" in one["destination"]:
        catalog, table = "", one["destination"]
    try:
        source = tokens.parse(one["source"])
        names = {"source_database": source.database, "source_table": source.table}
    except UsageError:  # shown as it is
        names = {"source_database": "", "source_table": one["source"]}
    return names | {"destination_database": catalog, "destination_table": table}


def _parts_of(plan: Json, task: int) -> list[Json]:
    """Each part that a task reads, once."""
    tasks = plan.get("tasks", ())
    slices = tasks[task] if 0 <= task < len(tasks) else ()
    return [plan["parts"][number] for number in dict.fromkeys(one["part"] for one in slices)]


def _names_of(plan: Json, task: int) -> list[str]:
    return [part["name"] for part in _parts_of(plan, task)]


def _files(receipt: Json) -> list[Json]:
    files = receipt.get("files")
    return (
        [file for file in files if isinstance(file, dict) and "path" in file]
        if isinstance(files, list)
        else []
    )


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value >= 0 else 0


def _error(error: Json | None) -> Json:
    given = error or {}
    return {
        "error_code": given.get("code") or "",
        "error_message": given.get("message") or "",
        "error_hint": given.get("hint") or "",
    }


def _time(text: str | None) -> str | None:
    """As ClickHouse reads it."""
    return text.replace("T", " ").removesuffix("Z") if text else None


def _seconds(since: str | None, now: str) -> float:
    if not since:
        return 0.0
    return max(0.0, (datetime.fromisoformat(now) - datetime.fromisoformat(since)).total_seconds())


_ENDS = tuple(
    (name, "String")
    for name in ("source_database", "source_table", "destination_database", "destination_table")
)
_ERROR = (("error_code", _WORD), ("error_message", "String"), ("error_hint", "String"))
_COUNTS = (("rows", "UInt64"), ("files", "UInt64"), ("bytes", "UInt64"))
_PARTITION = (
    *_ENDS,
    ("create_time", _TIME),
    ("partition_id", "String"),
    ("transaction_id", "String"),
    ("query_id", "String"),
    ("source_replica", "String"),
    ("parts", _NAMES),
    ("parts_count", "UInt64"),
    ("parts_to_do", "UInt64"),
    ("status", _WORD),
    (
        "last_exception_per_replica",
        f"Array(Tuple(replica String, message String, part String, time {_TIME}, count UInt64))",
    ),
    ("exception_count", "UInt64"),
    ("destination_file_paths", "Map(String, Array(String))"),
    ("committed_metadata_file", "String"),
    ("committed_manifest_list", "String"),
    ("committed_manifest_file", "String"),
    ("committed_marker_file", "String"),
    ("local_backoff_per_part", f"Array(Tuple(part String, attempts UInt64, next_retry_time {_TIME}))"),
    ("exception_replica", "String"),
    ("last_exception", "String"),
    ("exception_part", "String"),
    ("export_origin", _WORD),
    ("source", "String"),
    ("destination", "String"),
    ("snapshot_id", "String"),
    ("retry_of", "String"),
)


def _table(name: str, rows: Callable[[Reader], Iterator[Json]], *columns: tuple[str, str]) -> Table:
    return Table(schema=TableSchema(name=name, columns=columns), rows=rows)


TABLES: Mapping[str, Table] = {
    table.schema.name: table
    for table in (
        _table(
            "system.exports",
            _exports,
            *_ENDS,
            ("create_time", _TIME),
            ("part_name", "String"),
            ("destination_file_path", "String"),
            ("elapsed", "Float64"),
            ("rows_read", "UInt64"),
            ("total_rows_to_read", "UInt64"),
            ("total_size_bytes_compressed", "UInt64"),
            ("total_size_bytes_uncompressed", "UInt64"),
            ("bytes_read_uncompressed", "UInt64"),
            ("memory_usage", "UInt64"),
            ("peak_memory_usage", "UInt64"),
            ("process_id", "String"),
            ("task", "UInt64"),
            ("attempt", "UInt64"),
        ),
        _table("system.replicated_partition_exports", _partition_exports, *_PARTITION),
        _table("system.distributed_exports", _partition_exports, *_PARTITION),
        _table(
            "calve.processes",
            _processes,
            ("id", "String"),
            ("batch", "String"),
            ("kind", _WORD),
            ("state", _WORD),
            ("source", "String"),
            ("destination", "String"),
            ("partitions", _NAMES),
            ("tasks_total", "UInt64"),
            ("tasks_done", "UInt64"),
            ("tasks_failed", "UInt64"),
            ("tasks_running", "UInt64"),
            *_COUNTS,
            ("snapshot_id", "String"),
            ("retry_of", "String"),
            *_ERROR,
            ("cancel_requested", "Bool"),
            ("owner", "String"),
            ("needs", _NAMES),
            ("created_at", _TIME),
            ("finished_at", _MAYBE),
            ("deadline_at", _MAYBE),
        ),
        _table(
            "calve.tasks",
            _tasks,
            ("process_id", "String"),
            ("kind", _WORD),
            ("source", "String"),
            ("destination", "String"),
            ("number", "UInt64"),
            ("state", _WORD),
            ("attempts", "UInt64"),
            ("rows", "UInt64"),
            ("bytes", "UInt64"),
            ("files", _NAMES),
            *_ERROR,
            ("started_at", _MAYBE),
            ("finished_at", _MAYBE),
        ),
        _table(
            "calve.events",
            _events,
            ("process_id", "String"),
            ("number", "UInt64"),
            ("at", _TIME),
            ("name", _WORD),
            ("message", "String"),
        ),
        _table(
            "calve.backups",
            _backups,
            ("name", "String"),
            ("process_id", "String"),
            ("state", _WORD),
            ("source", "String"),
            ("tables", _NAMES),
            ("location", "String"),
            *_COUNTS,
            *_ERROR,
            ("created_at", _TIME),
            ("finished_at", _MAYBE),
        ),
        _table(
            "calve.tables",
            _tables,
            ("kind", _WORD),
            ("source", "String"),
            ("destination", "String"),
            ("live", "UInt64"),
            ("completed", "UInt64"),
            ("failed", "UInt64"),
            ("last_process_id", "String"),
            ("last_success_at", _MAYBE),
            ("last_failure_at", _MAYBE),
        ),
        _table(
            "calve.workers",
            _workers,
            ("id", "String"),
            ("host", "String"),
            ("state", _WORD),
            ("version", "String"),
            ("slots", "UInt64"),
            ("processes", "UInt64"),
            ("reach", _NAMES),
            ("kinds", _NAMES),
            *_ERROR,
            ("started_at", _TIME),
            ("heartbeat_at", _TIME),
        ),
    )
}
SCHEMAS = tuple(table.schema for table in TABLES.values())
