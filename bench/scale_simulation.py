"""What the control plane itself does and costs: worker programs over a PostgreSQL that they share, with a runner that
does nothing, and real commits into an Iceberg catalog in the same PostgreSQL. `docs/scale.md` is computed from it.

- one process of many tasks: milliseconds a task, the same for four times the tasks;
- many small exports into many tables, by one worker and by two: exports a second, store transactions of each;
- many exports into one table by two workers: commits a second;
- workers without work: transactions a second.
"""

import json
import logging
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Event

import psycopg
from pyiceberg.catalog import Catalog

from calve.control.kind import AdoptedWork, NothingToDo, Planned, Published
from calve.control.ports import Store, TaskOrder
from calve.control.worker import WorkerLoop
from calve.destination.names import DestinationAddress
from calve.iceberg.catalogs.catalog import open_catalog
from calve.iceberg.destination import IcebergDestination
from calve.iceberg.publish import PublishedSnapshot
from calve.model.change import NewPin, Result
from calve.model.limits import Limits
from calve.model.process import NewProcess, NewTask, Pin, Process, Task, new_process_id
from calve.model.states import ProcessState
from calve.store import open_store
from calve.testing.fake_kind import FakeKind
from calve.testing.fake_runner import NoOpRunner
from calve.testing.fake_world import World
from kit.report import Report, core_seconds, tree
from kit.world import folder
from support.lake import make_table, make_work
from support.postgres import Postgres, postgres

SLOTS = 16
LANE = "catalog:lake"


@dataclass(frozen=True, kw_only=True)
class Place:
    """What a worker program is started with."""

    store: str
    catalog: str
    warehouse: str

    def open_catalog(self) -> Catalog:
        """As a worker has it."""
        return open_catalog("lake", {"type": "sql", "uri": self.catalog, "warehouse": self.warehouse})


class NoOpKind(FakeKind):
    """Plans tasks that do nothing; with a table in the request, commits one file to it."""

    def __init__(self, catalog: Catalog) -> None:
        super().__init__(World())
        self._catalog = catalog
        self._destinations: dict[str, IcebergDestination] = {}

    def _destination(self, table: str) -> IcebergDestination:
        address = DestinationAddress(catalog="lake", identifier=("ns", table))
        return self._destinations.setdefault(table, IcebergDestination(address, self._catalog, {}, Limits()))

    def pins(self, process: Process, attempt: int) -> tuple[NewPin, ...]:
        return ()

    def plan(
        self, process: Process, pins: Sequence[Pin], adopted: AdoptedWork | None
    ) -> Planned | NothingToDo:
        count = int(json.loads(process.request)["tasks"])
        return Planned(plan="{}", tasks=tuple(NewTask(number=n, spec="{}") for n in range(count)))

    def order(self, process: Process, plan: str, task: Task, attempt: int) -> TaskOrder:
        return TaskOrder(process_id=process.id, number=task.number, attempt=attempt, function="", payload="")

    def publish(
        self, process: Process, plan: str, receipts: Sequence[str], note: Callable[[str], None]
    ) -> Published:
        if table := json.loads(process.request).get("table"):
            work = make_work(
                self._catalog, [(1, range(1))], keys=[(process.id, process.id)], process_id=process.id,
                keep_receipts=False, identifier=("ns", table),
            )  # fmt: skip
            done = self._destination(table).publish(
                process.id, work.plan, work.receipts, process.publish_note, note
            )
            assert isinstance(done, PublishedSnapshot)
        return Published(result=Result(rows=len(receipts), files=0, bytes=0), message="done")


def work(place: Place, over: Event) -> None:
    """A worker program."""
    logging.disable(logging.WARNING)  # of publishes that were not the first
    with open_store(place.store) as store:
        loop = WorkerLoop(
            store=store,
            kinds={"fake": NoOpKind(place.open_catalog())},
            runner=NoOpRunner(slots=SLOTS),
            limits=Limits(slots=SLOTS, lease_seconds=10.0),
            reach=frozenset({LANE}),
        )
        loop.run(over.is_set)


@contextmanager
def workers(place: Place, store: Store, count: int) -> Iterator[None]:
    """From when all have said that they live, and each knows of the others."""
    context = multiprocessing.get_context("spawn")
    over = context.Event()
    programs = [context.Process(target=work, args=(place, over)) for _ in range(count)]
    for program in programs:
        program.start()
    while len(store.workers()) < count:
        assert all(program.is_alive() for program in programs)
        time.sleep(0.1)
    time.sleep(3.0 if count > 1 else 0.0)
    try:
        yield
    finally:
        over.set()
        for program in programs:
            program.join()


class Simulation:
    def __init__(self, report: Report, server: Postgres, place: Place, store: Store) -> None:
        self._report, self._server, self._store = report, server, store
        self._watch = psycopg.connect(place.store, autocommit=True)

    def run(self, series: str, requests: Sequence[dict[str, object]]) -> None:
        """From submission until all have ended."""
        new = [
            NewProcess(
                id=new_process_id(), kind="fake", source="main:db.t", destination=f"lake.ns.{number}",
                lane=LANE, needs=(LANE,), request=json.dumps(request),
            )
            for number, request in enumerate(requests)
        ]  # fmt: skip
        looks, before, pg_before = 0, self._transactions(), tree(self._server.pid)
        with self._report.timed(series) as run:
            self._store.submit(new)
            while self._ask("SELECT count(*) FROM processes WHERE finished_at IS NULL"):
                looks += 1
                time.sleep(0.1)
            run.detail |= {"processes": len(new), "tasks": sum(int(str(one["tasks"])) for one in requests)}
            run.detail["postgres_core_s"] = round(core_seconds(pg_before, tree(self._server.pid)), 2)
        run.detail["transactions"] = self._transactions() - before - looks
        ended = [self._store.process(one.id) for one in new]
        run.detail["publishes"] = sum(one.publish_attempts for one in ended)
        assert all(one.state is ProcessState.COMPLETED for one in ended), [one.error for one in ended]
        print(
            f"{'':32} transactions={run.detail['transactions']} publishes={run.detail['publishes']}",
            flush=True,
        )

    def idle(self, series: str, seconds: float) -> None:
        before, pg_before = self._transactions(), tree(self._server.pid)
        with self._report.timed(series) as run:
            time.sleep(seconds)
            run.detail["postgres_core_s"] = round(core_seconds(pg_before, tree(self._server.pid)), 2)
        run.detail["transactions"] = self._transactions() - before

    def _ask(self, statement: str) -> int:
        row = self._watch.execute(statement).fetchone()  # type: ignore[call-overload]
        return int(row[0])

    def _transactions(self) -> int:
        """Backends report what they did once a second."""
        time.sleep(1.5)
        return self._ask(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
        )


def main() -> None:
    report = Report("scale-simulation", __doc__)
    few, many = (200, 800) if report.quick else (500, 2_000)
    exports, tables = (80, 20) if report.quick else (400, 100)
    with folder() as home, postgres() as server:
        place = Place(
            store=server.new_database(), catalog=server.new_database(), warehouse=f"file://{home}/warehouse"
        )
        catalog = place.open_catalog()
        catalog.create_namespace("ns")
        for number in range(tables):
            make_table(catalog, identifier=("ns", f"t{number}"))
        with open_store(place.store) as store:
            simulation = Simulation(report, server, place, store)
            small = [{"tasks": 1, "table": f"t{number % tables}"} for number in range(exports)]
            with workers(place, store, 1):
                simulation.run("warm", small[:10])
                simulation.idle("one worker, idle", 5.0)
                simulation.run(f"{few:,} tasks", [{"tasks": few}])
                simulation.run(f"{many:,} tasks", [{"tasks": many}])
                simulation.run("many tables, one worker", small)
            with workers(place, store, 2):
                simulation.run("many tables, two workers", small)
                simulation.run("one table, two workers", [{"tasks": 1, "table": "t0"}] * (exports // 4))
    cores = {name: report.cores(f"{name:,} tasks") / name for name in (few, many)}
    report.ratio("ms of CPU a task", 1000 * cores[many], 5, at_least=False)
    report.ratio("a task, four times the tasks", cores[many] / cores[few], 1.2, at_least=False)
    for name in ("one", "two"):
        report.ratio(
            f"exports a second, {name} worker{'s'[: name == 'two']}",
            exports / report.best(f"many tables, {name} worker{'s'[: name == 'two']}"),
        )
    report.ratio("commits a second into one table", exports / 4 / report.best("one table, two workers"))
    report.finish()


if __name__ == "__main__":
    main()
