"""Somebody's application beside Calve: it writes to the ClickHouse tables that are exported. It goes past the proxies;
only a restart of the server meets it, and then a statement's outcome is unknown to it until it has looked."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from calve.model.errors import CalveError
from support.chaos.clients import DATABASE
from support.chaos.ledger import DDL, Batch, Ledger, TableLedger, Update, columns, payload
from support.chaos.schedule import Act
from support.chaos.world import World

T = TypeVar("T")
PARTITIONS = 5
_ROWS = (40, 600)
_LOOKS = 60
_LOOK_SECONDS = 0.5


class Writer:
    """One thread: the order of what it wrote is the order of the ledger."""

    def __init__(self, world: World, ledger: Ledger, *, rows: tuple[int, int] = _ROWS) -> None:
        self._world, self._ledger, self._diary = world, ledger, world.diary
        self._rows = rows
        self.problems: list[str] = []

    def create(self, tables: int) -> None:
        self._world.execute(f"CREATE DATABASE {DATABASE}")
        for number in range(tables):
            name = f"t{number}"
            self._ledger.tables[name] = TableLedger()
            self._world.execute(
                f"CREATE TABLE {DATABASE}.{name} ({DDL}) ENGINE = MergeTree PARTITION BY p ORDER BY id"
            )
            for partition in range(2):
                self._insert(name, partition, self._rows[1])

    def run(self, acts: tuple[Act, ...], over: threading.Event) -> None:
        for act in acts:
            if over.wait(max(0.0, act.at - self._diary.now())):
                return
            try:
                self.do(act)
            except Exception as error:  # noqa: BLE001 - the run goes on, and fails in the end
                self.problems.append(f"the writer failed at {act.verb}: {type(error).__name__}: {error}")

    def do(self, act: Act) -> None:
        chance = act.random
        table = chance.choice(sorted(self._ledger.tables))
        partition = chance.randrange(PARTITIONS)
        with self._diary.during("ClickHouse's writer", act.verb, f"{table} {partition}"):
            match act.verb:
                case "insert":
                    self._insert(table, partition, chance.randrange(*self._rows))
                case "merge":
                    self._until_it_works(
                        lambda: self._world.execute(
                            f"OPTIMIZE TABLE {DATABASE}.{table} PARTITION ID '{partition}' FINAL"
                        )
                    )
                case _:
                    self._update(table, partition)
        self._diary.count(f"ClickHouse: {act.verb}")

    def _insert(self, table: str, partition: int, rows: int) -> None:
        batch = self._ledger[table].begin_batch(partition, rows, time.time())
        first = batch.ids.start
        select = columns(f"toUInt64({first} + number)", partition, "0")
        try:
            self._world.execute(f"INSERT INTO {DATABASE}.{table} SELECT {select} FROM numbers({rows})")
        except CalveError:
            if not self._is_there(table, batch):
                return  # never: whoever shows it shows what was not written, or half of it
        batch.known = time.time()

    def _is_there(self, table: str, batch: Batch) -> bool:
        where = f"id BETWEEN {batch.ids.start} AND {batch.ids.stop - 1}"
        found = self._until_it_works(
            lambda: self._world.rows(f"SELECT count() AS c FROM {DATABASE}.{table} WHERE {where}")
        )
        return int(found[0]["c"]) == batch.rows

    def _update(self, table: str, partition: int) -> None:
        update = self._ledger[table].begin_update(partition, time.time())
        statement = (
            f"ALTER TABLE {DATABASE}.{table} UPDATE version = version + 1,"
            f" payload = {payload('id', 'version + 1')} WHERE p = {partition}"
        )
        try:
            self._world.execute(statement, settings={"mutations_sync": "2"})
        except CalveError:
            self._find_out(table, update)
            return
        update.known = time.time()

    def _find_out(self, table: str, update: Update) -> None:
        """Whether a mutation was registered; if it was, it is carried out in the end."""
        unfinished = (
            "SELECT count() AS c FROM system.mutations WHERE NOT is_done"
            f" AND database = '{DATABASE}' AND table = '{table}'"
        )
        for _ in range(_LOOKS):
            if int(self._until_it_works(lambda: self._world.rows(unfinished))[0]["c"]) == 0:
                break
            time.sleep(_LOOK_SECONDS)
        versions = self._until_it_works(
            lambda: self._world.rows(
                f"SELECT max(version) AS v FROM {DATABASE}.{table} WHERE p = {update.partition}"
            )
        )
        ledger = self._ledger[table]
        oldest = min((one.number for one in ledger.of(update.partition) if one.known), default=0)
        before = [one for one in ledger.updates if one.partition == update.partition and one.after >= oldest]
        if int(versions[0]["v"]) >= len(before):
            update.known = time.time()
        else:
            ledger.updates.remove(update)

    def _until_it_works(self, work: Callable[[], T]) -> T:
        for _ in range(_LOOKS):
            try:
                return work()
            except CalveError:
                time.sleep(_LOOK_SECONDS)
        return work()
