"""One history: the services, the workers, the people, the storm and the calm after it."""

import logging
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from calve.backup.kind import TASK_FUNCTION as BACKUP_TASK
from calve.backup.kind import BackupKind
from calve.clickhouse.parts.partitions import Selection
from calve.control.client import cancel
from calve.control.kind import Kind
from calve.control.registry import ServedStore
from calve.control.worker import WorkerLoop
from calve.export.kind import TASK_FUNCTION, ExportKind
from calve.export.request import ExportRequest
from calve.export.submit import submit_export, survey_export
from calve.model import reach
from calve.model.errors import CalveError, Outcome
from calve.model.limits import Limits
from calve.model.process import Process, ProcessId, WorkerId
from calve.model.states import PIN_HELD, PROCESS_TERMINAL, ProcessState
from calve.optimize.driver_work import REWRITE
from calve.optimize.kind import OptimizeKind
from calve.restore.kind import TASK_FUNCTION as RESTORE_TASK
from calve.restore.kind import RestoreKind
from calve.store.store import SqlStore
from support.simulator import deeds, optimizes
from support.simulator.archives import URL, ArchiveTask, ReachedBackups, in_one_thread, sweep
from support.simulator.catalog import ModelledCatalog
from support.simulator.chance import seeded
from support.simulator.check_archives import refuse_needed
from support.simulator.check_folder import refuse_listed
from support.simulator.clickhouse import ModelledSource, ModelledTable
from support.simulator.copies import Forgotten, Operator
from support.simulator.exports import ExportTask, ReachedPorts
from support.simulator.objects import ModelledObjects
from support.simulator.people import Action, Script
from support.simulator.rivals import Rivals
from support.simulator.schedule import Program, Schedule, Stuck
from support.simulator.spark import ModelledCluster, ModelledRunner
from support.simulator.store import AllStores, reached, sql_store
from support.simulator.storm import storm_of
from support.simulator.weather import FOR_EVER, Weather

LIMITS = Limits(
    slots=4,
    processes_per_worker=8,
    task_seconds=120.0,
    publish_attempts=8,
    fence_attempts=4,
    process_hours=0.15,
    keep_failed_hours=0.1,
    backoff_most_seconds=20.0,
    call_seconds=15.0,
    tag_days=30.0,
)
REACH = frozenset({"source:main", "catalog:lake", "catalog:pond", reach.backup(URL)})
LAKE, POND = "lake", "pond"  # two catalogs; in some histories the second never answers
DESTINATION = ("db", "events")
CALM_SECONDS = 3600.0  # after the storm everything ends within this
_IDLE_SECONDS = 30.0
_TICK_SECONDS = 4.0
_IMPATIENCE = 0.3
_SHARED = frozenset({"mixed", "forces", "rollbacks", "folders"})  # storms that two stores may be in


@dataclass(frozen=True, kw_only=True)
class Case:
    """What a history is made from. `faults` and `actions`: only those, by name, where given."""

    seed: int
    faults: frozenset[str] | None = None
    actions: frozenset[str] | None = None
    log: Callable[[str], None] | None = None


@dataclass(eq=False)
class Hand:
    """One worker's program, as the world sees it."""

    program: Program
    loop: WorkerLoop
    number: int  # of its store
    store: SqlStore
    woken: bool = False
    jobs: int = 0


@dataclass(eq=False)
class World:
    case: Case

    def __post_init__(self) -> None:
        schedule = self.schedule = Schedule(seed=self.case.seed, log=self.case.log)
        nature = schedule.random("nature")
        storm = self.storm = storm_of(nature)
        self._folders = ExitStack()
        self.limits = replace(
            LIMITS,
            keep_failed_hours=storm.keep_failed_seconds / 3600,
            process_hours=storm.process_seconds / 3600,
        )
        self.weather = Weather(
            schedule=schedule,
            rate=storm.rate,
            rates=storm.rates,
            faults=storm.faults,
            kept=self.case.faults,
        )
        self.objects = ModelledObjects(self.weather)
        self.catalogs = {
            name: ModelledCatalog(name, self.weather, self.objects, storm.properties) for name in (LAKE, POND)
        }
        if storm.pond_is_gone:
            self.weather.outages[POND] = FOR_EVER
        self.source = ModelledSource(self.weather, schedule.clock, self._disk() if storm.archives else None)
        self.driver = optimizes.Driver(self.catalogs, self.objects)
        self.cluster = ModelledCluster(
            schedule=schedule,
            weather=self.weather,
            tasks={
                TASK_FUNCTION: ExportTask(self.source, self.objects),
                BACKUP_TASK: ArchiveTask(self.objects).back_up,
                RESTORE_TASK: ArchiveTask(self.objects).restore,
                REWRITE: self.driver.rewrite,
            },
            rate=storm.spark,
        )
        self.script = Script.of(nature, storm.verbs, storm.actions, storm.seconds, self.case.actions)
        self.weather.watchers.append(Rivals(world=self, does=storm.rivals).met)
        self.problems: list[str] = []
        self.ended: dict[ProcessId, ProcessState] = {}
        self.hands: list[Hand] = []
        self.forgotten: Forgotten | None = None  # where a store is put back from a copy
        self.runners: list[tuple[int, ModelledRunner]] = []  # of all workers, by the number of their store
        self.started = 0
        self.acting = 0  # people whose action has not ended
        self.objects.before_delete.append(self._refuse_referenced)
        self.objects.before_delete.append(partial(refuse_needed, self))
        self.objects.before_delete.append(partial(refuse_listed, self))

    def _disk(self) -> Path:
        """Of the modelled server; in memory, where the machine has that."""
        memory = Path("/dev/shm")
        where = memory if memory.is_dir() else None
        folder = tempfile.TemporaryDirectory(prefix="calve-sim-", dir=where)
        self._folders.callback(folder.cleanup)
        return Path(folder.name)

    # -- a run --------------------------------------------------------------------------------------

    @contextmanager
    def opened(self) -> Iterator["World"]:
        with ExitStack() as stack:
            stack.enter_context(self._folders)
            stack.enter_context(seeded(self.schedule))
            stack.enter_context(in_one_thread())
            stack.enter_context(optimizes.listed(self.objects, self.schedule))
            stack.callback(logging.getLogger("calve").setLevel, logging.getLogger("calve").level)
            logging.getLogger("calve").setLevel(logging.CRITICAL)
            self.store = AllStores(
                [stack.enter_context(sql_store(self.schedule)) for _ in range(self._stores())]
            )
            stack.callback(self.schedule.close)
            yield self

    def live(self) -> None:
        """The storm, then the calm. Raises Stuck where the calm does not end it."""
        self._begin_tables()
        world = Program("world")
        for action in self.script.to_do():
            person = Program(f"person {action.name}")
            self.schedule.spawn(person, action.verb, partial(self._act, action), action.at)
        for number in range(max(self.storm.workers, len(self.store.stores))):
            self._start_worker(number % len(self.store.stores), after=3.0 * number)
        self.schedule.spawn(world, "supervise", self._supervise)
        Operator(self).begin()
        if self.storm.outages:
            self.schedule.spawn(world, "outages", self._outages)
        last = max((one.at for one in self.script.to_do()), default=0.0)
        self.schedule.run(max(self.storm.seconds, last) + 1.0)
        self.schedule.tell("the storm is over")
        self.weather.clear()
        kept = list({hand.number: hand for hand in reversed(self.hands)}.values())
        for hand in self.hands:  # what others held, one goes on with
            if hand not in kept:
                self.schedule.kill(hand.program)
        self.hands = kept
        end = self.schedule.now + CALM_SECONDS
        while not self._settled():
            if self.schedule.now > end:
                raise Stuck(f"not everything has ended {CALM_SECONDS:.0f} s after the storm: {self._open()}")
            self.schedule.run(self.schedule.now + 10.0)
        self.weather.land(all_of_them=True)
        if self.storm.archives:
            sweep(self)
        self.schedule.run(self.schedule.now + 60.0)

    def processes(self) -> list[Process]:
        return self.store.processes()

    def _stores(self) -> int:
        """Two that do not know each other, in some of the histories where several export into one table."""
        chance = self.schedule.random("stores").random()
        return 2 if self.storm.name in _SHARED and chance < 0.2 else 1

    @property
    def anyone(self) -> ServedStore:
        """The store that a person's command reaches."""
        stores = self.store.stores
        at = int(self.schedule.draw("store")[1] * len(stores)) if len(stores) > 1 else 0
        return reached(stores[at], self.weather)

    def holder(self, process_id: ProcessId) -> ServedStore:
        """The one that has the process."""
        return reached(self.store.of(process_id), self.weather)

    def _settled(self) -> bool:
        rows = self.processes()
        return (
            not self.acting
            and all(
                row.state in PROCESS_TERMINAL and row.cleanup_at is None and not is_unknown(row)
                for row in rows
            )
            and not self.store.pins(states=PIN_HELD)
            and not self.weather.later
        )

    def _open(self) -> str:
        rows = [
            f"{row.id} {row.state} {row.error.code if row.error else ''} cleanup {row.cleanup_at}"
            for row in self.processes()
            if row.state not in PROCESS_TERMINAL or row.cleanup_at or is_unknown(row)
        ]
        return "; ".join(
            [
                *([f"{self.acting} people wait"] if self.acting else []),
                *rows,
                *(f"pin {pin.name} {pin.state}" for pin in self.store.pins(states=PIN_HELD)),
            ]
        )

    # -- workers ------------------------------------------------------------------------------------

    def ports(self) -> ReachedPorts:
        return ReachedPorts(self.limits, self.schedule, self.source, self.catalogs, self.objects)

    def backup_ports(self) -> ReachedBackups:
        return ReachedBackups(self.limits, self.source, self.objects)

    def optimize_ports(self, store: SqlStore | None = None) -> optimizes.ReachedTables:
        seen = reached(store or self.store.stores[0], self.weather)
        return optimizes.ReachedTables(self.limits, seen, self.catalogs, self.driver)

    def kinds(self, store: SqlStore) -> dict[str, Kind]:
        kinds: list[Kind] = [ExportKind(self.ports())]
        if self.storm.archives:
            kinds += [BackupKind(self.backup_ports()), RestoreKind(self.backup_ports())]
        if self.storm.upkeep:
            kinds.append(OptimizeKind(self.optimize_ports(store)))
        return {kind.name: kind for kind in kinds}

    def _start_worker(self, store: int, after: float = 0.0) -> None:
        self.started += 1
        program = Program(f"worker-{self.started}")

        def spawn(work: Callable[[], None]) -> None:
            def job() -> None:
                try:
                    work()
                except CalveError as error:
                    self.schedule.tell(f"a job ends with {error.code}")  # as `Pool` logs it
                finally:
                    hand.woken = True
                    hand.jobs -= 1

            hand.jobs += 1
            self.schedule.spawn(program, "job", job)

        runner = ModelledRunner(self.cluster)
        self.runners.append((store, runner))
        loop = WorkerLoop(
            store=reached(self.store.stores[store], self.weather),
            kinds=self.kinds(self.store.stores[store]),
            runner=runner,
            limits=self.limits,
            reach=REACH,
            worker_id=WorkerId(program.name),
            spawn=spawn,
            monotonic=self.schedule.monotonic,
            random=self.schedule.random(program.name).random,
        )
        hand = Hand(program, loop, store, self.store.stores[store])
        self.hands.append(hand)
        self.schedule.spawn(program, "loop", lambda: self._work(hand), after)

    def stop_workers(self, store: int) -> None:
        """Those of one store, and what they run on the cluster. Who starts them anew is the supervisor."""
        for hand in self.hands:
            if hand.number == store:
                self.schedule.kill(hand.program)
        for number, runner in self.runners:
            for executor in runner.executors if number == store else ():
                executor.alive = False

    def forget(self, store: SqlStore) -> None:
        """What it knows now is not known any more; what it says has ended may go on."""
        self.forgotten = Forgotten.of(self, store)
        self.ended = {row: state for row, state in self.ended.items() if row not in self.forgotten.rows}

    def _work(self, hand: Hand) -> None:
        """As `WorkerLoop.run`, without its threads: a tick, then a rest until something happened."""
        rest = _TICK_SECONDS
        while True:
            seen = hand.store.last_event()
            hand.woken = False
            hand.loop.tick()
            changed = hand.store.last_event() != seen
            rest = _TICK_SECONDS if changed or hand.jobs else min(2 * rest, _IDLE_SECONDS)
            self.schedule.sleep(0.05)
            self.schedule.wait(lambda: hand.woken, rest, step=0.5)

    def _supervise(self) -> None:
        """Starts anew what died, lands what was under way, and watches that what ended stays so."""
        chance = self.schedule.random("supervisor")
        while True:
            self.schedule.sleep(3.0)
            self.weather.land()
            self._merge_restored()
            for hand in [one for one in self.hands if not one.program.alive]:
                self.hands.remove(hand)
                self._start_worker(hand.number, after=chance.choice((0.5, 10.0, 45.0)))
            for row in self.processes():
                before = self.ended.get(row.id, row.state)
                if before is not row.state:
                    self.problems.append(f"process {row.id} was {before} and is {row.state}")
                if row.state in PROCESS_TERMINAL:
                    self.ended[row.id] = row.state
                elif row.publish_sent:
                    self._lose_patience(row)

    def _merge_restored(self) -> None:
        """As a server does by itself, unless it was told not to."""
        for name, table in self.source.tables.items():
            if name[0] != "db":
                for partition in table.partition_ids:
                    table.merge(partition)

    def _lose_patience(self, row: Process) -> None:
        """Somebody cancels what hangs in its publish: the moment at which most can go wrong."""
        name, chance = self.schedule.draw("impatience")
        if not self.storm.quiet and self.weather.stormy and chance < _IMPATIENCE and self.weather.keeps(name):
            self.schedule.tell(f"{row.id} is cancelled in its publish")
            with self.schedule.aside():
                cancel(self.store.of(row.id), row.id)

    def _outages(self) -> None:
        chance = self.schedule.random("outages")
        while self.weather.stormy:
            self.schedule.sleep(chance.uniform(10.0, 60.0))
            service = chance.choice(("objects", LAKE, POND, "clickhouse"))
            seconds = chance.choice((3.0, 20.0, 70.0))
            name, _ = self.schedule.draw("outage")
            if self.weather.stormy and self.weather.keeps(name):
                self.schedule.tell(f"{service} is down for {seconds:.0f} s")
                until = max(self.schedule.now + seconds, self.weather.outages.get(service, 0.0))
                self.weather.outages[service] = until

    # -- people -------------------------------------------------------------------------------------

    def _begin_tables(self) -> None:
        for name in ("events", "clicks"):
            uuid = f"00000000-0000-0000-0000-{name:>012}"
            path = f"{self.source.statements.disk}/store/{uuid}/"
            table = ModelledTable("db", name, uuid, data_path=path)
            for partition in ("1", "2", "3"):
                for count in (2, 5):
                    table.insert(partition, count)
            self.source.tables["db", name] = table

    def _act(self, action: Action) -> None:
        self.script.done.append(action.name)
        self.schedule.tell(f"{action.name} {action.verb}")
        with self.acts(action.name):
            deeds.do(self, action)

    @contextmanager
    def acts(self, who: str) -> Iterator[None]:
        """Somebody asks for something. The history does not end before the answer."""
        self.acting += 1
        try:
            yield
        except CalveError as error:
            self.schedule.tell(f"{who} is answered {error.code}")
        finally:
            self.acting -= 1

    @property
    def lake(self) -> tuple[ModelledCatalog, tuple[str, ...]]:
        """Where people export to, and others write."""
        return self.catalogs[LAKE], DESTINATION

    @property
    def other_catalog(self) -> str:
        return POND

    def export(self, request: ExportRequest, selection: Selection) -> None:
        """As the command does it."""
        ports = self.ports()
        surveyed = survey_export(ports, request, selection)
        submit_export(ports, self.anyone, surveyed, sleep=self.schedule.sleep)

    # -- what must never be -------------------------------------------------------------------------

    def _refuse_referenced(self, uri: str) -> None:
        with self.schedule.aside():
            if any(uri in catalog.referenced() for catalog in self.catalogs.values()):
                self.problems.append(f"{uri} was deleted, and a snapshot refers to it")


def is_unknown(row: Process) -> bool:
    return row.error is not None and row.error.outcome is Outcome.UNKNOWN and row.state in PROCESS_TERMINAL
