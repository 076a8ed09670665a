"""What optimizes did to tables, and what they gained: read from the processes in the store."""

from dataclasses import dataclass
from typing import Any

from calve.app.destination import parse_table
from calve.app.wiring import App
from calve.control.ports import StoreReader
from calve.model.process import Process, ProcessId, ProcessQuery
from calve.model.record import fields_of
from calve.optimize.request import NAME


@dataclass(frozen=True, kw_only=True)
class Gain:
    """One number before and after; None where the process did not come to its end."""

    before: int | None
    after: int | None

    def __str__(self) -> str:
        if self.before is None:
            return "-"
        return (
            f"{self.before:,}" if self.after in (None, self.before) else f"{self.before:,} -> {self.after:,}"
        )


@dataclass(frozen=True, kw_only=True)
class Optimized:
    """One process."""

    process: Process
    by_worker: bool  # a worker's own idea, not a person's
    score: Gain
    files: Gain
    delete_files: Gain
    snapshots: Gain
    rewritten_files: int
    removed_files: int  # of expired snapshots, and orphans


def optimize_history(app: App, table: str = "", *, limit: int = 50, after: str = "") -> list[Optimized]:
    """Newest first; of one table, or of all; from the process of that id on."""
    name = str(parse_table(table, app.config)) if table else ""
    before = app.find([after])[0] if after else None
    return history_in(app.store, name, limit=limit, before=before)


def history_in(
    store: StoreReader, table: str = "", *, limit: int = 50, before: ProcessId | None = None
) -> list[Optimized]:
    found = store.processes(ProcessQuery(kind=NAME, destination=table, limit=limit, before=before))
    return [optimized(process, store.plan(process.id)) for process in found]


def optimized(process: Process, plan: str | None) -> Optimized:
    """A process without a result still has what was before in its plan."""
    result: dict[str, Any] = fields_of(process.result)
    before: dict[str, int] = result.get("before") or fields_of(plan).get("before", {})
    after: dict[str, int] = result.get("after", {})

    def gain(name: str) -> Gain:
        return Gain(before=before.get(name), after=after.get(name))

    removed = result.get("expired", {}).get("files", 0) + result.get("cleaned", {}).get("orphans", 0)
    return Optimized(
        process=process,
        by_worker=bool(fields_of(process.request).get("by_worker")),
        score=gain("score"),
        files=gain("files"),
        delete_files=gain("delete_files"),
        snapshots=gain("snapshots"),
        rewritten_files=result.get("rewritten_files", 0),
        removed_files=removed,
    )


def gained(process: Process) -> str:
    """What an optimize gained, in a line; nothing where it did not come to its end."""
    if process.kind != NAME or not process.result:
        return ""
    found = optimized(process, None)
    parts = [f"score {found.score}", f"files {found.files}"]
    if found.delete_files.before:
        parts.append(f"delete files {found.delete_files}")
    parts.append(f"snapshots {found.snapshots}")
    if found.removed_files:
        parts.append(f"{found.removed_files:,} files removed")
    return ", ".join(parts)
