"""A store that is put back from an earlier copy (D1): what it knew since is forgotten, and what was done stays done.

An operator copies the store of some workers, and puts the copy in its place while they are down: as docs/operations.md
says, with their executors gone and nothing under way any more. The check then takes what was true before from here.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from calve.destination.plan import ExportPlan
from calve.model.process import Process, ProcessId, ProcessQuery
from calve.model.states import ProcessState
from calve.store.store import SqlStore
from support.simulator.schedule import Program, Schedule

if TYPE_CHECKING:
    from support.simulator.world import World

SHARE = 0.2  # of the histories of these storms
STORMS = frozenset({"quiet", "mixed", "forces", "sleepers", "folders", "archives"})
COPIES = "copies"  # as a storm of planted mistakes
_BEGINS = (0.1, 0.6)  # of the storm's time
_LATER = (3.0, 6.0, 12.0, 30.0, 60.0)  # the copy is put back


@dataclass(frozen=True, kw_only=True)
class Forgotten:
    """What a store knew at the moment in which an older copy took its place."""

    at: float
    rows: dict[ProcessId, Process]
    pinned: dict[ProcessId, Counter[str]]  # what the plans held
    pins: frozenset[str]

    @classmethod
    def of(cls, world: "World", store: SqlStore) -> "Forgotten":
        rows = {row.id: row for row in store.processes(ProcessQuery(limit=1000))}
        return cls(
            at=world.schedule.now,
            rows=rows,
            pinned={row.id: pinned_by(world, row) for row in rows.values()},
            pins=frozenset(pin.name for pin in store.pins()),
        )


def every_row(world: "World") -> dict[ProcessId, Process]:
    """Those that a store knows, and those that it knew."""
    earlier = world.forgotten.rows if world.forgotten else {}
    return earlier | {row.id: row for row in world.processes()}


def is_forgotten(world: "World", process_id: str, at: float) -> bool:
    """Whether that was done before its store forgot it."""
    forgotten = world.forgotten
    return forgotten is not None and process_id in forgotten.rows and at <= forgotten.at


def pinned_then(world: "World", row: Process, at: float) -> Counter[str]:
    """The rows that the process's plan held at that time."""
    if world.forgotten is not None and is_forgotten(world, row.id, at):
        return world.forgotten.pinned[row.id]
    return pinned_by(world, row)


def pinned_by(world: "World", row: Process) -> Counter[str]:
    return _frozen(world, row) if row.kind == "backup" else Counter(_planned(world, row))


def _planned(world: "World", row: Process) -> Iterator[str]:
    plan = world.store.plan(row.id) if row.kind == "export" else None
    if plan is None:
        return
    for part in ExportPlan.from_json(plan).parts:
        pin, _, name = part.path.partition("/")
        for held in world.source.held.get(pin, []):
            if held.facts.name == name:
                yield from held.rows


def _frozen(world: "World", row: Process) -> Counter[str]:
    """By the attempt that wrote the plan."""
    pins = [pin for pin in world.store.pins() if pin.process_id == row.id]
    planned = {pin.name for pin in pins if json.loads(pin.detail or "{}").get("table")}
    return Counter(text for pin in planned for part in world.source.held.get(pin, ()) for text in part.rows)


def is_copied(seed: int, storm: str) -> bool:
    return storm in STORMS and Schedule(seed=seed).random("copied").random() < SHARE


class Operator:
    """Of one store of the world's."""

    def __init__(self, world: "World") -> None:
        self._world = world
        chance = world.schedule.random("operator")
        self._comes = is_copied(world.case.seed, world.storm.name)
        self._at = chance.uniform(*_BEGINS) * world.storm.seconds
        self._later = chance.choice(_LATER)
        self._changes = chance.random() < 0.5  # of the rows meanwhile

    def begin(self) -> None:
        world = self._world
        name, _ = world.schedule.draw("operator")
        if self._comes and world.weather.keeps(name):
            world.acting += 1  # the history does not end before
            world.schedule.spawn(Program("operator"), "operator", self._work, self._at)

    def _work(self) -> None:
        world, store = self._world, self._world.store.stores[0]
        world.schedule.wait(
            lambda: any(row.state is ProcessState.PENDING for row in store.live()), 30.0, step=0.5
        )
        with world.schedule.aside():
            file = _copied(store)
        world.schedule.tell("the store is copied")
        world.schedule.sleep(self._later)
        world.schedule.tell("the copy is put in its place")
        with world.schedule.aside():
            world.stop_workers(0)
            world.weather.land(all_of_them=True)
            world.forget(store)
            _put_back(file, store)
            world.store.changed(store)
            if self._changes:
                self._change_rows()
        world.acting -= 1

    def _change_rows(self) -> None:
        """What a plan that is made anew holds is not what the forgotten one held."""
        for name, table in self._world.source.tables.items():
            for partition in table.partition_ids if name[0] == "db" else ():
                table.mutate(partition)


def _file(store: SqlStore) -> Path:
    return Path(str(store.database.url.database))


def _copied(store: SqlStore) -> Path:
    file = _file(store).with_suffix(".copy")
    with closing(sqlite3.connect(_file(store))) as now:
        now.execute(f"VACUUM INTO '{file}'")
    return file


def _put_back(file: Path, store: SqlStore) -> None:
    with closing(sqlite3.connect(file)) as copy, closing(sqlite3.connect(_file(store))) as now:
        copy.backup(now)
