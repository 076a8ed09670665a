"""Servers that tests share, and tables on them."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from calve.clickhouse.pins.pin import Pinned, PinRequest
from calve.clickhouse.server.source import ServerOptions, ServerSession, ServerSource
from support.clickhouse_front import NO_USERS, FrontOptions, FrontUser, clickhouse_front
from support.clickhouse_server import ServerOptions as OldOptions
from support.clickhouse_server import User, clickhouse_server

UUID = "11111111-2222-3333-4444-555555555555"
TIMEZONE = "America/St_Johns"  # an offset of half an hour: a shift cannot hide
PASSWORD = "canary-Pa55word"
WITH_UUID = {**NO_USERS, "serverUUID()": f"toUUID('{UUID}')"}
_numbers = itertools.count(1)


def pin_name() -> str:
    """A pin's name that no other test has."""
    return f"calve-test{next(_numbers)}-1"


@dataclass(frozen=True, kw_only=True)
class Place:
    """A running server, and how to reach it."""

    url: str
    data: Path
    modern: bool
    options: dict[str, str] = field(default_factory=dict)

    def source(self, **changes: object) -> ServerSource:
        settings: dict[str, object] = {
            "url": self.url,
            "password": PASSWORD,
            "id": "" if self.modern else "old",
            "query_seconds": 30.0,
        }
        return ServerSource("main", ServerOptions(**{**settings, **changes}))  # type: ignore[arg-type]

    def run(self, *statements: str) -> None:
        with self.source().visit() as session:
            for statement in statements:
                session.execute(statement)

    def ask(self, sql: str) -> list[dict[str, object]]:
        with self.source().visit() as session:
            return session.rows(sql)

    def table(self, columns: str, engine: str, *fill: str) -> str:
        """A new table in a database of its own; its name, `db.t`."""
        database = f"db{next(_numbers)}"
        self.run(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t ({columns}) ENGINE = {engine}")
        if self.modern:
            self.run(f"SYSTEM STOP MERGES {database}.t")
        self.run(*(text.replace("{t}", f"{database}.t") for text in fill))
        return f"{database}.t"

    def numbers(self, *, parts: int = 3, rows: int = 1000) -> str:
        """A table of `a`, 0 and on, in several parts of partition 202401."""
        inserts = [
            f"INSERT INTO {{t}} SELECT number + {part * rows}, toString(number), toDate('2024-01-15') "
            f"FROM numbers({rows})"
            for part in range(parts)
        ]
        return self.table(
            "a UInt64, s String, day Date", "MergeTree PARTITION BY toYYYYMM(day) ORDER BY a", *inserts
        )

    def pin(self, table: str, name: str = "", source: ServerSource | None = None, **wanted: object) -> Pinned:
        database, _, short = table.partition(".")
        chosen = {"partitions": ("202401",), **wanted}
        return (source or self.source()).pin(
            PinRequest(database=database, table=short, **chosen),  # type: ignore[arg-type]
            name or pin_name(),
        )


@contextmanager
def front_place(folder: Path) -> Iterator[Place]:
    users = {
        "default": FrontUser(password=PASSWORD),
        "reader": FrontUser(password=PASSWORD, readonly=1),
        "selecter": FrontUser(password=PASSWORD, select_only=True),
    }
    with clickhouse_front(folder, FrontOptions(users=users, timezone=TIMEZONE, stand_ins=WITH_UUID)) as front:
        yield Place(url=front.url, data=front.data, modern=True)


@contextmanager
def old_place(folder: Path) -> Iterator[Place]:
    users = {"default": User(password=PASSWORD), "reader": User(password=PASSWORD, readonly=True)}
    with clickhouse_server(folder, OldOptions(users=users, timezone=TIMEZONE)) as server:
        yield Place(url=server.url, data=server.data, modern=False)


def visit_rows(session: ServerSession, table: str) -> int:
    return int(session.rows(f"SELECT count() AS n FROM {table}")[0]["n"])
