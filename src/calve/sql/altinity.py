"""The three tables of Altinity's ClickHouse, with their columns in their order, and a few of ours after them.

What Calve does not know is empty or 0; docs/sql.md says which.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from calve.clickhouse.sql import tokens
from calve.model.errors import UsageError
from calve.model.reach import is_folder
from calve.sql.reader import DeskReader, Json, files_of, mapping, moment, table

_NUMBERED = re.compile(r"#\d+$")
_STATUS = {"COMPLETED": "COMPLETED", "FAILED": "FAILED", "CANCELLED": "KILLED"}  # else PENDING


def _exports(reader: DeskReader) -> Iterator[Json]:
    """Tasks that run now."""
    now = reader.ask("now", {})["now"]
    running = reader.details(reader.processes("export", live=True))
    for one, keys in reader.beside("keys", "query_id", running):
        plan = mapping(one["plan"])
        for task in reader.whole(one):
            if task["state"] == "RUNNING":
                parts = _parts_of(plan, task["number"])
                yield {
                    **_ends(one),
                    "create_time": moment(one["created_at"]),
                    "part_name": ",".join(part["name"] for part in parts),
                    "elapsed": _seconds(task["started_at"], now),
                    "total_rows_to_read": sum(part["rows"] for part in parts),
                    "total_size_bytes_compressed": sum(part["bytes"] for part in parts),
                    "process_id": one["id"],
                    "task": task["number"],
                    "attempt": task["attempts"],
                    "query_id": _query_id(keys, one),
                }


_DEEP = (
    "parts",
    "parts_count",
    "parts_to_do",
    "destination_file_paths",
    "exception_part",
    "local_backoff_per_part",
)


def _partition_exports(reader: DeskReader) -> Iterator[Json]:
    """One row for each process and partition. Plans and tasks are read only where the statement names what is
    in them."""
    found = reader.processes("export")
    documents = reader.details(found) if reader.wants(*_DEEP) else found
    for one, keys in reader.beside("keys", "query_id", documents):
        plan = mapping(one.get("plan"))
        tasks = list(reader.whole(one)) if isinstance(one["tasks"], list) else []
        for partition in one["partitions"] or [""]:
            row = _partition_export(one, plan, tasks, partition)
            yield {**row, "query_id": _query_id(keys, one)}


def _partition_export(one: Json, plan: Json, tasks: Sequence[Json], partition: str) -> Json:
    parts = [part["name"] for part in plan.get("parts", ()) if part["partition_id"] == partition]
    done = {part for task in tasks if task["state"] == "DONE" for part in _names_of(plan, task["number"])}
    undone = {part for task in tasks if task["state"] != "DONE" for part in _names_of(plan, task["number"])}
    error = one["error"]
    failed = [task for task in tasks if task["error"]]
    message = error["message"] if error else failed[-1]["error"]["message"] if failed else ""
    at = moment(one["finished_at"]) or moment(one["created_at"])
    count = sum(max(1, task["attempts"]) for task in failed) or (1 if error else 0)
    part = next(iter(_names_of(plan, failed[-1]["number"])), "") if failed else ""
    paths: dict[str, list[str]] = {}
    for task in tasks:
        files = [file["path"] for file in files_of(mapping(task["receipt"]))]
        for own in _names_of(plan, task["number"]):
            if own in parts and files:
                paths.setdefault(own, []).extend(files)
    return {
        **_ends(one),
        "create_time": moment(one["created_at"]),
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
    if is_folder(one["destination"]):
        catalog, table = "", one["destination"]
    try:
        source = tokens.parse(one["source"])
        names = {"source_database": source.database, "source_table": source.table}
    except UsageError:  # shown as it is
        names = {"source_database": "", "source_table": one["source"]}
    return names | {"destination_database": catalog, "destination_table": table}


def _query_id(keys: Any, one: Json) -> str:
    """The key that it was submitted with; those of a statement's further destinations end in a number."""
    return _NUMBERED.sub("", mapping(keys).get(one["id"], ""))


def _parts_of(plan: Json, task: int) -> list[Json]:
    """Each part that a task reads, once."""
    tasks = plan.get("tasks", ())
    slices = tasks[task] if 0 <= task < len(tasks) else ()
    return [plan["parts"][number] for number in dict.fromkeys(one["part"] for one in slices)]


def _names_of(plan: Json, task: int) -> list[str]:
    return [part["name"] for part in _parts_of(plan, task)]


def _seconds(since: str | None, now: str) -> float:
    if not since:
        return 0.0
    return max(0.0, (datetime.fromisoformat(now) - datetime.fromisoformat(since)).total_seconds())


_PARTITION = """
    source_database String; source_table String; destination_database String;
    destination_table String; create_time DateTime('UTC'); partition_id String;
    transaction_id String; query_id String; source_replica String; parts Array(String);
    parts_count UInt64; parts_to_do UInt64; status LowCardinality(String);
    last_exception_per_replica Array(Tuple(replica String, message String, part String, time DateTime('UTC'), count UInt64));
    exception_count UInt64; destination_file_paths Map(String, Array(String));
    committed_metadata_file String; committed_manifest_list String; committed_manifest_file String;
    committed_marker_file String;
    local_backoff_per_part Array(Tuple(part String, attempts UInt64, next_retry_time DateTime('UTC')));
    exception_replica String; last_exception String; exception_part String;
    export_origin LowCardinality(String); source String; destination String; snapshot_id String;
    retry_of String
"""
TABLES = (
    table(
        "system.exports",
        _exports,
        """
        source_database String; source_table String; destination_database String;
        destination_table String; create_time DateTime('UTC'); part_name String;
        destination_file_path String; elapsed Float64; rows_read UInt64; total_rows_to_read UInt64;
        total_size_bytes_compressed UInt64; total_size_bytes_uncompressed UInt64;
        bytes_read_uncompressed UInt64; memory_usage UInt64; peak_memory_usage UInt64; process_id String;
        task UInt64; attempt UInt64; query_id String; destination_file_paths Array(String)
        """,
    ),
    table("system.replicated_partition_exports", _partition_exports, _PARTITION),
    table("system.distributed_exports", _partition_exports, _PARTITION),
)
