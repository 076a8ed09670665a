"""The one door for fronts that serve others: who may use which verb of the façade, by JSON in and out.

HTTP, SQL, actions and aliases carry verbs of every role over one route, so the role belongs to the verb and
is checked here, in `Desk.perform`, and nowhere else. Every public method of `Calve` has a `Verb`; a test
fails for one that has none. Options are listed here, not read from the kinds: a server starts without them.
"""

import hashlib
import importlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import Any

from calve.app import view
from calve.app.arguments import checked
from calve.app.calve import Calve, person
from calve.app.destination import as_stored, parse_destination, parse_source_table
from calve.app.front import DRILL_BYTES, ExportAnswer, Json, Submitted
from calve.app.sightings import keep
from calve.destination.names import is_folder
from calve.model.access import Asked, Caller, Replayed, Role
from calve.model.errors import DeniedError, StoreUnknownError, UsageError
from calve.model.process import BatchId, ProcessQuery
from calve.model.refusals import key_reused
from calve.model.states import PROCESS_LIVE, ProcessState


class NotAllowedError(DeniedError):
    """The caller's role is not enough."""


class Reach(StrEnum):
    STORE = "store"  # answered from the store
    OUTSIDE = "outside"  # asks a source, a catalog or a storage
    HERE = "here"  # needs the program that asks; never served


@dataclass(frozen=True, kw_only=True)
class Verb:
    """What a front may offer. `changes`: it queues, stops or deletes something."""

    name: str
    role: Role
    reach: Reach
    changes: bool = False
    raised: Mapping[str, Role] = field(default_factory=dict)  # options that need more than the verb
    lowered: Mapping[str, Role] = field(default_factory=dict)  # options with which it needs less

    def needs(self, arguments: Mapping[str, Any]) -> Role:
        given = [name for name, value in arguments.items() if value]
        lowered = next((self.lowered[name] for name in given if name in self.lowered), self.role)
        raised = [self.raised[name] for name in given if name in self.raised]
        return max([lowered, *raised], key=list(Role).index) if raised else lowered


def _verbs(role: Role, reach: Reach, names: str, *, changes: bool = False) -> list[Verb]:
    return [Verb(name=name, role=role, reach=reach, changes=changes) for name in names.split()]


# They publish what row policies hide, or give up rows that are exported, or trust what nobody signed.
_RISKY = ("ignore_row_policies", "discard_deletes", "allow_shrink", "allow_overlap", "unsigned")
_RAISED = dict.fromkeys(_RISKY, Role.ADMIN)
_V, _O, _A = Role.VIEWER, Role.OPERATOR, Role.ADMIN

VERBS: Mapping[str, Verb] = MappingProxyType(
    {
        verb.name: verb
        for verb in (
            *_verbs(_V, Reach.STORE, "now find has_workers notes outages processes show events why standing"),
            *_verbs(_V, Reach.STORE, "workers history page servers breakers halts proofs keys feed tasks totals versions"),
            *_verbs(_V, Reach.STORE, "seen attention tables table sheet vault system search"),
            *_verbs(_V, Reach.OUTSIDE, "source_tables parts health export_preview optimize_preview"),
            # A pair that had no export yet: what is kept of it takes room in the store.
            Verb(name="partitions", role=_V, reach=Reach.OUTSIDE, raised={"keep": _O}),
            *_verbs(_V, Reach.OUTSIDE, "backup_list backup_show view_show"),
            *_verbs(_V, Reach.STORE, "policy_list policy_show policy_explain hold_list schedule_list schedule_show"),
            *_verbs(_O, Reach.STORE, "settings audit"),
            *_verbs(_O, Reach.STORE, "policy_pause policy_resume schedule_pause schedule_resume", changes=True),
            *_verbs(_O, Reach.OUTSIDE, "hold_add untier", changes=True),
            Verb(name="policy_undo", role=_O, reach=Reach.OUTSIDE, changes=True, raised={"force": _A}),
            Verb(name="policy_drop", role=_V, reach=Reach.OUTSIDE, changes=True, raised={"approve": _A}),
            Verb(name="policy_approve", role=_A, reach=Reach.STORE, changes=True, lowered={"dry_run": _V}),
            Verb(name="policy_run", role=_O, reach=Reach.OUTSIDE, changes=True, lowered={"dry_run": _V}),
            *_verbs(_O, Reach.STORE, "halt lift", changes=True),
            *_verbs(_O, Reach.OUTSIDE, "verify backup_verify doctor support"),
            Verb(name="export", role=_O, reach=Reach.OUTSIDE, changes=True, raised=_RAISED),
            Verb(name="backup_create", role=_O, reach=Reach.OUTSIDE, changes=True,
                 raised={"ignore_row_policies": _A}),
            *_verbs(_O, Reach.OUTSIDE, "optimize stop notify_test schedule_run backup_drill", changes=True),
            *_verbs(_O, Reach.STORE, "cancel retry", changes=True),
            *_verbs(_A, Reach.OUTSIDE, "backup_restore backup_delete view_create view_drop", changes=True),
            Verb(name="backup_prune", role=_A, reach=Reach.OUTSIDE, changes=True, lowered={"dry_run": _V}),
            *_verbs(_A, Reach.STORE, "token_list"),
            *_verbs(_A, Reach.OUTSIDE, "restore_preview"),
            *_verbs(_A, Reach.STORE, "token_new token_revoke hold_release", changes=True),
            *_verbs(_A, Reach.HERE, "follow run pin worker", changes=True),
        )
    }
)  # fmt: skip

_LOADING = threading.Lock()
_OUTSIDE = (
    "calve.iceberg.catalogs.catalog", "calve.clickhouse.embedded.source", "calve.app.partitions", "calve.app.exports",
    "calve.app.health", "calve.app.backups",
)  # fmt: skip

Given = Mapping[str, Any]

KINDS = ("export", "backup", "restore", "optimize", "proof", "drill", "release", "return", "drop", "untier")
# Their processes and their key are one transaction of the store.
SUBMITS = frozenset(
    {
        "export",
        "optimize",
        "backup_create",
        "backup_restore",
        "policy_undo",
        "untier",
        "retry",
        "schedule_run",
        "backup_drill",
    }
)
_MOST = 1000  # of a list
_FILTERS = {
    "kind": str,
    "states": list,
    "table": str,
    "to": str,
    "batch": str,
    "since": datetime,
    "limit": int,
}
_IDS = {"ids": list}
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
_RESTORE = {
    "name": str, "source": str, "tables": list, "into": str, "schema_only": bool, "data_only": bool,
    "existing": str, "partitions": list, "unsigned": bool, "rbac": bool, "without_row_policies": bool,
    "again": bool, "plan_hash": str,
}  # fmt: skip
_OPTIMIZE = {"table": str, "full": bool, "sort": str, "expire": bool, "orphans": bool}


@dataclass(frozen=True, kw_only=True)
class _Served:
    """How a verb is asked for in JSON, and how it answers in JSON."""

    answer: Callable[[Calve, Given], Any]
    options: Mapping[str, type] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict)


class Desk:
    """One façade, for callers of every role. May be shared by threads; calls block."""

    def __init__(self, calve: Calve) -> None:
        self._calve = calve

    def check(self, caller: Caller, verb: str, arguments: Given) -> Verb:
        """NotAllowedError if this caller may not do that; UsageError for what nobody serves."""
        found = VERBS.get(verb)
        if found is None or verb not in _SERVED:
            raise UsageError(
                f"unknown verb {verb!r}", code="unknown_verb", hint=f"there are {', '.join(sorted(_SERVED))}"
            )
        needed = found.needs(arguments)
        if not caller.role.may(needed):
            risky = [name for name in arguments if arguments[name] and name in found.raised]
            what = f"{verb} with {', '.join(risky)}" if risky and caller.role.may(found.role) else verb
            raise NotAllowedError(
                f"{caller.name} is {caller.role.value}, and {what} needs {needed.value}",
                code="role",
                hint="ask for a token of that role: calve token new --role " + needed.value,
            )
        return found

    def perform(self, caller: Caller, verb: str, arguments: Given, *, key: str = "") -> Any:
        """The JSON that the verb answers with. Blocks: run it in a thread.

        With a `key` what submits is done once: asked again by this caller it answers as it did first, and
        with other arguments it is RefusedError (code `key_reused`). Other verbs may be repeated as they are."""
        found = self.check(caller, verb, arguments)
        served = _SERVED[verb]
        given = checked(arguments, served.options, required=served.required, choices=served.choices)
        if found.reach is Reach.OUTSIDE:
            load_outside()
        if not found.changes:
            answer = served.answer(self._calve, given)
            if found.reach is Reach.OUTSIDE:
                self._keep_sighting(verb, given, answer)
            return answer
        key = key if verb in SUBMITS else ""
        asked = Asked(
            who=caller.name, verb=verb, key=key, hash=_hash(verb, arguments), subject=_subject(given)
        )
        if key and (first := self._replay(asked)) is not None:
            return first
        try:
            answer = served.answer(self._calve.on_behalf(asked), given)
        except (Replayed, StoreUnknownError):
            # Another request with this key came first, or the store's word was lost: what is there counts.
            if key and (first := self._replay(asked)) is not None:
                return first
            raise
        if key:
            # If we die here, the same request again is answered from its processes.
            self._calve.registry.answer_request(caller.name, key, json.dumps(answer))
        return answer

    def _keep_sighting(self, verb: str, given: Given, answer: Any) -> None:
        config = self._calve.config

        def source(text: str) -> str:
            return text if ":" in text else f"{config.default_source}:{text}"

        keep(
            self._calve.registry, verb, given, answer,
            source=source, destination=lambda text: as_stored(text, config),
        )  # fmt: skip

    def replay(self, caller: Caller, verb: str, arguments: Given, key: str) -> Any | None:
        """What `perform` answered to this before; None if it did not. Asks the store only."""
        self.check(caller, verb, arguments)
        return self._replay(Asked(who=caller.name, verb=verb, key=key, hash=_hash(verb, arguments)))

    def _replay(self, asked: Asked) -> Any | None:
        request = self._calve.registry.request(asked.who, asked.key)
        if request is None:
            return None
        if request.hash != asked.hash:
            raise key_reused(asked.key)
        if request.answer is not None:
            return json.loads(request.answer)
        made = Submitted(processes=tuple(self._calve.find(request.processes)))
        if asked.verb != "export":
            return view.submitted_json(made)
        one = made.processes[0] if made.processes else None
        return view.export_answer_json(
            ExportAnswer(
                processes=made.processes,
                source=one.source if one else "",
                destination=one.destination if one else "",
                partitions=tuple(name for process in made.processes for name in process.partitions),
            )
        )

    def options(self, verb: str) -> Mapping[str, type]:
        """What the verb takes; `list` is one of texts, `dict` of texts by name."""
        return _SERVED[verb].options

    def choices(self, verb: str) -> Mapping[str, Sequence[str]]:
        return _SERVED[verb].choices

    def required(self, verb: str) -> tuple[str, ...]:
        return _SERVED[verb].required

    def check_names(self, verb: str, arguments: Given) -> None:
        """UsageError for names that nothing here can have, before anything is asked: for what is accepted now and
        done later."""
        config = self._calve.config
        if verb.startswith("backup_"):
            from calve.archive.location import checked_name

            checked_name(arguments["name"])
        if verb == "export":
            table = parse_source_table(arguments["table"], config)
            if not arguments.get("from_backup"):
                config.source(table.source or config.default_source)
            parse_destination(arguments["to"], config)

    def services(self, verb: str, arguments: Given) -> tuple[str, ...]:
        """What an outside verb will ask, as far as the names say: to bound how much waits for one of them.
        Connects to nothing; names that cannot be read ask nothing either."""
        found: list[str] = []
        table, to = arguments.get("table"), arguments.get("to")
        if verb.startswith(("optimize", "health")):
            table, to = None, table
        if verb.startswith(("backup", "restore", "schedule")) or arguments.get("from_backup"):
            found.append("backups")
        if verb == "source_tables":
            found.append(f"source:{arguments.get('source') or self._calve.config.default_source}")
        if isinstance(table, str):
            name, parted, _ = table.partition(":")
            found.append(f"source:{name if parted else self._calve.config.default_source}")
        if isinstance(to, str):
            found.append(
                f"storage:{to.partition('://')[0]}" if is_folder(to) else f"catalog:{to.partition('.')[0]}"
            )
        return tuple(found) or (verb,)


def admitted(running: Iterable[Sequence[str]], services: Sequence[str], most: int) -> bool:
    """Whether one more may ask these services: `most` may ask the same ones, and twice as many any one of them. What
    waits for a source that is down names a catalog that is not, and must not use up what others may ask of it."""
    listed = [tuple(one) for one in running]
    busy = Counter(service for one in listed for service in one)
    return listed.count(tuple(services)) < most and all(busy[service] < 2 * most for service in services)


def load_outside() -> None:
    """What outside verbs import, by one thread before the others: PyIceberg's modules import each other in circles, and
    of two threads that are the first to import them at the same moment one fails."""
    with _LOADING:
        for name in _OUTSIDE:
            importlib.import_module(name)


def local_caller() -> Caller:
    """The user of this program, who has its configuration and so may do everything."""
    return Caller(name=person(), role=Role.ADMIN)


def _hash(verb: str, arguments: Given) -> str:
    """Of what the client sent, before defaults are added: an upgrade in between changes no hash."""
    text = json.dumps([verb, arguments], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _subject(given: Given) -> str:
    """What a change is about, for people who read the audit."""
    named = given.get("ids") or given.get("names") or (given.get("table") or given.get("name") or "",)
    return " ".join(named)[:200]


def _list(of: Callable[[Any], Json]) -> Callable[[Any], list[Json]]:
    return lambda found: [of(one) for one in found]


def _by_ids(method: Callable[..., Any], shown: Callable[[Any], Any]) -> _Served:
    return _Served(
        options=_IDS, required=("ids",), answer=lambda calve, given: shown(method(calve, given["ids"]))
    )


def _processes(calve: Calve, given: Given) -> list[Json]:
    """As `calve ps`: those that have not ended, unless states, a batch or `all` say otherwise."""
    _whole_limit(given, 1)
    query = _query(given, source=given.get("table", ""))
    if not query.states and not given.get("all") and not query.batch:
        query = replace(query, states=PROCESS_LIVE)
    return [view.served_json(process) for process in calve.processes(_after(calve, given, query))]


def _page(calve: Calve, given: Given) -> Json:
    """All, unless states are given. `table` is the source or the destination."""
    query = _after(calve, given, _query(given, table=given.get("table", "")))
    return calve.page(query, why=given.get("why", False))


def _after(calve: Calve, given: Given, query: ProcessQuery) -> ProcessQuery:
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
        limit=_limit(given, 200),
        source=source,
        table=table,
    )


def _limit(given: Given, default: int) -> int:
    return int(min(max(given.get("limit", default), 1), _MOST))


def _whole_limit(given: Given, default: int) -> int:
    """Of a list that does not say whether it goes on."""
    if given.get("limit", 0) > _MOST:
        raise UsageError(
            f"limit is above {_MOST}", code="bad_option", hint="ask for the rest after the last one: after=ID"
        )
    return _limit(given, default)


def _workers_for(calve: Calve, given: Given) -> Json:
    return {"has_workers": calve.has_workers(calve.find(given["ids"]))}


def _outages(calve: Calve, given: Given) -> Json:
    found = calve.outages(calve.find(given["ids"]))
    return {process: view.breaker_json(breaker) for process, breaker in found.items()}


def _chosen(given: Given) -> tuple[Any, Any]:
    from calve.app.values import ExportOptions, Selection

    selection = Selection(**{name: given[name] for name in _SELECTION if name in given})
    taken = {"table", "to", *_SELECTION}
    return selection, ExportOptions(**{name: value for name, value in given.items() if name not in taken})


def _export(calve: Calve, given: Given) -> Json:
    return view.export_answer_json(calve.export(given["table"], given["to"], *_chosen(given)))


def _export_preview(calve: Calve, given: Given) -> Json:
    return calve.export_preview(given["table"], given["to"], *_chosen(given))


def _optimize_options(given: Given) -> Any:
    from calve.app.values import OptimizeOptions, SortBy, parse_sort

    order = parse_sort(given["sort"]) if given.get("sort") else SortBy()
    named = {name: given.get(name) for name in ("expire", "orphans")}
    return OptimizeOptions(full=given.get("full", False), sort=order, **named)


def _stop(calve: Calve, given: Given) -> list[Json]:
    """After `cancel`, where no worker runs: the cancels are carried out here. Answers once they are."""
    found = calve.find(given["ids"])
    with closing(calve.stop(found)) as standings:
        for _ in standings:
            pass
    return [view.served_json(one) for one in calve.find([one.id for one in found])]


def _backup_create(calve: Calve, given: Given) -> Json:
    from calve.app.values import BackupOptions

    own = {name: value for name, value in given.items() if name not in ("name", "tables", "source")}
    made = calve.backup_create(
        given["name"], given["tables"], BackupOptions(**own), source=given.get("source", "")
    )
    return view.submitted_json(made)


def _restoring(given: Given) -> Any:
    from calve.app.values import RestoreOptions

    return RestoreOptions(**{name: value for name, value in given.items() if name not in ("name", "source")})


def _backup_restore(calve: Calve, given: Given) -> Json:
    made = calve.backup_restore(given["name"], _restoring(given), source=given.get("source", ""))
    return view.submitted_json(made)


def _backup_prune(calve: Calve, given: Given) -> Json:
    from calve.app.values import Keep

    keep = Keep(**{name: value for name, value in given.items() if name != "dry_run"})
    return calve.backup_prune(keep, dry_run=given.get("dry_run", False))


_TABLE = ("table",)
_SERVED: Mapping[str, _Served] = {
    "now": _Served(answer=lambda calve, _: {"now": view.time_json(calve.now())}),
    "settings": _Served(answer=lambda calve, _: calve.settings()),
    "processes": _Served(answer=_processes, options={**_FILTERS, "all": bool, "after": str}, choices={"kind": KINDS}),
    "page": _Served(answer=_page, options={**_FILTERS, "until": datetime, "after": str, "why": bool}, choices={"kind": KINDS}),
    "servers": _Served(answer=lambda calve, _: calve.servers()),
    "breakers": _Served(answer=lambda calve, _: calve.breakers()),
    "halts": _Served(answer=lambda calve, _: calve.halts()),
    "halt": _Served(
        answer=lambda calve, given: calve.halt(
            given.get("table", ""), kind=given.get("kind", "export"), reason=given.get("reason", "")
        ),
        options={"table": str, "kind": str, "reason": str}, choices={"kind": KINDS},
    ),
    "lift": _Served(
        answer=lambda calve, given: calve.lift(given.get("table", ""), kind=given.get("kind", "export")),
        options={"table": str, "kind": str}, choices={"kind": KINDS},
    ),
    "proofs": _by_ids(Calve.proofs, list),
    "keys": _by_ids(Calve.keys, dict),
    "audit": _Served(
        answer=lambda calve, given: calve.audit(
            before=given.get("before"), limit=_limit(given, 100), process=given.get("process", "")
        ),
        options={"before": int, "limit": int, "process": str},
    ),
    "feed": _Served(
        answer=lambda calve, given: calve.feed(given.get("after", ""), limit=_limit(given, 100)),
        options={"after": str, "limit": int},
    ),
    "attention": _Served(answer=lambda calve, _: calve.attention()),
    "tables": _Served(
        answer=lambda calve, given: calve.tables(**given),
        options={"q": str, "sort": str, "order": str, "page": int, "every": bool},
    ),
    "table": _Served(
        answer=lambda calve, given: calve.table(**given),
        options={"source": str, "to": str, "page": int, "exported": str}, required=("source", "to"),
    ),
    "sheet": _Served(
        answer=lambda calve, given: calve.sheet(**given),
        options={"id": str, "states": list, "after": int, "before": int}, required=("id",),
    ),
    "vault": _Served(answer=lambda calve, given: calve.vault(**given), options={"name": str, "page": int}),
    "system": _Served(answer=lambda calve, _: calve.system()),
    "search": _Served(answer=lambda calve, given: calve.search(given["q"]), options={"q": str}, required=("q",)),
    "seen": _Served(
        answer=lambda calve, given: calve.seen(given.get("after"), limit=_limit(given, 100)),
        options={"after": datetime, "limit": int},
    ),
    "find": _by_ids(Calve.find, _list(view.served_json)),
    "show": _by_ids(partial(Calve.show, tasks=_MOST), _list(view.served_detail_json)),
    "tasks": _Served(
        answer=lambda calve, given: calve.tasks(given["ids"], first=given.get("first", 0), limit=_limit(given, _MOST)),
        options={"ids": list, "first": int, "limit": int}, required=("ids",),
    ),
    "events": _Served(
        answer=lambda calve, given: [
            view.event_json(one) for one in calve.events(given["ids"], after=given.get("after", 0), limit=given.get("limit"))
        ],
        options={"ids": list, "after": int, "limit": int}, required=("ids",),
    ),
    "totals": _Served(answer=lambda calve, _: calve.totals()),
    "versions": _Served(answer=lambda calve, _: calve.versions()),
    "notes": _by_ids(Calve.notes, list),
    "why": _by_ids(Calve.why, _list(view.reason_json)),
    "outages": _Served(answer=_outages, options=_IDS, required=("ids",)),
    "workers": _Served(answer=lambda calve, _: [view.worker_json(one) for one in calve.workers()]),
    "has_workers": _Served(answer=_workers_for, options=_IDS, required=("ids",)),
    "standing": _by_ids(Calve.standing, view.standing_json),
    "partitions": _Served(
        answer=lambda calve, given: calve.partitions(
            given["table"], given.get("to", ""), gone=given.get("gone", False)
        ),
        options={"table": str, "to": str, "gone": bool, "keep": bool}, required=_TABLE,
    ),
    "source_tables": _Served(
        answer=lambda calve, given: calve.source_tables(given.get("source", "")), options={"source": str}
    ),
    "parts": _Served(
        answer=lambda calve, given: calve.parts(given["table"]), options={"table": str}, required=_TABLE
    ),
    "verify": _Served(
        answer=lambda calve, given: calve.verify(given["ids"], deep=given.get("deep", False)),
        options={"ids": list, "deep": bool}, required=("ids",),
    ),
    "health": _Served(
        answer=lambda calve, given: calve.health(given["table"], orphans=given.get("orphans", False)),
        options={"table": str, "orphans": bool}, required=_TABLE,
    ),
    "history": _Served(
        answer=lambda calve, given: calve.history(
            given.get("table", ""), limit=_whole_limit(given, 50), after=given.get("after", "")
        ),
        options={"table": str, "limit": int, "after": str},
    ),
    "doctor": _Served(
        answer=lambda calve, given: list(calve.doctor(spark=given.get("spark", False))), options={"spark": bool}
    ),
    "support": _Served(
        answer=lambda calve, given: calve.support(with_names=given.get("with_names", False)),
        options={"with_names": bool},
    ),
    "export_preview": _Served(
        answer=_export_preview, options=_EXPORT, required=("table", "to"), choices=_EXPORT_CHOICES
    ),
    "optimize_preview": _Served(
        answer=lambda calve, given: calve.optimize_preview(given["table"], _optimize_options(given)),
        options=_OPTIMIZE, required=_TABLE,
    ),
    "backup_list": _Served(
        answer=lambda calve, given: calve.backup_list(contents=given.get("contents", False)), options={"contents": bool}
    ),
    "backup_show": _Served(
        answer=lambda calve, given: calve.backup_show(given["name"]), options={"name": str}, required=("name",)
    ),
    "backup_verify": _Served(
        answer=lambda calve, given: calve.backup_verify(given["name"], read_share=given.get("read_share", 0.0)),
        options={"name": str, "read_share": float}, required=("name",),
    ),
    "export": _Served(
        answer=_export, options=_EXPORT, required=("table", "to"), choices=_EXPORT_CHOICES
    ),
    "optimize": _Served(
        answer=lambda calve, given: view.submitted_json(calve.optimize(given["table"], _optimize_options(given))),
        options=_OPTIMIZE, required=_TABLE,
    ),
    "backup_create": _Served(
        answer=_backup_create, required=("name", "tables"), choices={"mutations": ("refuse", "wait")},
        options={"name": str, "tables": list, "source": str, "partitions": list, "mutations": str,
                 "ignore_row_policies": bool, "rbac": bool},
    ),
    "backup_drill": _Served(
        answer=lambda calve, given: view.submitted_json(
            calve.backup_drill(given["name"], restore_bytes=given.get("restore_bytes", DRILL_BYTES))
        ),
        options={"name": str, "restore_bytes": int}, required=("name",),
    ),
    "backup_restore": _Served(
        answer=_backup_restore, required=("name",), choices={"existing": ("refuse", "append", "replace")},
        options=_RESTORE,
    ),
    "restore_preview": _Served(
        answer=lambda calve, given: calve.restore_preview(
            given["name"], _restoring(given), source=given.get("source", "")
        ),
        required=("name",), choices={"existing": ("refuse", "append", "replace")}, options=_RESTORE,
    ),
    "backup_delete": _Served(
        answer=lambda calve, given: calve.backup_delete(given["name"]), options={"name": str}, required=("name",)
    ),
    "backup_prune": _Served(
        answer=_backup_prune,
        options={"last": int, "daily": int, "weekly": int, "monthly": int, "yearly": int, "dry_run": bool},
    ),
    "token_new": _Served(
        answer=lambda calve, given: calve.token_new(
            given["role"], name=given.get("name", ""), expires=given.get("expires")
        ),
        options={"role": str, "name": str, "expires": timedelta}, required=("role",),
        choices={"role": tuple(role.value for role in Role)},
    ),
    "policy_list": _Served(answer=lambda calve, _: calve.policy_list()),
    "policy_show": _Served(
        answer=lambda calve, given: calve.policy_show(given["name"]), options={"name": str}, required=("name",)
    ),
    "policy_explain": _Served(
        answer=lambda calve, given: calve.policy_explain(given["table"], given["partition"]),
        options={"table": str, "partition": str}, required=("table", "partition"),
    ),
    "policy_run": _Served(
        answer=lambda calve, given: calve.policy_run(given["name"], dry_run=given.get("dry_run", False)),
        options={"name": str, "dry_run": bool}, required=("name",),
    ),
    "policy_pause": _Served(
        answer=lambda calve, given: calve.policy_pause(given["name"], reason=given.get("reason", "")),
        options={"name": str, "reason": str}, required=("name",),
    ),
    "policy_resume": _Served(
        answer=lambda calve, given: calve.policy_resume(given["name"]), options={"name": str}, required=("name",)
    ),
    "policy_approve": _Served(
        answer=lambda calve, given: calve.policy_approve(given["name"], dry_run=given.get("dry_run", False)),
        options={"name": str, "dry_run": bool}, required=("name",),
    ),
    "policy_drop": _Served(
        answer=lambda calve, given: calve.policy_drop(
            given["table"], given["partitions"], approve=given.get("approve", "")
        ),
        options={"table": str, "partitions": list, "approve": str}, required=("table", "partitions"),
    ),
    "policy_undo": _Served(
        answer=lambda calve, given: view.submitted_json(
            calve.policy_undo(given["table"], given["partition"], force=given.get("force", False))
        ),
        options={"table": str, "partition": str, "force": bool}, required=("table", "partition"),
    ),
    "schedule_list": _Served(answer=lambda calve, _: calve.schedule_list()),
    "schedule_show": _Served(
        answer=lambda calve, given: calve.schedule_show(given["name"]), options={"name": str}, required=("name",)
    ),
    "schedule_run": _Served(
        answer=lambda calve, given: view.submitted_json(calve.schedule_run(given["name"])),
        options={"name": str}, required=("name",),
    ),
    "schedule_pause": _Served(
        answer=lambda calve, given: calve.schedule_pause(given["name"], reason=given.get("reason", "")),
        options={"name": str, "reason": str}, required=("name",),
    ),
    "schedule_resume": _Served(
        answer=lambda calve, given: calve.schedule_resume(given["name"]), options={"name": str}, required=("name",)
    ),
    "untier": _Served(
        answer=lambda calve, given: view.submitted_json(
            calve.untier(given["table"], given["partition"], to=given.get("to", ""))
        ),
        options={"table": str, "partition": str, "to": str}, required=("table", "partition"),
    ),
    "hold_add": _Served(
        answer=lambda calve, given: calve.hold_add(
            given["table"], given.get("partition", ""), reason=given["reason"], until=given.get("until", ""),
            force=given.get("force", False),
        ),
        options={"table": str, "partition": str, "reason": str, "until": str, "force": bool},
        required=("table", "reason"),
    ),
    "hold_list": _Served(
        answer=lambda calve, given: calve.hold_list(given.get("table", ""), every=given.get("every", False)),
        options={"table": str, "every": bool},
    ),
    "hold_release": _Served(
        answer=lambda calve, given: calve.hold_release(given["id"]), options={"id": str}, required=("id",)
    ),
    "view_show": _Served(
        answer=lambda calve, given: calve.view_show(given["table"]), options={"table": str}, required=("table",)
    ),
    "view_create": _Served(
        answer=lambda calve, given: calve.view_create(
            given["table"], given["to"], given["into"],
            cold=given.get("cold", ()), hot=given.get("hot", ()), exclude=given.get("exclude", ()),
        ),
        options={"table": str, "to": str, "into": str, "cold": list, "hot": list, "exclude": list},
        required=("table", "to", "into"),
    ),
    "view_drop": _Served(
        answer=lambda calve, given: calve.view_drop(given["table"], force=given.get("force", False)),
        options={"table": str, "force": bool}, required=("table",),
    ),
    "token_list": _Served(answer=lambda calve, _: calve.token_list()),
    "token_revoke": _Served(
        answer=lambda calve, given: calve.token_revoke(given["names"]), options={"names": list}, required=("names",)
    ),
    "notify_test": _Served(
        answer=lambda calve, given: calve.notify_test(given["name"]), options={"name": str}, required=("name",)
    ),
    "cancel": _by_ids(Calve.cancel, _list(view.cancelled_json)),
    "stop": _Served(answer=_stop, options=_IDS, required=("ids",)),
    "retry": _by_ids(Calve.retry, view.submitted_json),
}  # fmt: skip
