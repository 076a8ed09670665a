"""The one door for fronts that serve others: who may use which verb of the façade, by JSON in and out.

HTTP, SQL, actions and aliases carry verbs of every role over one route, so the role belongs to the verb
(`app.verbs.roles`) and is checked here, in `Desk.perform`, and nowhere else.
"""

import hashlib
import importlib
import json
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from calve.app import view
from calve.app.arguments import checked
from calve.app.calve import Calve, person
from calve.app.destination import as_stored, parse_destination, parse_source_table
from calve.app.front import ExportAnswer, Submitted
from calve.app.pages.sightings import keep
from calve.app.verbs import backups, installation, pages, policies, processes, tables
from calve.app.verbs.roles import SUBMITS, VERBS, Reach, Verb
from calve.app.verbs.served import Given, Served
from calve.model.access import Asked, Caller, Replayed, Role
from calve.model.errors import DamagedError, DeniedError, StoreUnknownError, UsageError
from calve.model.reach import is_folder
from calve.model.record import loads
from calve.model.refusals import key_reused

SERVED: Mapping[str, Served] = {
    **processes.SERVED,
    **tables.SERVED,
    **backups.SERVED,
    **policies.SERVED,
    **pages.SERVED,
    **installation.SERVED,
}
_LOADING = threading.Lock()
_OUTSIDE = (
    "calve.iceberg.catalogs.catalog", "calve.clickhouse.embedded.source", "calve.app.partitions", "calve.app.exports",
    "calve.app.health", "calve.app.backups.requests",
)  # fmt: skip


class NotAllowedError(DeniedError):
    """The caller's role is not enough."""


class Desk:
    """One façade, for callers of every role. May be shared by threads; calls block."""

    def __init__(self, calve: Calve) -> None:
        self._calve = calve

    def check(self, caller: Caller, verb: str, arguments: Given) -> Verb:
        """NotAllowedError if this caller may not do that; UsageError for what nobody serves."""
        found = VERBS.get(verb)
        if found is None or verb not in SERVED:
            raise UsageError(
                f"unknown verb {verb!r}", code="unknown_verb", hint=f"there are {', '.join(sorted(SERVED))}"
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
        served = SERVED[verb]
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
            with suppress(DamagedError):  # made again from its processes, as one that was not kept
                return loads(Any, request.answer, f"the answer to request {asked.key}")
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
        return SERVED[verb].options

    def choices(self, verb: str) -> Mapping[str, Sequence[str]]:
        return SERVED[verb].choices

    def required(self, verb: str) -> tuple[str, ...]:
        return SERVED[verb].required

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
