"""Servers that exports are tried against, and tables on them."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calve.control.ports import Runner
from support.clickhouse_front import NO_USERS
from support.place import Place
from support.server_place import ServerPlace

PASSWORD = "canary-Pa55word-of-exports"
TIMEZONE = "America/St_Johns"  # an offset of half an hour: a shift cannot hide
UUID = "11111111-2222-3333-4444-666666666666"
WITH_UUID = {**NO_USERS, "serverUUID()": f"toUUID('{UUID}')"}
ROWS = 200  # in each of the two parts of a month
_numbers = itertools.count(1)

COLUMNS = (
    "id UInt64, day Date, at DateTime, score Float64, note Nullable(String), tags Array(String),"
    " price Decimal(12, 2)"
)
COMPARED = "id, toUnixTimestamp(at) AS at, score, note, tags, toInt64(price * 100) AS cents"


@dataclass(frozen=True, kw_only=True)
class Served:
    """A running server."""

    url: str
    data: Path
    modern: bool
    kill: Callable[[], None] = field(repr=False)
    start: Callable[[], None] = field(repr=False)

    def place(self, folder: Path, runner: Runner | None, **options: Any) -> ServerPlace:
        given: dict[str, Any] = {
            "url": self.url,
            "password": PASSWORD,
            "configured_id": "" if self.modern else "old",
        }
        return ServerPlace(folder, runner=runner, **given | options)


def events(place: Place, *months: int) -> str:
    """A new table of two parts a month; its name, `db.events`."""
    database = f"db{next(_numbers)}"
    place.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.events ({COLUMNS}) ENGINE = MergeTree"
        " PARTITION BY toYYYYMM(day) ORDER BY (day, id)",
    )
    for month in months or (1, 2):
        for first in (0, 10_000):
            place.execute(insert(f"{database}.events", month, first))
    return f"{database}.events"


def insert(table: str, month: int, first: int) -> str:
    return (
        f"INSERT INTO {table} SELECT number + {first}, toDate('2024-0{month}-01') + number % 28,"
        f" toDateTime(1710000000 + number * 1800), number / 4, number % 5 = 0 ? NULL : toString(number),"
        f" [toString(number % 3), 'ä'], toDecimal64(number, 2) / 4 FROM numbers({ROWS})"
    )


def at_the_source(place: ServerPlace, table: str, month: int = 1) -> list[dict[str, Any]]:
    where = f"toYYYYMM(day) = 20240{month}"
    return place.select(f"SELECT {COMPARED} FROM {table} WHERE {where} ORDER BY id")


def in_the_lake(place: ServerPlace, name: str = "lake.ns.events") -> list[dict[str, Any]]:
    """The same columns as `COMPARED`, by PyIceberg."""
    return [
        {
            "id": int(row["id"]),
            "at": int(row["at"].timestamp()),
            "score": row["score"],
            "note": row["note"],
            "tags": row["tags"],
            "cents": int(row["price"] * 100),
        }
        for row in place.read(name).sort_by("id").to_pylist()
    ]
