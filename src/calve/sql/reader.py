"""How rows of a SELECT's tables are read: page by page from the desk, as its caller may; Spark reads the same from a
server. Rows are made of the documents that the desk answers with, so a SELECT shows nothing that its caller could not read
otherwise, and nothing outside of the store is asked.
"""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from calve.clickhouse.embedded.cage import TableSchema
from calve.model.errors import NotFoundError, UsageError
from calve.model.states import PROCESS_LIVE

Json = dict[str, Any]
Ask = Callable[[str, Mapping[str, Any]], Any]  # a verb and its arguments
_PIECE = 5_000  # lines that are sent to the engine at once
PROCESSES_AT_ONCE = 50  # that are read in full
_LIVE = [state.value for state in PROCESS_LIVE]
_PAGE = 1000  # processes of one question to the desk


@dataclass(kw_only=True)
class DeskReader:
    """Reads for one statement. `ask`: the desk, as one caller, or a server. `ids`: only these processes.
    `columns`: those it names; None for all."""

    ask: Ask
    most: int
    ids: Sequence[str] = ()
    columns: frozenset[str] | None = None
    live: bool = False  # only processes that have not ended
    truncated: set[str] = field(default_factory=set)

    def processes(self, kind: str = "", *, live: bool = False) -> Iterator[Json]:
        """Newest first, page by page: who needs no more asks for no more."""
        if self.ids:
            with contextlib.suppress(NotFoundError, UsageError):  # a SELECT of what is not there has no rows
                yield from (
                    one for one in self.ask("find", {"ids": list(self.ids)}) if kind in ("", one["kind"])
                )
            return
        after: str | None = ""
        while after is not None:
            states = _LIVE if live or self.live else []
            asked = {"limit": _PAGE, "kind": kind, "after": after, "states": states}
            page = self.ask("page", {name: value for name, value in asked.items() if value})
            yield from page["processes"]
            after = page["next"]

    def details(self, processes: Iterable[Json], verb: str = "show") -> Iterator[Json]:
        """What `show` or `events` say of each, some at a time."""
        waiting = iter(processes)
        while ids := [one["id"] for one in islice(waiting, PROCESSES_AT_ONCE)]:
            yield from self.ask(verb, {"ids": ids})

    def tasks(self, ids: Sequence[str], first: int = 0) -> Iterator[Json]:
        """Of some processes, one after another, from a number of the first one on."""
        while ids:
            page = self.ask("tasks", {"ids": list(ids), "first": first})
            yield from page["tasks"]
            if page["next"] is None:
                return
            ids, first = ids[ids.index(page["next"]["process"]) :], page["next"]["first"]

    def whole(self, detail: Json) -> Iterator[Json]:
        """The tasks that `show` says, and those that it left out."""
        yield from detail["tasks"]
        if detail["tasks_next"] is not None:
            yield from self.tasks([detail["id"]], detail["tasks_next"])

    def beside(self, verb: str, column: str, processes: Iterable[Json]) -> Iterator[tuple[Json, Any]]:
        """Each process with what a verb says of some of them; with nothing where the column is not asked for."""
        waiting = iter(processes)
        while some := list(islice(waiting, PROCESSES_AT_ONCE)):
            said = self.ask(verb, {"ids": [one["id"] for one in some]}) if self.wants(column) else ()
            yield from ((one, said) for one in some)

    def wants(self, *columns: str) -> bool:
        return self.columns is None or not self.columns.isdisjoint(columns)


@dataclass(frozen=True, kw_only=True)
class SqlTable:
    schema: TableSchema
    rows: Callable[[DeskReader], Iterator[Json]]

    def pieces(self, reader: DeskReader) -> Iterator[bytes]:
        """Rows as the cage takes them: JSONEachRow, some at a time, not more than `reader.most`."""
        name = self.schema.name
        rows = self.rows(reader)
        wanted = islice(rows, reader.most)
        while piece := list(islice(wanted, _PIECE)):
            yield "\n".join(map(json.dumps, piece)).encode()
        if next(rows, None) is not None:
            reader.truncated.add(name)


def table(name: str, rows: Callable[[DeskReader], Iterator[Json]], columns: str) -> SqlTable:
    """`columns`: each a name and a type, between semicolons."""
    listed = [one.strip().partition(" ") for one in columns.split(";")]
    schema = TableSchema(name=name, columns=tuple((column, kind.strip()) for column, _, kind in listed))
    return SqlTable(schema=schema, rows=rows)


def files_of(receipt: Json) -> list[Json]:
    files = receipt.get("files")
    return (
        [file for file in files if isinstance(file, dict) and "path" in file]
        if isinstance(files, list)
        else []
    )


def mapping(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def number(value: Any) -> int:
    return value if isinstance(value, int) and value >= 0 else 0


def error_columns(error: Json | None) -> Json:
    given = error or {}
    return {
        "error_code": given.get("code") or "",
        "error_message": given.get("message") or "",
        "error_hint": given.get("hint") or "",
    }


def moment(text: str | None) -> str | None:
    """As ClickHouse reads it."""
    return text.replace("T", " ").removesuffix("Z") if text else None
