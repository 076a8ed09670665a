"""One statement, from its text to its answer: changes through the desk, SELECTs in a cage over what the desk tells.

Nothing here has rights of its own. Every change and every row comes from `Desk.perform` with the caller's role.
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from calve.app.desk import Desk
from calve.clickhouse import errors
from calve.clickhouse.embedded.cage import Cage, CageDied, Cages, CageTimeout, TableSchema
from calve.clickhouse.embedded.parser import Parser
from calve.clickhouse.engine.engine import EngineError
from calve.model.access import Caller
from calve.model.errors import CalveError, ErrorInfo, RefusedError, TemporaryError
from calve.model.limits import Limits
from calve.sql import allowance, codes, handshake, inventory, settings
from calve.sql.reader import DeskReader
from calve.sql.statement import Clause, Export, Inspection, Kill, Select, Statement, Switch, parse
from calve.sql.tables import SCHEMAS, TABLES

TEXT = "TabSeparated"
_SCOPE = re.compile(r"[.:] In scope .*?(?=\. \([A-Z_]+\)|$)", re.DOTALL)  # our text of the statement
_MOST_MEMORY = frozenset({173, 241})
_KILLED = TableSchema(
    name="calve.killed",  # not in TABLES: nobody else reads it
    columns=(("kill_status", "String"), *TABLES["system.distributed_exports"].schema.columns[:8]),
)
_KILL_COLUMNS = [name for name, _ in _KILLED.columns[1:]]


@dataclass(frozen=True, kw_only=True)
class StatementResult:
    """What a statement answers. `processes` are those that an ALTER queued or joined."""

    data: bytes = b""
    form: str = TEXT
    processes: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()
    truncated: tuple[str, ...] = ()  # tables of which there is more than was read
    notes: tuple[str, ...] = ()  # for people


def cages(limits: Limits, *, required: bool) -> Cages:
    """Where SELECTs run. `required`: refuse them on a machine that cannot cage."""
    return Cages(
        tables=[*SCHEMAS, _KILLED],
        memory_mb=limits.select_memory_mb,
        at_once=limits.select_at_once,
        required=required,
    )


class Sql:
    """Statements for callers of every role. May be shared by threads; calls block."""

    def __init__(
        self,
        desk: Desk,
        cages: Cages,
        limits: Limits,
        *,
        selected: Callable[[str, float], None] = lambda *_: None,
    ) -> None:
        """`selected` is called for each SELECT: how it ended (done, refused, failed) and its seconds."""
        self._selected_so = selected
        self.desk = desk
        self.cages = cages
        self._limits = limits
        self._handshakes: dict[tuple[str, str], bytes] = {}

    def run(
        self, caller: Caller, text: str, *, form: str = TEXT, seconds: float | None = None
    ) -> StatementResult:
        """CalveError, whose number at ClickHouse is `codes.known`. `form` is for a statement that names none."""
        return self.execute(caller, parse(text), form=form, seconds=seconds)

    def execute(
        self,
        caller: Caller,
        statement: Statement,
        *,
        form: str = TEXT,
        seconds: float | None = None,
        key: str = "",
        ticket: str = "",
    ) -> StatementResult:
        """`key`: what submits is done once, however often it is sent with it. `ticket`: for `leave`."""
        form = allowance.format_named(form)
        limit = min(seconds or self._limits.select_seconds, self._limits.select_seconds)
        match statement:
            case Select():
                shown = allowance.format_named(statement.form or form)
                return self._select(caller, statement.sql, shown, limit, ticket)
            case Inspection():
                shown = allowance.format_named(statement.form or form)
                return self._select(caller, inventory.select_of(statement), shown, limit, ticket)
            case Kill():
                return self._kill(caller, statement, allowance.format_named(statement.form or form), limit)
            case Export():
                return self._export(caller, statement, key)
            case Switch():
                return self._switch(caller, statement)

    def leave(self, ticket: str) -> None:
        """Nobody waits for this SELECT any more. What changes something goes on."""
        self.cages.leave(ticket)

    def services(self, statement: Export) -> tuple[str, ...]:
        """What an ALTER asks beside the store, as far as its names say."""
        asked = [{"table": statement.table, "to": clause.to} for clause in statement.clauses]
        found = [name for one in asked for name in self.desk.services("export", one)]
        return tuple(dict.fromkeys(found))

    def _select(self, caller: Caller, sql: str, form: str, seconds: float, ticket: str) -> StatementResult:
        meant = handshake.meant(sql)
        if meant is None:
            return self._selected(caller, sql, form, seconds, ticket)
        if (meant, form) not in self._handshakes:
            self._handshakes[meant, form] = self._selected(caller, meant, form, seconds, ticket).data
        return StatementResult(data=self._handshakes[meant, form], form=form)

    def _selected(self, caller: Caller, sql: str, form: str, seconds: float, ticket: str) -> StatementResult:
        started, outcome = time.monotonic(), "failed"
        try:
            made = self._in_cage(caller, sql, form, seconds, ticket)
            outcome = "done"
            return made
        except CalveError as error:
            outcome = "failed" if error.retryable else "refused"
            raise
        finally:
            self._selected_so(outcome, time.monotonic() - started)

    def _in_cage(self, caller: Caller, sql: str, form: str, seconds: float, ticket: str) -> StatementResult:
        with self._cage(caller, seconds, ticket) as cage:
            allowed = allowance.allowed(Parser(cage), sql, TABLES)
            reader = self._reader(caller, allowed)
            rows = {name: TABLES[name].pieces(reader) for name in allowed.tables}
            data = cage.run(f"{allowed.sql} SETTINGS readonly = 1", form, rows, seconds)
            notes = (f"this SELECT ran without a cage: {cage.uncaged}",) if cage.uncaged else ()
        return StatementResult(data=data, form=form, truncated=tuple(sorted(reader.truncated)), notes=notes)

    def _kill(self, caller: Caller, kill: Kill, form: str, seconds: float) -> StatementResult:
        self.desk.check(caller, "cancel", {})
        with self._cage(caller, seconds) as cage:
            parser = Parser(cage)
            # By itself, and in brackets: what is both is one expression.
            allowance.allowed(parser, f"SELECT 1 WHERE {kill.where}", TABLES)
            sql = (
                f"SELECT {', '.join(_KILL_COLUMNS)} FROM system.distributed_exports "
                f"WHERE (status = 'PENDING') AND ({kill.where}\n)"
            )
            allowed = allowance.allowed(parser, sql, TABLES)
            reader = replace(self._reader(caller, allowed), live=True)
            rows = {name: TABLES[name].pieces(reader) for name in allowed.tables}
            found = cage.run(f"{allowed.sql} SETTINGS readonly = 1", "JSONEachRow", rows, seconds)
            chosen = [json.loads(line) for line in found.splitlines()]
            status = self._cancelled(caller, chosen, test=kill.test)
            lines = [{"kill_status": status[row["transaction_id"]], **row} for row in chosen]
            piece = "\n".join(map(json.dumps, lines)).encode()
            data = cage.run(f"SELECT * FROM {_KILLED.name}", form, {_KILLED.name: [piece]}, seconds)
        return StatementResult(data=data, form=form, processes=tuple(status))

    def _cancelled(
        self, caller: Caller, chosen: Sequence[Mapping[str, Any]], *, test: bool
    ) -> dict[str, str]:
        ids = list(dict.fromkeys(row["transaction_id"] for row in chosen))
        if test or not ids:
            return dict.fromkeys(ids, "unknown")
        # if we die here, some of them were asked to stop: the same statement asks the rest
        answers = self.desk.perform(caller, "cancel", {"ids": ids})
        return {
            answer["process"]["id"]: _kill_status(answer)
            for answer in answers
            if answer["process"]["id"] in ids
        }

    def _export(self, caller: Caller, statement: Export, key: str) -> StatementResult:
        asked = settings.read(statement.settings)
        processes: list[str] = []
        joined: list[str] = []
        known: list[str] = []
        for number, arguments in enumerate(_selections(statement, asked)):
            try:
                # if we die here, what was queued goes on; the same statement, with the same key, does the rest
                own_key = f"{key}#{number}" if key and number else key
                answer = self.desk.perform(caller, "export", arguments, key=own_key)
                _refuse(answer)
            except CalveError as error:
                if not processes:
                    raise
                message = f"{error.message}; queued before that: {', '.join(processes)}"
                raise type(error)(message, code=error.code, hint=error.hint, service=error.service) from error
            processes += [one["id"] for one in answer["processes"]]
            joined += answer["joined"]
            known += [partition for one in answer["known"] for partition in one["partitions"]]
        if known and asked.known != "skip":
            named = known[:1] if asked.known == "throw_first" else known
            raise RefusedError(
                f"exported already: {', '.join(named)}"
                + (f"; queued: {', '.join(processes)}" if processes else ""),
                code="already_exported",
                hint="omit the setting to skip them, or export_merge_tree_partition_force_export = 1",
            )
        return StatementResult(processes=tuple(processes), joined=tuple(joined))

    def _switch(self, caller: Caller, switch: Switch) -> StatementResult:
        # if we die here, it is stopped or not: the same statement says it again
        answer = self.desk.perform(
            caller, "halt" if switch.stop else "lift", {"kind": "export", "table": switch.table}
        )
        unaware = ", ".join(answer.get("unaware_workers", ()))
        return StatementResult(
            notes=(f"workers of an old version do not honour this: {unaware}",) if unaware else ()
        )

    def _reader(self, caller: Caller, allowed: allowance.Allowed) -> DeskReader:
        return DeskReader(
            ask=partial(self.desk.perform, caller),
            most=self._limits.select_rows,
            ids=allowed.ids,
            columns=allowed.columns,
        )

    @contextmanager
    def _cage(self, caller: Caller, seconds: float, ticket: str = "") -> Iterator[Cage]:
        """A cage, and its ends as errors of ours."""
        try:
            with self.cages.take(caller.name, ticket) as cage:
                yield cage
        except CageTimeout:
            raise TemporaryError(
                f"the SELECT took longer than {seconds:g} s and was stopped",
                code=codes.TIMEOUT,
                hint="ask for less, or raise [limits] select_seconds",
            ) from None
        except CageDied:
            raise _memory("its process ended") from None
        except EngineError as error:
            raise _engine_error(str(error)) from None


def _selections(statement: Export, asked: settings.ExportSettings) -> list[dict[str, Any]]:
    """One request for each destination and way to choose, in the order of the clauses."""
    made: dict[tuple[str, str], dict[str, Any]] = {}
    for clause in statement.clauses:
        way, value = _way(clause)
        request = made.setdefault(
            (clause.to, way), {"table": statement.table, "to": clause.to, **asked.options, way: value}
        )
        if isinstance(value, list) and request[way] is not value:
            request[way] += value
    return list(made.values())


def _way(clause: Clause) -> tuple[str, bool | list[str]]:
    if clause.all:
        return "all", True
    return ("parts", [clause.part]) if clause.part else ("partitions", [clause.partition])


def _refuse(answer: Mapping[str, Any]) -> None:
    for refused in answer["refused"]:
        info = ErrorInfo.from_json(refused)
        raise RefusedError(info.message, code=info.code, hint=info.hint)


def _kill_status(answer: Mapping[str, Any]) -> str:
    if answer["process"]["state"] == "CANCELLED":
        return "finished"
    return "waiting" if answer["accepted"] else "cannot_cancel"


def _engine_error(message: str) -> CalveError:
    if errors.code_of(message) in _MOST_MEMORY or "std::bad_alloc" in message:
        return _memory("it was stopped")
    return errors.translate(_SCOPE.sub("", message), "SELECT")


def _memory(what: str) -> CalveError:
    return TemporaryError(
        f"the SELECT needed more memory than it may have, and {what}",
        code=codes.MEMORY,
        hint="ask for less, or raise [limits] select_memory_mb",
    )
