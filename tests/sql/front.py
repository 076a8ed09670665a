"""Statements over a real store, a real source and a real catalog, for tests."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from calve.app.calve import Calve
from calve.app.config import load_config
from calve.app.desk import Desk
from calve.model.access import Caller, Role
from calve.model.limits import Limits
from calve.sql.execution import Sql, StatementResult, cages
from support.local_runner import LocalRunner
from support.place import Place

VIEWER, OPERATOR, ADMIN = (Caller(name=role.value, role=role) for role in Role)
DONE, WAITING = "1", "2"  # partitions: one exported, one queued


class Front:
    """One place with an export that has ended and one that nobody does."""

    def __init__(self, sql: Sql, place: Place, done: str) -> None:
        self.sql = sql
        self.place = place
        self.done = done

    def run(self, text: str, caller: Caller = OPERATOR) -> StatementResult:
        return self.sql.run(caller, text)

    def rows(self, text: str, caller: Caller = VIEWER) -> list[dict[str, Any]]:
        found = self.sql.run(caller, text, form="JSONEachRow")
        return [json.loads(line) for line in found.data.splitlines()]


@contextmanager
def opened(folder: Path, runner: LocalRunner) -> Iterator[Front]:
    place = Place(folder, runner)
    place.execute(
        "CREATE DATABASE db",
        "CREATE TABLE db.t (id UInt64, m UInt8) ENGINE = MergeTree PARTITION BY m ORDER BY id",
        "INSERT INTO db.t SELECT number, number % 4 FROM numbers(100)",
    )
    [done] = place.export("db.t", DONE, to="lake.ns.t")
    config = load_config(place.folder / "calve.toml", environ=place.settings, cwd=place.folder)
    limits = Limits(select_rows=1000)
    held = cages(limits, required=True)
    with Calve(config, runner=runner) as calve:
        yield Front(Sql(Desk(calve), held, limits), place, done.id)
    held.close()
