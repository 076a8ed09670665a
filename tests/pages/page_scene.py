"""What tests of pages share: an installation with a store of its own, and how its documents are asked for."""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import event, update

from calve.app.calve import Calve
from calve.app.config import load_config
from calve.app.desk import Desk
from calve.app.pages.sightings import keep
from calve.model.access import Caller, Role
from calve.model.errors import ErrorInfo
from calve.model.process import Worker, WorkerId
from calve.store import SqlStore
from calve.testing.contracts.contract import (
    ANNE,
    REACH,
)

VIEWER = Caller(name="viewer", role=Role.VIEWER)
DENIED = ErrorInfo(
    code="access_denied", message="the bucket refused the write", hint="give the key PutObject"
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BIG = "big0000000000"
TASKS = 100_000
ALL_WORK = "processes.finished_at < ? GROUP BY"


def made(folder: Path) -> Calve:
    (folder / "calve.toml").write_text("")
    return Calve(load_config(folder / "calve.toml", environ={}))


def ask(calve: Calve, verb: str, **given: Any) -> Any:
    """As a viewer gets it, and JSON all through."""
    return json.loads(json.dumps(Desk(calve).perform(VIEWER, verb, given)))


def beat(store: SqlStore, worker: WorkerId = ANNE, version: str = "") -> None:
    from calve import __version__

    now = store.now()
    store.heartbeat(
        Worker(
            id=worker, host="h", reach=tuple(sorted(REACH)), slots=4, started_at=now, heartbeat_at=now,
            version=version or __version__,
        )
    )  # fmt: skip


def put_back(store: SqlStore, column: Any, hours: float) -> None:
    """As if it had been so long ago."""
    with store.database.engine.begin() as connection:
        connection.execute(update(column.table).values({column: column - int(hours * 3_600_000_000)}))
    store.ended_work = None  # what happened is not rewritten but here


@contextmanager
def counted(store: SqlStore) -> Iterator[list[str]]:
    said: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement != "BEGIN":
            said.append(statement)

    event.listen(store.database.engine, "before_cursor_execute", note)
    try:
        yield said
    finally:
        event.remove(store.database.engine, "before_cursor_execute", note)


def scans(store: SqlStore, statements: Iterable[str]) -> list[str]:
    """Reads of all rows of a table that grows."""
    newest = re.compile(
        r"FROM processes(\s+WHERE 1 = 1)? ORDER BY processes.seq DESC\s+LIMIT"
    )  # reads no more than it is told
    with store.database.engine.connect() as connection:
        # Their parameters do not matter to the plan: NULL.
        plans = [
            line[-1]
            for text in statements
            if not newest.search(text)
            for line in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", (None,) * text.count("?"))
        ]
    growing = re.compile(r"SCAN (processes|tasks|attempts|events|plans|pins|audit|sightings)\b(?!.* USING )")
    return [line for line in plans if growing.match(line)]


def listed(count: int, **states: int) -> list[dict[str, Any]]:
    """Partitions as the verb answers with them; the first ones stand as `states` says."""
    stands = [name for name, times in states.items() for _ in range(times)]
    return [
        {
            "id": f"2024{n:05}", "value": f"2024-{n:05}", "rows": 10, "bytes": 100, "parts": 1, "modified_at": None,
            "exported": stands[n] if n < len(stands) else "no", "process": None, "snapshot_id": None,
        }
        for n in range(count)
    ]  # fmt: skip


def looked(store: SqlStore, found: list[dict[str, Any]], table: str = "db.events") -> None:
    keep(
        store, "partitions", {"table": table, "to": "lake.ns.events"}, found,
        source=lambda text: f"main:{text}", destination=lambda text: text,
    )  # fmt: skip


def backup_row(name: str, at: datetime, **given: Any) -> dict[str, Any]:
    return {
        "name": name, "created_at": at.isoformat(), "source": "main", "process": "47mrp8hi9gdvf", "tables": 1,
        "parts": 2, "rows": 10, "bytes": 100, "own_bytes": 30, "moved_bytes": 100, "skipped": [], "error": None,
        "rbac": False, "left_out": [], "contents": {"db.events": ["202401", "202402"]},
    } | given  # fmt: skip


def kept(calve: Calve, verb: str, given: dict[str, Any], answer: Any) -> None:
    keep(calve.registry, verb, given, answer, source=lambda text: text, destination=lambda text: text)


def backups_seen(calve: Calve, *rows: dict[str, Any]) -> None:
    answer = {"location": calve.config.backup_url, "backups": list(rows), "stored_bytes": 170}
    kept(calve, "backup_list", {"contents": True}, answer)


def partition(id: str, exported: str, process: str | None = None) -> dict[str, Any]:
    return {
        "id": id, "value": id, "rows": 5, "bytes": 50, "parts": 1, "modified_at": None,
        "exported": exported, "process": process, "snapshot_id": None,
    }  # fmt: skip
