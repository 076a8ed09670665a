"""Tables that a ClickHouse server has of Calve: its URL engine reads them, and inserts actions into one.

One JSON object a line, in a form that every ClickHouse since 18.16 reads: no null, no truth value, times without a
zone, in UTC. Rows come from the store alone. `statements` makes the tables on a server.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from calve.app.desk import Desk
from calve.clickhouse.sql import tokens
from calve.model.access import Caller
from calve.sql.reader import DeskReader, Json, moment
from calve.sql.tables import TABLES

_NEVER = "1970-01-01 00:00:00"
_TIME = "DateTime('UTC')"


@dataclass(frozen=True, kw_only=True)
class UrlTable:
    """A table of `calve sql`, of processes of one kind or of all."""

    like: str
    kind: str = ""


URL_TABLES: Mapping[str, UrlTable] = {
    "processes": UrlTable(like="calve.processes"),
    "exports": UrlTable(like="calve.processes", kind="export"),
    "backups": UrlTable(like="calve.backups"),
}
ACTIONS = "actions"
_ACTION_COLUMNS = {
    "command": "String", "start": _TIME, "finish": _TIME, "status": "String", "error": "String", "operation_id": "String",
}  # fmt: skip


def columns(name: str) -> dict[str, str]:
    """Names and types of a table, as the oldest servers know them."""
    if name == ACTIONS:
        return _ACTION_COLUMNS
    schema = TABLES[URL_TABLES[name].like].schema
    return {column: _plain_type(kind) for column, kind in schema.columns}


def _plain_type(kind: str) -> str:
    for wrapper in ("Nullable(", "LowCardinality("):
        if kind.startswith(wrapper):
            return _plain_type(kind.removeprefix(wrapper).removesuffix(")"))
    return "UInt8" if kind == "Bool" else kind


def rows(desk: Desk, caller: Caller, name: str, limit: int) -> Iterator[Json]:
    """Newest first."""
    wanted = URL_TABLES[name]
    reader = _OfKind(ask=partial(desk.perform, caller), most=limit, kind=wanted.kind)
    for row in islice(TABLES[wanted.like].rows(reader), limit):
        yield plain(name, row)


def plain(name: str, row: Json) -> Json:
    """A row as the oldest servers read it."""
    types = columns(name)
    return {column: _value(types[column], value) for column, value in row.items()}


def _value(kind: str, value: Any) -> Any:
    if kind == _TIME:
        return (moment(value) or _NEVER)[:19]
    return int(value) if isinstance(value, bool) else value


@dataclass(kw_only=True)
class _OfKind(DeskReader):
    """Processes of one kind only; "" for all."""

    kind: str = ""

    def processes(self, kind: str = "", *, live: bool = False) -> Iterator[Json]:
        return super().processes(kind or self.kind, live=live)


def statements(url: str, *, database: str = "calve", token: str = "", read_only: bool = False) -> list[str]:
    """What makes the tables on a server, which then asks `url`. The token is in a named collection, which no
    SHOW CREATE prints. `read_only`: without a token and without `actions`, for a server on the same host, of any
    version."""
    base, place = f"{url.rstrip('/')}/v1", tokens.name(database)
    made = [f"CREATE DATABASE IF NOT EXISTS {place}"]
    if not read_only:
        header = f"`headers.header.name` = 'Authorization', `headers.header.value` = {tokens.string('Bearer ' + token)}"
        named = f"url = {tokens.string(base + '/')}, format = 'JSONEachRow', {header}"
        made.append(f"CREATE NAMED COLLECTION {place} AS {named}")
    for name in (*URL_TABLES, *(() if read_only else (ACTIONS,))):
        address = tokens.string(f"{base}/{ACTIONS}" if name == ACTIONS else f"{base}/tables/{name}.jsonl")
        engine = f"URL({address}, JSONEachRow)" if read_only else f"URL({place}, url = {address})"
        listed = ", ".join(f"{tokens.name(column)} {kind}" for column, kind in columns(name).items())
        made.append(f"CREATE TABLE {place}.{tokens.name(name)} ({listed}) ENGINE = {engine}")
    return made
