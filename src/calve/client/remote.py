"""`RemoteCalve`: every verb of the façade, answered by a server. The command line cannot tell the difference."""

import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import MISSING, Field, fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from calve.app.front import (
    DRILL_BYTES,
    CancelAnswer,
    ExportAnswer,
    Json,
    ProcessDetail,
    Reason,
    Standing,
    Submitted,
    WorkerStatus,
)
from calve.client import values
from calve.client.pages import listed
from calve.client.transport import Transport
from calve.model.errors import TemporaryError, UsageError
from calve.model.process import Breaker, Event, Process, ProcessId, ProcessQuery
from calve.model.reach import is_folder
from calve.model.states import PROCESS_TERMINAL

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

POLL_SECONDS = 0.5
_LOOKS_THAT_MAY_FAIL = 20  # in a row: a server that is started again ends no waiting


class RemoteCalve:
    """A `Front`. Names are completed by the server; only a folder's path is of the place where it was typed."""

    def __init__(self, transport: Transport, *, sleep: Callable[[float], object] = time.sleep) -> None:
        self._transport = transport
        self._sleep = sleep

    def close(self) -> None:
        self._transport.close()

    def _ask(self, verb: str, **arguments: Any) -> Any:
        return self._transport.call(verb, arguments)

    # -- reading ------------------------------------------------------------------------------------

    def now(self) -> datetime:
        return datetime.fromisoformat(self._ask("now")["now"])

    def settings(self) -> Json:
        found: Json = self._ask("settings")
        return found

    def processes(self, query: ProcessQuery) -> list[Process]:
        found = listed(
            lambda most, after: self._ask(
                "processes",
                all=True,
                kind=query.kind,
                states=sorted(state.value for state in query.states),
                table=query.source,
                to=_typed_here(query.destination),
                batch=query.batch,
                since=query.created_since.isoformat() if query.created_since else None,
                limit=most,
                after=after,
            ),
            query.limit,
        )
        return [values.process(one) for one in found]

    def find(self, ids: Sequence[str]) -> list[Process]:
        return [values.process(one) for one in self._ask("find", ids=list(ids))] if ids else []

    def show(self, ids: Sequence[str]) -> list[ProcessDetail]:
        return [values.detail(self._whole(one)) for one in self._ask("show", ids=list(ids))]

    def _whole(self, detail: Json) -> Json:
        """With the tasks that one answer did not have."""
        first = detail["tasks_next"]
        while first is not None:
            page = self._ask("tasks", ids=[detail["id"]], first=first)
            detail["tasks"] += page["tasks"]
            first = page["next"] and page["next"]["first"]
        return detail

    def events(self, ids: Sequence[str]) -> list[Event]:
        return [values.event(one) for one in self._ask("events", ids=list(ids))]

    def notes(self, ids: Sequence[ProcessId]) -> list[str]:
        return list(self._ask("notes", ids=list(ids))) if ids else []

    def why(self, ids: Sequence[str]) -> list[Reason]:
        found = self._ask("why", ids=list(ids))
        processes = {process.id: process for process in self.find([one["id"] for one in found])}
        return [values.reason(one, processes[ProcessId(one["id"])]) for one in found]

    def outages(self, processes: Sequence[Process]) -> dict[ProcessId, Breaker]:
        live = [process.id for process in processes if process.state not in PROCESS_TERMINAL]
        return values.outages(self._ask("outages", ids=live)) if live else {}

    def workers(self) -> list[WorkerStatus]:
        return [values.worker(one) for one in self._ask("workers")]

    def has_workers(self, processes: Sequence[Process]) -> bool:
        return not processes or bool(
            self._ask("has_workers", ids=[process.id for process in processes])["has_workers"]
        )

    def standing(self, ids: Sequence[str]) -> Standing:
        return values.standing(self._ask("standing", ids=list(ids)))

    def partitions(self, table: str, to: str = "") -> list[Json]:
        return list(self._ask("partitions", table=table, to=_typed_here(to)))

    def parts(self, table: str) -> list[Json]:
        return list(self._ask("parts", table=table))

    def verify(self, ids: Sequence[str], *, deep: bool = False) -> list[Json]:
        return list(self._ask("verify", ids=list(ids), deep=deep))

    def health(self, table: str, *, orphans: bool = False) -> Json:
        return dict(self._ask("health", table=table, orphans=orphans))

    def history(self, table: str = "", *, limit: int = 50) -> list[Json]:
        return listed(lambda most, after: self._ask("history", table=table, limit=most, after=after), limit)

    def doctor(self, *, spark: bool = True) -> Iterator[Json]:
        return iter(self._ask("doctor", spark=spark))

    def versions(self) -> Json:
        return dict(self._ask("versions"))

    def support(self, *, with_names: bool = False) -> dict[str, Json]:
        return dict(self._ask("support", with_names=with_names))

    def export_preview(
        self, table: str, to: str, selection: "Selection", options: "ExportOptions | None" = None
    ) -> Json:
        return dict(
            self._ask("export_preview", table=table, to=_typed_here(to), **_given(selection, options))
        )

    def optimize_preview(self, table: str, options: "OptimizeOptions | None" = None) -> Json:
        return dict(self._ask("optimize_preview", table=table, **_optimize(options)))

    def backup_list(self) -> Json:
        return dict(self._ask("backup_list"))

    def backup_show(self, name: str) -> Json:
        return dict(self._ask("backup_show", name=name))

    def backup_verify(self, name: str, *, read_share: float = 0.0) -> Json:
        return dict(self._ask("backup_verify", name=name, read_share=read_share))

    # -- changing -----------------------------------------------------------------------------------

    def export(
        self, table: str, to: str, selection: "Selection", options: "ExportOptions | None" = None
    ) -> ExportAnswer:
        made = self._ask("export", table=table, to=_typed_here(to), **_given(selection, options))
        return values.export_answer(made)

    def optimize(self, table: str, options: "OptimizeOptions | None" = None) -> Submitted:
        return values.submitted(self._ask("optimize", table=table, **_optimize(options)))

    def backup_create(
        self, name: str, tables: Sequence[str], options: "BackupOptions | None" = None, *, source: str = ""
    ) -> Submitted:
        made = self._ask("backup_create", name=name, tables=list(tables), source=source, **_given(options))
        return values.submitted(made)

    def backup_restore(
        self, name: str, options: "RestoreOptions | None" = None, *, source: str = ""
    ) -> Submitted:
        return values.submitted(self._ask("backup_restore", name=name, source=source, **_given(options)))

    def restore_preview(
        self, name: str, options: "RestoreOptions | None" = None, *, source: str = ""
    ) -> Json:
        return dict(self._ask("restore_preview", name=name, source=source, **_given(options)))

    def backup_drill(self, name: str, *, restore_bytes: int = DRILL_BYTES) -> Submitted:
        return values.submitted(self._ask("backup_drill", name=name, restore_bytes=restore_bytes))

    def backup_delete(self, name: str) -> Json:
        return dict(self._ask("backup_delete", name=name))

    def backup_prune(self, keep: "Keep", *, dry_run: bool = False) -> Json:
        return dict(self._ask("backup_prune", dry_run=dry_run, **_given(keep)))

    def token_new(self, role: str, *, name: str = "", expires: timedelta | None = None) -> Json:
        return dict(self._ask("token_new", role=role, name=name, expires=_plain(expires)))

    def token_list(self) -> list[Json]:
        return list(self._ask("token_list"))

    def token_revoke(self, names: Sequence[str]) -> list[Json]:
        return list(self._ask("token_revoke", names=list(names)))

    def notify_test(self, name: str) -> Json:
        return dict(self._ask("notify_test", name=name))

    def policy_list(self) -> list[Json]:
        return list(self._ask("policy_list"))

    def policy_show(self, name: str) -> Json:
        return dict(self._ask("policy_show", name=name))

    def policy_explain(self, table: str, partition: str) -> list[Json]:
        return list(self._ask("policy_explain", table=table, partition=partition))

    def policy_run(self, name: str, *, dry_run: bool = False) -> Json:
        return dict(self._ask("policy_run", name=name, dry_run=dry_run))

    def policy_pause(self, name: str, *, reason: str = "") -> Json:
        return dict(self._ask("policy_pause", name=name, reason=reason))

    def policy_resume(self, name: str) -> Json:
        return dict(self._ask("policy_resume", name=name))

    def policy_approve(self, name: str, *, dry_run: bool = False, revoke: bool = False) -> Json:
        return dict(self._ask("policy_approve", name=name, dry_run=dry_run, revoke=revoke))

    def policy_drop(self, table: str, partitions: Sequence[str], *, approve: str = "") -> Json:
        return dict(self._ask("policy_drop", table=table, partitions=list(partitions), approve=approve))

    def policy_undo(self, table: str, partition: str, *, force: bool = False) -> Submitted:
        return values.submitted(self._ask("policy_undo", table=table, partition=partition, force=force))

    def schedule_list(self) -> list[Json]:
        return list(self._ask("schedule_list"))

    def schedule_show(self, name: str) -> Json:
        return dict(self._ask("schedule_show", name=name))

    def schedule_run(self, name: str) -> Submitted:
        return values.submitted(self._ask("schedule_run", name=name))

    def schedule_pause(self, name: str, *, reason: str = "") -> Json:
        return dict(self._ask("schedule_pause", name=name, reason=reason))

    def schedule_resume(self, name: str) -> Json:
        return dict(self._ask("schedule_resume", name=name))

    def untier(self, table: str, partition: str, *, to: str = "") -> Submitted:
        return values.submitted(self._ask("untier", table=table, partition=partition, to=to))

    def hold_add(
        self, table: str, partition: str = "", *, reason: str, until: str = "", force: bool = False
    ) -> Json:
        given = {"table": table, "partition": partition, "reason": reason, "until": until, "force": force}
        return dict(self._ask("hold_add", **given))

    def hold_list(self, table: str = "", *, every: bool = False) -> list[Json]:
        return list(self._ask("hold_list", table=table, every=every))

    def hold_release(self, id: str) -> Json:
        return dict(self._ask("hold_release", id=id))

    def view_show(self, table: str) -> Json:
        return dict(self._ask("view_show", table=table))

    def view_create(
        self,
        table: str,
        to: str,
        into: str,
        *,
        cold: Sequence[str] = (),
        hot: Sequence[str] = (),
        exclude: Sequence[str] = (),
    ) -> Json:
        asked = {"table": table, "to": to, "into": into}
        return dict(self._ask("view_create", **asked, cold=list(cold), hot=list(hot), exclude=list(exclude)))

    def view_drop(self, table: str, *, force: bool = False) -> Json:
        return dict(self._ask("view_drop", table=table, force=force))

    def cancel(self, ids: Sequence[str]) -> list[CancelAnswer]:
        return [values.cancel_answer(one) for one in self._ask("cancel", ids=list(ids))]

    def retry(self, ids: Sequence[str]) -> Submitted:
        return values.submitted(self._ask("retry", ids=list(ids)))

    # -- following ----------------------------------------------------------------------------------

    def follow(
        self, ids: Sequence[ProcessId], *, timeout_seconds: float | None = None
    ) -> Generator[Standing, None, None]:
        return self._looks(ids, timeout_seconds, lambda seen: seen.ended)

    def run(
        self, ids: Sequence[ProcessId], *, timeout_seconds: float | None = None
    ) -> Generator[Standing, None, None]:
        """The server's workers do the work."""
        return self.follow(ids, timeout_seconds=timeout_seconds)

    def pin(
        self, ids: Sequence[ProcessId], *, timeout_seconds: float | None = None
    ) -> Generator[Standing, None, None]:
        return self._looks(ids, timeout_seconds, lambda seen: seen.pinned)

    def stop(self, processes: Sequence[Process]) -> Generator[Standing, None, None]:
        live = [one for one in processes if one.state not in PROCESS_TERMINAL]
        held = [one.id for one in live if self.has_workers([one])]
        if left := [one.id for one in live if one.id not in held]:
            self._ask("stop", ids=left)  # by the server itself, if it can
        if held:
            yield from self.follow(held)

    def worker(self) -> "WorkerProgram":
        raise UsageError(
            "a worker runs where its configuration is",
            code="runs_here",
            hint="omit --server and CALVE_SERVER",
        )

    def _looks(
        self, ids: Sequence[ProcessId], timeout_seconds: float | None, enough: Callable[[Standing], bool]
    ) -> Generator[Standing, None, None]:
        until = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        failed = 0
        while True:
            try:
                standing = self.standing(ids)
                failed = 0
            except TemporaryError:
                failed += 1
                if failed >= _LOOKS_THAT_MAY_FAIL:
                    raise
            else:
                yield standing
                if enough(standing):
                    return
            if until is not None and time.monotonic() >= until:
                return
            self._sleep(POLL_SECONDS)


def _typed_here(to: str) -> str:
    """A folder is relative to where it is typed, and the server runs elsewhere."""
    return os.path.join(os.getcwd(), to) if is_folder(to) and "://" not in to else to  # noqa: PTH109, PTH118 - a text


def _given(*options: Any) -> dict[str, Any]:
    """What differs from the defaults: a server of another version has its own."""
    return {
        field.name: _plain(getattr(one, field.name))
        for one in options
        if one is not None
        for field in fields(one)
        if getattr(one, field.name) != _default(field)
    }


def _optimize(options: "OptimizeOptions | None") -> dict[str, Any]:
    given = _given(options)
    return given | {"sort": str(given["sort"])} if "sort" in given else given


def _default(field: "Field[Any]") -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return f"{int(value.total_seconds())}s"
    if isinstance(value, tuple):
        return list(value)
    return value
