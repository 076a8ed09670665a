"""The façade: every verb of Calve as a function of values.

The command line, the HTTP API, SQL and the Python client are built on `Calve` and on nothing below
it. It prints nothing, raises `CalveError` only, and may be shared by threads. Long work is queued by
one call and followed by another. Verbs of processes answer with values (`app.view` has their JSON);
reports are documents: the JSON that `--json` prints. `app.desk` says who may use which verb.
"""

from collections.abc import Generator, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Self

from calve.app import processes as _processes
from calve.app import view
from calve.app.config import Config
from calve.app.front import ExportAnswer, Json
from calve.app.wiring import App
from calve.control.client import CancelAnswer, Submitted
from calve.control.ports import Runner, Store
from calve.control.why import waiting_for
from calve.model.process import Breaker, Event, Process, ProcessId, ProcessQuery

if TYPE_CHECKING:
    from calve.app.front import ProcessDetail, Reason, Standing, WorkerStatus
    from calve.app.values import (
        BackupOptions,
        ExportOptions,
        Keep,
        OptimizeOptions,
        RestoreOptions,
        Selection,
    )
    from calve.app.work import WorkerProgram


class Calve:
    """One configuration, opened. Names of tables, destinations and processes are as a person types
    them: `main:db.events`, `lake.ns.events`, an id, a prefix of one, or a batch's id.

    `options` are values of `calve.app.values`, one class for each verb that takes some.
    """

    def __init__(self, config: Config, *, runner: Runner | None = None) -> None:
        self.config = config
        self._app = App(config, runner=runner)

    @property
    def _store(self) -> Store:
        """The store that changes go to."""
        return self._app.store

    def close(self) -> None:
        self._app.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def now(self) -> datetime:
        """The store's clock, by which the ages of processes are measured."""
        return self._app.store.now()

    # -- reading ------------------------------------------------------------------------------------

    def settings(self) -> Json:
        """Secrets are masked."""
        return view.config_json(self.config)

    def processes(self, query: ProcessQuery) -> list[Process]:
        """Newest first; `source` and `destination` as a person types them."""
        return self._app.store.processes(_processes.completed(self._app, query))

    def find(self, ids: Sequence[str]) -> list[Process]:
        return _processes.found(self._app, ids)

    def show(self, ids: Sequence[str]) -> "list[ProcessDetail]":
        return _processes.details(self._app, ids)

    def events(self, ids: Sequence[str]) -> list[Event]:
        return _processes.events(self._app, ids)

    def notes(self, ids: Sequence[ProcessId]) -> list[str]:
        """What planning remarked, each once."""
        return _processes.notes(self._app, ids)

    def why(self, ids: Sequence[str]) -> "list[Reason]":
        return _processes.reasons(self._app, ids)

    def outages(self, processes: Sequence[Process]) -> dict[ProcessId, Breaker]:
        """For each that waits for a service that is down: which, why, since when."""
        return waiting_for(self._app.store, processes)

    def workers(self) -> "list[WorkerStatus]":
        return _processes.workers(self._app)

    def has_workers(self, processes: Sequence[Process]) -> bool:
        """Whether a running worker will take each of them."""
        return _processes.has_workers(self._app, processes)

    def follow(
        self, ids: Sequence[ProcessId], *, timeout_seconds: float | None = None
    ) -> "Generator[Standing, None, None]":
        """Where processes stand, again and again, until all have ended or the time is up."""
        from calve.app.work import follow

        return follow(self._app, ids, timeout_seconds=timeout_seconds)

    def standing(self, ids: Sequence[str]) -> "Standing":
        """One look of `follow`."""
        from calve.app.work import standing

        return standing(self._app, self._app.find(ids))

    def partitions(self, table: str, to: str = "") -> list[Json]:
        from calve.app.partitions import list_partitions

        return [view.partition_json(one) for one in list_partitions(self._app, table, to)]

    def parts(self, table: str) -> list[Json]:
        from calve.app.partitions import list_parts

        return [view.part_json(one) for one in list_parts(self._app, table)]

    def verify(self, ids: Sequence[str], *, deep: bool = False) -> list[Json]:
        from calve.app.proof import ExportProof, proofs

        return [
            view.export_proof_json(one) if isinstance(one, ExportProof) else view.optimize_proof_json(one)
            for one in proofs(self._app, ids, deep=deep)
        ]

    def health(self, table: str, *, orphans: bool = False) -> Json:
        from calve.app.health import table_health

        return table_health(self._app, table, orphans=orphans).to_json()

    def history(self, table: str = "", *, limit: int = 50) -> list[Json]:
        from calve.app.optimize_history import optimize_history

        return [view.optimized_json(one) for one in optimize_history(self._app, table, limit=limit)]

    def doctor(self, *, spark: bool = True) -> Iterator[Json]:
        """Findings as they are made. Puts a small object into each warehouse and removes it."""
        from calve.app.doctor import examine

        return (view.finding_json(one) for one in examine(self._app, spark=spark))

    def export_preview(
        self, table: str, to: str, selection: "Selection", options: "ExportOptions | None" = None
    ) -> Json:
        from calve.app import exports

        request = exports.export_request(self._app, table, to, selection, options)
        return exports.preview_json(exports.preview(self._app, request, selection))

    def optimize_preview(self, table: str, options: "OptimizeOptions | None" = None) -> Json:
        from calve.app.health import optimize_request, preview

        return view.optimize_preview_json(preview(self._app, optimize_request(self._app, table, options)))

    def backup_list(self) -> Json:
        """`backups`, oldest first, damaged ones too; what they take together, shared parts once; and those
        that are encrypted with a key that is not configured."""
        from calve.app import backup_view, backups

        return backup_view.backups_json(self.config.backup_url, backups.entries(self._app))

    def backup_show(self, name: str) -> Json:
        from calve.app import backup_view, backups

        return backup_view.backup_detail_json(backups.entry(self._app, name))

    def backup_verify(self, name: str, *, read_share: float = 0.0) -> Json:
        from calve.app import backup_view, backups

        return backup_view.verified_json(backups.verify(self._app, name, read_share=read_share))

    # -- changing -----------------------------------------------------------------------------------

    def export(
        self, table: str, to: str, selection: "Selection", options: "ExportOptions | None" = None
    ) -> ExportAnswer:
        from calve.app import exports

        request = exports.export_request(self._app, table, to, selection, options)
        return exports.export(self._app, self._store, request, selection)

    def optimize(self, table: str, options: "OptimizeOptions | None" = None) -> Submitted:
        from calve.app.health import optimize_request, submit_optimize

        return submit_optimize(self._app, self._store, optimize_request(self._app, table, options))

    def backup_create(
        self, name: str, tables: Sequence[str], options: "BackupOptions | None" = None, *, source: str = ""
    ) -> Submitted:
        from calve.app import backups

        return backups.create(self._app, self._store, name, tables, options, source=source)

    def backup_restore(
        self, name: str, options: "RestoreOptions | None" = None, *, source: str = ""
    ) -> Submitted:
        from calve.app import backups

        return backups.restore(self._app, self._store, name, options, source=source)

    def backup_delete(self, name: str) -> Json:
        from calve.app import backup_view, backups

        return backup_view.deleted_json(backups.delete_backup(self._app, name))

    def backup_prune(self, keep: "Keep", *, dry_run: bool = False) -> Json:
        from calve.app import backup_view, backups

        return backup_view.pruned_json(backups.prune(self._app, keep, dry_run=dry_run), dry_run=dry_run)

    def run(
        self, ids: Sequence[ProcessId], *, timeout_seconds: float | None = None
    ) -> "Generator[Standing, None, None]":
        """As `follow`, with a worker in this program where no other would do the work. Close the
        iterator to stop early: that is quick and safe."""
        from calve.app.work import follow

        return follow(self._app, ids, own_worker=True, timeout_seconds=timeout_seconds)

    def pin(
        self, ids: Sequence[ProcessId], *, timeout_seconds: float | None = None
    ) -> "Generator[Standing, None, None]":
        """Follow processes until what they read is held still, so that the source may change. Where no
        worker runs, they are planned in this program and left to the next one."""
        from calve.app.work import pinned

        return pinned(self._app, ids, timeout_seconds=timeout_seconds)

    def cancel(self, ids: Sequence[str]) -> list[CancelAnswer]:
        """Ask processes to stop; `stop` sees to it that they do."""
        return _processes.cancel_all(self._app, self._store, ids)

    def stop(self, processes: Sequence[Process]) -> "Generator[Standing, None, None]":
        """Follow processes that were asked to stop; see `work.stopped`."""
        from calve.app.work import stopped

        return stopped(self._app, processes)

    def retry(self, ids: Sequence[str]) -> Submitted:
        return _processes.retry_all(self._app, self._store, ids)

    def worker(self) -> "WorkerProgram":
        from calve.app.work import WorkerProgram

        return WorkerProgram(self._app)
