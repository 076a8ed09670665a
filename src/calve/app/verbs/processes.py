"""Verbs of processes: what makes one, follows it, explains it, stops it and proves it."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from calve.app import processes as _processes
from calve.app import view
from calve.app.front import ExportAnswer, Json
from calve.app.verbs.opened import Opened
from calve.app.verbs.roles import KINDS
from calve.app.verbs.served import IDS, MOST, Given, Served, by_ids, limited, limited_whole, listed
from calve.control.client import CancelAnswer, Submitted
from calve.control.why import waiting_for
from calve.model.access import Halt
from calve.model.errors import RefusedError, UsageError
from calve.model.process import BatchId, Breaker, Event, Process, ProcessId, ProcessQuery
from calve.model.states import PROCESS_LIVE, ProcessState

if TYPE_CHECKING:
    from calve.app.calve import Calve
    from calve.app.front import ProcessDetail, Reason, Standing
    from calve.app.values import ExportOptions, Selection


class ProcessVerbs(Opened):
    def export(
        self, table: str, to: str, selection: "Selection", options: "ExportOptions | None" = None
    ) -> ExportAnswer:
        from calve.app import exports

        request = exports.export_request(self._app, table, to, selection, options)
        return exports.export(self._app, self._store("export", request.source_table), request, selection)

    def export_preview(
        self, table: str, to: str, selection: "Selection", options: "ExportOptions | None" = None
    ) -> Json:
        from calve.app import exports

        request = exports.export_request(self._app, table, to, selection, options)
        return exports.preview_json(exports.preview(self._app, request, selection))

    def processes(self, query: ProcessQuery) -> list[Process]:
        """Newest first; `source` and `destination` as a person types them."""
        return self._app.store.processes(_processes.completed(self._app, query))

    def page(self, query: ProcessQuery, *, why: bool = False) -> Json:
        """`processes`, newest first, and in `next` what to give as `before` for the page after. `why`: with the
        reason why each stands where it stands, and what else the page of a browser shows."""
        if why:
            from calve.app.pages.document import process_page

            return process_page(self._app, query)
        found = self.processes(query)
        more = len(found) == query.limit
        return {
            "processes": [view.served_json(process) for process in found],
            "next": found[-1].id if found and more else None,
        }

    def find(self, ids: Sequence[str]) -> list[Process]:
        return self._app.processes(ids)

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
        plans = (self._app.store.plan(process_id) for process_id in ids)
        return list(dict.fromkeys(note for plan in plans if plan for note in view.notes_of(plan)))

    def why(self, ids: Sequence[str]) -> "list[Reason]":
        return _processes.reasons(self._app, ids)

    def outages(self, processes: Sequence[Process]) -> dict[ProcessId, Breaker]:
        """For each that waits for a service that is down: which, why, since when."""
        return waiting_for(self._app.store, processes)

    def has_workers(self, processes: Sequence[Process]) -> bool:
        """Whether a running worker will take each of them."""
        return self._app.has_workers(processes)

    def standing(self, ids: Sequence[str]) -> "Standing":
        """One look of `follow`."""
        from calve.app.work import standing

        return standing(self._app, self._app.find(ids))

    def follow(
        self, ids: Sequence[ProcessId], *, timeout_seconds: float | None = None
    ) -> "Generator[Standing, None, None]":
        """Where processes stand, again and again, until all have ended or the time is up."""
        from calve.app.work import follow

        return follow(self._app, ids, timeout_seconds=timeout_seconds)

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

    def retry(self, ids: Sequence[str]) -> Submitted:
        return _processes.retry_all(self._app, self._store("retry"), ids)

    def verify(self, ids: Sequence[str], *, deep: bool = False) -> list[Json]:
        from calve.app.proof import ExportProof, proofs

        found = [
            view.export_proof_json(one) if isinstance(one, ExportProof) else view.optimize_proof_json(one)
            for one in proofs(self._app, ids, deep=deep)
        ]
        for one in found:
            self._proven(one["id"], one["faults"], depth="source" if deep else "destination")
        return found

    def proofs(self, ids: Sequence[str]) -> list[Json]:
        """What `verify` found, newest first."""
        return [view.plain_json(one) for one in self.registry.proofs(self._app.find(ids))]

    def keys(self, ids: Sequence[str]) -> dict[str, str]:
        """The Idempotency-Key, or query_id, that processes were submitted with, while it is kept; whole ids only."""
        return {str(one): key for one, key in self.registry.keys([ProcessId(id) for id in ids]).items()}

    def halts(self) -> list[Json]:
        """What is not begun until it is lifted."""
        return [view.plain_json(one) for one in self._app.store.halts()]

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


_FILTERS = {
    "kind": str,
    "states": list,
    "table": str,
    "to": str,
    "batch": str,
    "since": datetime,
    "limit": int,
}
_SELECTION = {"partitions": list, "parts": list, "all": bool, "older_than": timedelta}
_EXPORT = {
    "table": str, "to": str, **_SELECTION,
    "where": str, "final": bool, "force": bool, "discard_deletes": bool, "allow_shrink": bool, "allow_overlap": bool,
    "create": bool, "evolve": bool, "partition_by": str, "casts": dict, "exclude": list, "mutations": str,
    "ignore_row_policies": bool, "from_backup": str, "file_mb": int, "codec": str, "unsigned": bool, "include": list,
    "renames": dict, "plan_hash": str, "new_parts": bool,
}  # fmt: skip
_EXPORT_CHOICES = {
    "mutations": ("refuse", "wait", "ignore"),
    "codec": ("zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed"),
}


def _process_list(calve: "Calve", given: Given) -> list[Json]:
    """As `calve ps`: those that have not ended, unless states, a batch or `all` say otherwise."""
    limited_whole(given, 1)
    query = _query(given, source=given.get("table", ""))
    if not query.states and not given.get("all") and not query.batch:
        query = replace(query, states=PROCESS_LIVE)
    return [view.served_json(process) for process in calve.processes(_after(calve, given, query))]


def _page(calve: "Calve", given: Given) -> Json:
    """All, unless states are given. `table` is the source or the destination."""
    query = _after(calve, given, _query(given, table=given.get("table", "")))
    return calve.page(query, why=given.get("why", False))


def _after(calve: "Calve", given: Given, query: ProcessQuery) -> ProcessQuery:
    """What comes after a process that the page before ended with."""
    after = given.get("after")
    return replace(query, before=calve.find([after])[0].id) if after else query


def _query(given: Given, *, source: str = "", table: str = "") -> ProcessQuery:
    try:
        states = frozenset(ProcessState(state.upper()) for state in given.get("states", ()))
    except ValueError:
        names = ", ".join(state.value for state in ProcessState)
        raise UsageError("invalid states", code="bad_option", hint=f"give some of {names}") from None
    return ProcessQuery(
        states=states,
        kind=given.get("kind", ""),
        destination=given.get("to", ""),
        batch=BatchId(given["batch"]) if given.get("batch") else None,
        created_since=given.get("since"),
        created_before=given.get("until"),
        limit=limited(given, 200),
        source=source,
        table=table,
    )


def _workers_for(calve: "Calve", given: Given) -> Json:
    return {"has_workers": calve.has_workers(calve.find(given["ids"]))}


def _outages(calve: "Calve", given: Given) -> Json:
    found = calve.outages(calve.find(given["ids"]))
    return {process: view.breaker_json(breaker) for process, breaker in found.items()}


def _chosen(given: Given) -> tuple[Any, Any]:
    from calve.app.values import ExportOptions, Selection

    selection = Selection(**{name: given[name] for name in _SELECTION if name in given})
    taken = {"table", "to", *_SELECTION}
    return selection, ExportOptions(**{name: value for name, value in given.items() if name not in taken})


def _export(calve: "Calve", given: Given) -> Json:
    return view.export_answer_json(calve.export(given["table"], given["to"], *_chosen(given)))


def _export_preview(calve: "Calve", given: Given) -> Json:
    return calve.export_preview(given["table"], given["to"], *_chosen(given))


def _stop(calve: "Calve", given: Given) -> list[Json]:
    """After `cancel`, where no worker runs: the cancels are carried out here. Answers once they are."""
    found = calve.find(given["ids"])
    with closing(calve.stop(found)) as standings:
        for _ in standings:
            pass
    return [view.served_json(one) for one in calve.find([one.id for one in found])]


SERVED: Mapping[str, Served] = {
    "export": Served(
        answer=_export, options=_EXPORT, required=("table", "to"), choices=_EXPORT_CHOICES
    ),
    "export_preview": Served(
        answer=_export_preview, options=_EXPORT, required=("table", "to"), choices=_EXPORT_CHOICES
    ),
    "processes": Served(answer=_process_list, options={**_FILTERS, "all": bool, "after": str}, choices={"kind": KINDS}),
    "page": Served(answer=_page, options={**_FILTERS, "until": datetime, "after": str, "why": bool}, choices={"kind": KINDS}),
    "find": by_ids(ProcessVerbs.find, listed(view.served_json)),
    "show": by_ids(partial(ProcessVerbs.show, tasks=MOST), listed(view.served_detail_json)),
    "tasks": Served(
        answer=lambda calve, given: calve.tasks(given["ids"], first=given.get("first", 0), limit=limited(given, MOST)),
        options={"ids": list, "first": int, "limit": int}, required=("ids",),
    ),
    "events": Served(
        answer=lambda calve, given: [
            view.event_json(one) for one in calve.events(given["ids"], after=given.get("after", 0), limit=given.get("limit"))
        ],
        options={"ids": list, "after": int, "limit": int}, required=("ids",),
    ),
    "notes": by_ids(ProcessVerbs.notes, list),
    "why": by_ids(ProcessVerbs.why, listed(view.reason_json)),
    "outages": Served(answer=_outages, options=IDS, required=("ids",)),
    "has_workers": Served(answer=_workers_for, options=IDS, required=("ids",)),
    "standing": by_ids(ProcessVerbs.standing, view.standing_json),
    "cancel": by_ids(ProcessVerbs.cancel, listed(view.cancelled_json)),
    "stop": Served(answer=_stop, options=IDS, required=("ids",)),
    "retry": by_ids(ProcessVerbs.retry, view.submitted_json),
    "verify": Served(
        answer=lambda calve, given: calve.verify(given["ids"], deep=given.get("deep", False)),
        options={"ids": list, "deep": bool}, required=("ids",),
    ),
    "proofs": by_ids(ProcessVerbs.proofs, list),
    "keys": by_ids(ProcessVerbs.keys, dict),
    "halts": Served(answer=lambda calve, _: calve.halts()),
    "halt": Served(
        answer=lambda calve, given: calve.halt(
            given.get("table", ""), kind=given.get("kind", "export"), reason=given.get("reason", "")
        ),
        options={"table": str, "kind": str, "reason": str}, choices={"kind": KINDS},
    ),
    "lift": Served(
        answer=lambda calve, given: calve.lift(given.get("table", ""), kind=given.get("kind", "export")),
        options={"table": str, "kind": str}, choices={"kind": KINDS},
    ),
}  # fmt: skip
