"""The façade: every verb of Calve as a function of values.

The command line, the HTTP API, SQL and the Python client are built on `Calve` and on nothing below
it. It prints nothing, raises `CalveError` only, and may be shared by threads. Long work is queued by
one call and followed by another. Verbs of processes answer with values (`app.view` has their JSON);
reports are documents: the JSON that `--json` prints. `app.desk` says who may use which verb.
"""

import getpass
import os
import socket
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from copy import copy
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

from calve.app import processes as _processes
from calve.app import view
from calve.app.config import Config
from calve.app.front import DRILL_BYTES, ExportAnswer, Json
from calve.app.wiring import App
from calve.control.client import CancelAnswer, Submitted, asked_store
from calve.control.ports import Runner, Store
from calve.control.why import waiting_for
from calve.model.access import Asked, AuditOutcome, Halt, Proof, Role
from calve.model.errors import CalveError, NotFoundError, RefusedError
from calve.model.process import Breaker, Event, Process, ProcessId, ProcessQuery

if TYPE_CHECKING:
    from calve.app.front import ProcessDetail, Reason, Standing, WorkerStatus
    from calve.app.overview import Overview
    from calve.app.values import (
        BackupOptions,
        ExportOptions,
        Keep,
        OptimizeOptions,
        RestoreOptions,
        Selection,
    )
    from calve.app.work import WorkerProgram
    from calve.control.registry import ServedStore

_MOST_DETAIL = 2000
_BESIDE = timedelta(seconds=2)  # the audit's time and the process's are read one after the other
SOURCE_TABLES = 5000


class Calve:
    """One configuration, opened. Names of tables, destinations and processes are as a person types
    them: `main:db.events`, `lake.ns.events`, an id, a prefix of one, or a batch's id.

    `options` are values of `calve.app.values`, one class for each verb that takes some.
    """

    def __init__(
        self,
        config: Config,
        *,
        runner: Runner | None = None,
        migrate: bool = False,
        around_store: Callable[[Any], Any] = lambda store: store,
    ) -> None:
        """`migrate`: change the store's schema also while older workers use it. `around_store`: a decorator
        of the store, such as one that measures it."""
        self.config = config
        self._app = App(config, runner=runner, migrate=migrate, around_store=around_store)
        self._asked: Asked | None = None

    def on_behalf(self, asked: Asked) -> "Calve":
        """The same façade for one change that somebody asked for. Only the original is closed."""
        made = copy(self)
        made._asked = asked
        return made

    @property
    def registry(self) -> "ServedStore":
        """What servers keep in the store."""
        return self._app.registry

    @property
    def overview(self) -> "Overview":
        """What all work adds up to, as pages show it."""
        return self._app.overview

    def _asking(self, verb: str, subject: str = "") -> Asked:
        return self._asked or Asked(who=person(), verb=verb, subject=subject)

    def _store(self, verb: str, subject: str = "") -> Store:
        """The store, for a change: who asked is written with it."""
        return asked_store(self._app.store, self._asking(verb, subject))

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

    def page(self, query: ProcessQuery, *, why: bool = False) -> Json:
        """`processes`, newest first, and in `next` what to give as `before` for the page after. `why`: with the
        reason why each stands where it stands, and what else the page of a browser shows."""
        if why:
            from calve.app.documents import process_page

            return process_page(self._app, query)
        found = self.processes(query)
        more = len(found) == query.limit
        return {
            "processes": [view.served_json(process) for process in found],
            "next": found[-1].id if found and more else None,
        }

    def attention(self) -> Json:
        """What a person must do something about now, and the work of the last day."""
        from calve.app.attention import attention

        return attention(self._app, self._app.overview)

    def tables(
        self, *, q: str = "", sort: str = "last", order: str = "", page: int = 1, every: bool = False
    ) -> Json:
        """Pairs of a source table and a destination."""
        from calve.app.tables import tables

        return tables(self._app, self._app.overview, q=q, sort=sort, order=order, page=page, every=every)

    def table(self, source: str, to: str, *, page: int = 1, exported: str = "") -> Json:
        """One source table and its destination: its partitions as they were last seen, and what is known since."""
        from calve.app.table import table

        return table(self._app, source, to, page=page, exported=exported)

    def sheet(
        self, id: str, *, states: Sequence[str] = (), after: int = -1, before: int | None = None
    ) -> Json:
        """One process, whatever its size: a page of its tasks, a page of its events, its attempts as a picture."""
        from calve.app.sheet import sheet

        return sheet(self._app, id, states=states, after=after, before=before)

    def vault(self, *, name: str = "", page: int = 1) -> Json:
        """Backups as they were last seen, what proved them, and restores."""
        from calve.app.vault import vault

        return vault(self._app, name=name, page=page)

    def system(self) -> Json:
        """Workers, servers, outages, halts and errors."""
        from calve.app.system import system

        return system(self._app)

    def search(self, q: str) -> Json:
        """Ids, tables, partitions and error codes."""
        from calve.app.finder import search

        return search(self._app, self._app.overview, q)

    def find(self, ids: Sequence[str]) -> list[Process]:
        return _processes.found(self._app, ids)

    def show(self, ids: Sequence[str], *, tasks: int | None = None) -> "list[ProcessDetail]":
        """`tasks`: at most so many of them in all."""
        return _processes.details(self._app, ids, tasks=tasks)

    def tasks(self, ids: Sequence[str], *, first: int = 0, limit: int = 1000) -> Json:
        """Of processes one after another, from a number of the first one on; `next` says which of them has
        more, and from which number on."""
        found, rest = _processes.tasks(self._app, ids, first=first, limit=limit)
        return {
            "tasks": [{"process": task.process_id} | view.task_json(task) for task in found],
            "next": {"process": rest[0], "first": rest[1]} if rest else None,
        }

    def events(self, ids: Sequence[str], *, after: int = 0, limit: int | None = None) -> list[Event]:
        """Those with numbers above `after`, oldest first."""
        return _processes.events(self._app, ids, after=after, limit=limit)

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

    def servers(self) -> list[Json]:
        return [view.plain_json(one) for one in self.registry.servers()]

    def breakers(self) -> list[Json]:
        """Services that are down."""
        return [view.breaker_json(one) for one in self._app.store.breakers()]

    def totals(self) -> Json:
        """How much there is of everything, and when each table last succeeded."""
        return view.plain_json(self.registry.totals())

    def halts(self) -> list[Json]:
        """What is not begun until it is lifted."""
        return [view.plain_json(one) for one in self._app.store.halts()]

    def audit(self, *, before: int | None = None, limit: int = 100, process: str = "") -> Json:
        """Changes and who asked for them, newest first; of one process, those of its life, oldest first."""
        if process:
            [one] = self.find([process])
            ended = (one.finished_at or self.now()) + _BESIDE
            about = self.registry.audited_about(one.id, one.created_at - _BESIDE, ended, limit)
            return {"entries": [view.plain_json(one) for one in about], "next": None}
        found = [view.plain_json(one) for one in self.registry.audited(before, limit)]
        return {"entries": found, "next": found[-1]["number"] if len(found) == limit else None}

    def feed(self, after: str = "", *, limit: int = 100) -> Json:
        """Events of all processes after a cursor, in one order; see `app.feed`."""
        from calve.app.feed import feed_page

        return feed_page(self.registry, after, limit=limit).to_json()

    def seen(self, after: datetime | None = None, *, limit: int = 100) -> Json:
        """What was looked at outside since then, oldest first, and in `upto` what to give as `after` next time."""
        found = self.registry.sightings("", after=after, limit=limit) if after else []
        tried = [one.tried_at for one in found if one.tried_at]
        return {
            "sightings": [
                {
                    "subject": one.subject,
                    "what": one.what,
                    "at": view.time_json(one.tried_at),
                    "error": one.error,
                }
                for one in found
            ],
            "upto": max([*tried, after or self.now()]).isoformat(),
        }

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

    def partitions(self, table: str, to: str = "", *, gone: bool = False) -> list[Json]:
        """`gone`: also those that the destination has and the source no longer."""
        from calve.app.partitions import compare

        found, left = compare(self._app, table, to)
        return [view.partition_json(one) for one in found] + [view.gone_json(one) for one in left if gone]

    def source_tables(self, source: str = "") -> Json:
        """Tables of a source that could be exported, and the catalogs that they could go to."""
        from calve.app.partitions import list_tables

        name = source or self.config.default_source
        found = list_tables(self._app, name)
        return {
            "source": name,
            "seen_at": view.time_json(self.now()),
            "tables": found[:SOURCE_TABLES],
            "total": len(found),
            "catalogs": sorted(self.config.catalogs),
        }

    def parts(self, table: str) -> list[Json]:
        from calve.app.partitions import list_parts

        return [view.part_json(one) for one in list_parts(self._app, table)]

    def verify(self, ids: Sequence[str], *, deep: bool = False) -> list[Json]:
        from calve.app.proof import ExportProof, proofs

        found = [
            view.export_proof_json(one) if isinstance(one, ExportProof) else view.optimize_proof_json(one)
            for one in proofs(self._app, ids, deep=deep)
        ]
        for one in found:
            self._proven(one["id"], one["faults"], depth="source" if deep else "destination")
        return found

    def _proven(self, id: str, faults: Sequence[str], *, depth: str) -> None:
        detail = "; ".join(faults)[:_MOST_DETAIL]
        # If we die here, it was proven and nobody knows: it can be proven again.
        self.registry.record_proof(Proof(process_id=ProcessId(id), ok=not faults, depth=depth, detail=detail))

    def keys(self, ids: Sequence[str]) -> dict[str, str]:
        """The Idempotency-Key, or query_id, that processes were submitted with, while it is kept; whole ids only."""
        return {str(one): key for one, key in self.registry.keys([ProcessId(id) for id in ids]).items()}

    def proofs(self, ids: Sequence[str]) -> list[Json]:
        """What `verify` found, newest first."""
        return [view.plain_json(one) for one in self.registry.proofs(self._app.find(ids))]

    def health(self, table: str, *, orphans: bool = False) -> Json:
        from calve.app.health import table_health

        return table_health(self._app, table, orphans=orphans).to_json()

    def history(self, table: str = "", *, limit: int = 50, after: str = "") -> list[Json]:
        """Newest first; those before the process `after`."""
        from calve.app.optimize_history import optimize_history

        found = optimize_history(self._app, table, limit=limit, after=after)
        return [view.optimized_json(one) for one in found]

    def doctor(self, *, spark: bool = True) -> Iterator[Json]:
        """Findings as they are made. Puts a small object into each warehouse and removes it."""
        from calve.app.doctor import examine

        return (view.finding_json(one) for one in examine(self._app, spark=spark))

    def versions(self) -> Json:
        """Of all parts of this program."""
        from calve.app.support import versions

        return versions()

    def support(self, *, with_names: bool = False) -> dict[str, Json]:
        """Documents for a bug report, by the name of their file."""
        from calve.app.support import bundle

        return bundle(self, with_names=with_names)

    def export_preview(
        self, table: str, to: str, selection: "Selection", options: "ExportOptions | None" = None
    ) -> Json:
        from calve.app import exports

        request = exports.export_request(self._app, table, to, selection, options)
        return exports.preview_json(exports.preview(self._app, request, selection))

    def optimize_preview(self, table: str, options: "OptimizeOptions | None" = None) -> Json:
        from calve.app.health import optimize_request, preview

        return view.optimize_preview_json(preview(self._app, optimize_request(self._app, table, options)))

    def backup_list(self, *, contents: bool = False) -> Json:
        """`backups`, oldest first, damaged ones too; what they take together, shared parts once; and those
        that are encrypted with a key that is not configured. `contents`: with the partitions of each table in
        the newest of them."""
        from calve.app import backup_facts, backup_view, backups

        location = self.config.backup_url
        document = backup_view.backups_json(location, backups.entries(self._app), contents=contents)
        proofs = backup_facts.restored(self.registry, location, document["backups"])
        for one in document["backups"]:
            proof = proofs.get(one["name"])
            one["restored_at"] = view.time_json(proof.at) if proof else None
        return document

    def backup_show(self, name: str) -> Json:
        from calve.app import backup_view, backups

        return backup_view.backup_detail_json(backups.entry(self._app, name))

    def backup_verify(self, name: str, *, read_share: float = 0.0) -> Json:
        from calve.app import backup_view, backups

        found = backups.verify(self._app, name, read_share=read_share)
        with suppress(NotFoundError):  # a backup that another store knows
            process = self._app.store.process(ProcessId(found.process_id))
            faults = [f"{one.problem.object}: {one.problem.what}" for one in found.flaws]
            self._proven(process.id, faults, depth=f"{read_share:.0%} of the data")
        return backup_view.verified_json(found)

    def restore_preview(
        self, name: str, options: "RestoreOptions | None" = None, *, source: str = ""
    ) -> Json:
        """What a restore would make, and what stands in its way."""
        from calve.app import backup_view, backups

        return backup_view.restore_preview_json(
            backups.restore_preview(self._app, name, options, source=source)
        )

    def policy_list(self) -> list[Json]:
        from calve.app import policy_view

        return policy_view.policy_list(self._app)

    def policy_show(self, name: str) -> Json:
        from calve.app import policy_view

        return policy_view.policy_show(self._app, name)

    def policy_explain(self, table: str, partition: str) -> list[Json]:
        from calve.app import policy_view

        return policy_view.policy_explain(self._app, table, partition)

    def schedule_list(self) -> list[Json]:
        """Backups by rule."""
        from calve.app import schedule_view

        return schedule_view.schedule_list(self._app)

    def schedule_show(self, name: str) -> Json:
        from calve.app import schedule_view

        return schedule_view.schedule_show(self._app, name)

    def hold_list(self, table: str = "", *, every: bool = False) -> list[Json]:
        """Those that stand; `every`: also released and expired ones."""
        from calve.app import holds

        return holds.hold_list(self._app, table, every=every)

    def view_show(self, table: str) -> Json:
        from calve.app import tier

        return tier.view_show(self._app, table)

    # -- changing -----------------------------------------------------------------------------------

    def hold_add(
        self, table: str, partition: str = "", *, reason: str, until: str = "", force: bool = False
    ) -> Json:
        """Keep rows where they are; `until` is a span or a time. `force`: also a name that matches nothing now."""
        from calve.app import holds

        asked = self._asking("hold_add", f"{table} {partition}".strip())
        return holds.hold_add(
            self._app, table, partition, reason=reason, until=until, force=force, asked=asked
        )

    def hold_release(self, id: str) -> Json:
        from calve.app import holds

        return holds.hold_release(self._app, id, self._asking("hold_release", id))

    def policy_run(self, name: str, *, dry_run: bool = False) -> Json:
        from calve.app import policy_view

        with nullcontext() if dry_run else self._audited("policy_run", name):
            return policy_view.policy_run(self._app, name, dry_run=dry_run)

    def policy_pause(self, name: str, *, reason: str = "") -> Json:
        from calve.app import policy_view

        return policy_view.policy_pause(self._app, name, reason, self._asking("policy_pause", name))

    def policy_resume(self, name: str) -> Json:
        from calve.app import policy_view

        return policy_view.policy_resume(self._app, name, self._asking("policy_resume", name))

    def policy_approve(self, name: str, *, dry_run: bool = False) -> Json:
        """Allow a policy, as it is, to move partitions out of their tables; and what will leave."""
        from calve.app import release_verbs

        asked = self._asking("policy_approve", name)
        return release_verbs.policy_approve(self._app, name, asked, dry_run=dry_run)

    def policy_drop(self, table: str, partitions: Sequence[str], *, approve: str = "") -> Json:
        """The plan of deleting partitions that are in quarantine; with its hash as `approve`, begun."""
        from calve.app import release_verbs

        about = f"{table} {' '.join(partitions)}"
        asked = self._asking("policy_drop", about)
        return release_verbs.policy_drop(
            self._app, self._store("policy_drop", about), table, partitions, asked, approve=approve
        )

    def policy_undo(self, table: str, partition: str, *, force: bool = False) -> Submitted:
        """Bring a partition back out of quarantine. `force`: though rows came, or were deleted, since it left."""
        from calve.app import release_verbs

        store = self._store("policy_undo", f"{table} {partition}")
        return release_verbs.policy_undo(self._app, store, table, partition, force=force)

    def schedule_run(self, name: str) -> Submitted:
        """One more backup of the schedule, now."""
        from calve.app import schedules

        asked = self._asking("schedule_run", name)
        return Submitted(processes=(schedules.run_now(self._app, self.config.schedule(name), asked),))

    def schedule_pause(self, name: str, *, reason: str = "") -> Json:
        from calve.app import schedule_view

        return schedule_view.schedule_pause(self._app, name, reason, self._asking("schedule_pause", name))

    def schedule_resume(self, name: str) -> Json:
        from calve.app import schedule_view

        return schedule_view.schedule_resume(self._app, name, self._asking("schedule_resume", name))

    def untier(self, table: str, partition: str, *, to: str = "") -> Submitted:
        """Bring a partition back from the lake table `to`, into its table, where it has no rows. "": the one that it was
        exported to."""
        from calve.app import untier

        store = self._store("untier", f"{table} {partition}")
        return untier.untier(self._app, store, table, partition, to)

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
        from calve.app import tier

        with self._audited("view_create", table):
            return tier.view_create(self._app, table, to, into, cold=cold, hot=hot, exclude=exclude)

    def view_drop(self, table: str, *, force: bool = False) -> Json:
        from calve.app import tier

        with self._audited("view_drop", table):
            return tier.view_drop(self._app, table, force=force)

    def export(
        self, table: str, to: str, selection: "Selection", options: "ExportOptions | None" = None
    ) -> ExportAnswer:
        from calve.app import exports

        request = exports.export_request(self._app, table, to, selection, options)
        return exports.export(self._app, self._store("export", request.source_table), request, selection)

    def optimize(self, table: str, options: "OptimizeOptions | None" = None) -> Submitted:
        from calve.app.health import optimize_request, submit_optimize

        request = optimize_request(self._app, table, options)
        return submit_optimize(self._app, self._store("optimize", request.name), request)

    def backup_create(
        self, name: str, tables: Sequence[str], options: "BackupOptions | None" = None, *, source: str = ""
    ) -> Submitted:
        from calve.app import backups

        return backups.create(
            self._app, self._store("backup_create", name), name, tables, options, source=source
        )

    def backup_restore(
        self, name: str, options: "RestoreOptions | None" = None, *, source: str = ""
    ) -> Submitted:
        from calve.app import backups

        return backups.restore(self._app, self._store("backup_restore", name), name, options, source=source)

    def backup_drill(self, name: str, *, restore_bytes: int = DRILL_BYTES) -> Submitted:
        """Restore a sample of a backup into an engine of a worker, compare it, and remove it."""
        from calve.app import drills

        return drills.drill(self._app, self._store("backup_drill", name), name, restore_bytes=restore_bytes)

    def backup_delete(self, name: str) -> Json:
        from calve.app import backup_view, backups

        with self._audited("backup_delete", name):
            return backup_view.deleted_json(backups.delete_backup(self._app, name))

    def backup_prune(self, keep: "Keep", *, dry_run: bool = False) -> Json:
        from calve.app import backup_view, backups

        with nullcontext() if dry_run else self._audited("backup_prune", self.config.backup_url):
            return backup_view.pruned_json(backups.prune(self._app, keep, dry_run=dry_run), dry_run=dry_run)

    @contextmanager
    def _audited(self, verb: str, subject: str) -> Iterator[None]:
        """A change that no row of the store holds: noted before it and after."""
        store, asked = self._app.registry, self._asking(verb, subject)
        # If we die in here, the audit has "asked" and no outcome: it may have happened.
        store.audit(asked, AuditOutcome.ASKED)
        try:
            yield
        except CalveError as error:
            store.audit(asked, AuditOutcome.FAILED, error.message)
            raise
        store.audit(asked, AuditOutcome.DONE)

    def token_new(self, role: str, *, name: str = "", expires: timedelta | None = None) -> Json:
        """The answer has the token's text, which nobody can see again."""
        from calve.app import access

        asked = self._asking("token_new")
        return access.token_new(
            self._app.registry, Role(role), asked, now=self.now(), name=name, expires=expires
        )

    def token_list(self) -> list[Json]:
        from calve.app import access

        return access.token_list(self._app.registry, self.now())

    def token_revoke(self, names: Sequence[str]) -> list[Json]:
        """By name or id."""
        from calve.app import access

        return access.token_revoke(self._app.registry, tuple(names), self._asking("token_revoke"), self.now())

    def notify_test(self, name: str) -> Json:
        """Send one message to a target of the configuration, now."""
        from calve.app import notices

        target = notices.find_target(self.config, name)
        with self._audited("notify_test", target.key):
            return notices.notify_test(target)

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
        return _processes.cancel_all(self._app, self._store("cancel"), ids)

    def stop(self, processes: Sequence[Process]) -> "Generator[Standing, None, None]":
        """Follow processes that were asked to stop; see `work.stopped`."""
        from calve.app.work import stopped

        return stopped(self._app, processes)

    def halt(self, table: str = "", *, kind: str = "export", reason: str = "") -> Json:
        """Begin no work of a kind, of a table or of all, until it is lifted. What is being published goes on.
        The answer names workers of an old version, which do not know halts."""
        source = _processes.source_table(self._app, table)
        asked = self._asking("halt", source)
        made = self.registry.put_halt(Halt(kind=kind, source=source, who=asked.who, reason=reason), asked)
        old = [worker.id for worker in self._app.store.workers() if not worker.version]
        return view.plain_json(made) | {"unaware_workers": old}

    def lift(self, table: str = "", *, kind: str = "export") -> Json:
        """Exactly the halt that was made. RefusedError for a table while all are halted."""
        source = _processes.source_table(self._app, table)
        if source and any(one.kind == kind and not one.source for one in self._app.store.halts()):
            raise RefusedError(
                f"all work of kind {kind} is stopped, not only that of {source}",
                code="all_halted",
                hint="start all of it first",
            )
        lifted = self.registry.lift_halt(kind, source, self._asking("lift", source))
        return {"kind": kind, "source": source, "lifted": lifted}

    def retry(self, ids: Sequence[str]) -> Submitted:
        return _processes.retry_all(self._app, self._store("retry"), ids)

    def worker(self) -> "WorkerProgram":
        from calve.app.work import WorkerProgram

        return WorkerProgram(self._app)


def person() -> str:
    """Who the audit names where no token says it: the user of this program."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = str(os.getuid())
    return f"local:{user}@{socket.gethostname()}"
