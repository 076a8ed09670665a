"""What a front needs of Calve: the values that its verbs answer with, and the verbs as a protocol.

`app.calve.Calve` and `client.remote.RemoteCalve` are both a `Front`, so the command line does not know which
of them answers. Verbs of processes answer with values; reports are documents: the JSON that `--json` prints.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from calve.control.client import CancelAnswer, Standing, Submitted
from calve.model.errors import ErrorInfo
from calve.model.process import Breaker, Event, Pin, Process, ProcessId, ProcessQuery, Task, Worker

if TYPE_CHECKING:
    from calve.app.values import (
        BackupOptions,
        ExportOptions,
        Keep,
        OptimizeOptions,
        RestoreOptions,
        Selection,
    )
    from calve.app.work import WorkerProgram

__all__ = [
    "CancelAnswer", "ExportAnswer", "Front", "Json", "ProcessDetail", "Reason", "Standing", "Submitted", "WorkerState",
    "WorkerStatus",
]  # fmt: skip

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ProcessDetail:
    """All that the store has of a process."""

    process: Process
    plan: str | None  # JSON, once it is planned
    tasks: tuple[Task, ...]
    pins: tuple[Pin, ...]
    events: tuple[Event, ...]

    @property
    def next_task(self) -> int | None:
        """The first task that is not among `tasks`; None if all are."""
        if len(self.tasks) >= self.process.tasks.total:
            return None
        return self.tasks[-1].number + 1 if self.tasks else 0


@dataclass(frozen=True, kw_only=True)
class Reason:
    """What a process is waiting for, in one sentence."""

    process: Process
    why: str


class WorkerState(StrEnum):
    WORKING = "working"
    DRAINING = "draining"
    SILENT = "silent"  # no heartbeat for a lease: others take over what it held


@dataclass(frozen=True, kw_only=True)
class WorkerStatus:
    worker: Worker
    state: WorkerState
    processes: int  # that it holds


@dataclass(frozen=True, kw_only=True)
class ExportAnswer(Submitted):
    """What became of a request: the processes that do it, and what was exported before."""

    source: str
    destination: str
    partitions: tuple[str, ...]  # ids of those that were asked for
    known: tuple[Json, ...] = ()  # as `view.known_json`: exported before, unchanged or refused
    unchanged: tuple[str, ...] = ()  # a sentence for each partition that is skipped
    refused: tuple[ErrorInfo, ...] = ()  # changed since, or pinned with other rows than there are now
    unreachable: str = ""  # the destination does not answer: queued until it does
    unaware_workers: tuple[
        str, ...
    ] = ()  # of an old version: they do not compare the plan with what they pin


class Front(Protocol):
    """Names of tables, destinations and processes are as a person types them."""

    def now(self) -> datetime: ...
    def settings(self) -> Json: ...
    def processes(self, query: ProcessQuery) -> list[Process]: ...
    def find(self, ids: Sequence[str]) -> list[Process]: ...
    def show(self, ids: Sequence[str]) -> list[ProcessDetail]: ...
    def events(self, ids: Sequence[str]) -> list[Event]: ...
    def notes(self, ids: Sequence[ProcessId]) -> list[str]: ...
    def why(self, ids: Sequence[str]) -> list[Reason]: ...
    def outages(self, processes: Sequence[Process]) -> dict[ProcessId, Breaker]: ...
    def workers(self) -> list[WorkerStatus]: ...
    def has_workers(self, processes: Sequence[Process]) -> bool: ...
    def standing(self, ids: Sequence[str]) -> Standing: ...
    def partitions(self, table: str, to: str = "") -> list[Json]: ...
    def parts(self, table: str) -> list[Json]: ...
    def verify(self, ids: Sequence[str], *, deep: bool = False) -> list[Json]: ...
    def health(self, table: str, *, orphans: bool = False) -> Json: ...
    def history(self, table: str = "", *, limit: int = 50) -> list[Json]: ...
    def doctor(self, *, spark: bool = True) -> Iterator[Json]: ...
    def versions(self) -> Json: ...
    def support(self, *, with_names: bool = False) -> dict[str, Json]: ...
    def export_preview(
        self, table: str, to: str, selection: "Selection", options: "ExportOptions | None" = None
    ) -> Json: ...
    def optimize_preview(self, table: str, options: "OptimizeOptions | None" = None) -> Json: ...
    def backup_list(self) -> Json: ...
    def backup_show(self, name: str) -> Json: ...
    def backup_verify(self, name: str, *, read_share: float = 0.0) -> Json: ...
    def restore_preview(
        self, name: str, options: "RestoreOptions | None" = None, *, source: str = ""
    ) -> Json: ...
    def export(
        self, table: str, to: str, selection: "Selection", options: "ExportOptions | None" = None
    ) -> ExportAnswer: ...
    def optimize(self, table: str, options: "OptimizeOptions | None" = None) -> Submitted: ...
    def backup_create(
        self, name: str, tables: Sequence[str], options: "BackupOptions | None" = None, *, source: str = ""
    ) -> Submitted: ...
    def backup_restore(
        self, name: str, options: "RestoreOptions | None" = None, *, source: str = ""
    ) -> Submitted: ...
    def backup_delete(self, name: str) -> Json: ...
    def backup_prune(self, keep: "Keep", *, dry_run: bool = False) -> Json: ...
    def token_new(self, role: str, *, name: str = "", expires: timedelta | None = None) -> Json: ...
    def token_list(self) -> list[Json]: ...
    def token_revoke(self, names: Sequence[str]) -> list[Json]: ...
    def notify_test(self, name: str) -> Json: ...
    def cancel(self, ids: Sequence[str]) -> list[CancelAnswer]: ...
    def retry(self, ids: Sequence[str]) -> Submitted: ...
    def follow(
        self, ids: Sequence[ProcessId], *, timeout_seconds: float | None = None
    ) -> Generator[Standing, None, None]: ...
    def run(
        self, ids: Sequence[ProcessId], *, timeout_seconds: float | None = None
    ) -> Generator[Standing, None, None]: ...
    def pin(
        self, ids: Sequence[ProcessId], *, timeout_seconds: float | None = None
    ) -> Generator[Standing, None, None]: ...
    def stop(self, processes: Sequence[Process]) -> Generator[Standing, None, None]: ...
    def worker(self) -> "WorkerProgram": ...
    def close(self) -> None: ...
