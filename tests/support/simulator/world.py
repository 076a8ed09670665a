"""One history: the services, the workers, the people, the storm and the calm after it."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

from calve.clickhouse.parts.partitions import Selection
from calve.control.client import cancel, retry
from calve.control.kind import Kind
from calve.control.worker import WorkerLoop
from calve.export.kind import TASK_FUNCTION, ExportKind
from calve.export.request import ExportRequest
from calve.export.submit import submit_export, survey_export
from calve.model.errors import CalveError, Outcome
from calve.model.limits import Limits
from calve.model.process import Process, ProcessId, ProcessQuery, WorkerId
from calve.model.states import PIN_HELD, PROCESS_LIVE, PROCESS_TERMINAL, ProcessState
from support.simulator import foreign
from support.simulator.catalog import ModelledCatalog
from support.simulator.chance import seeded
from support.simulator.clickhouse import ModelledSource, ModelledTable
from support.simulator.exports import ExportTask, ReachedPorts
from support.simulator.objects import ModelledObjects
from support.simulator.people import DATA, EXPORTS, FOREIGN, RUDE, Action, Script
from support.simulator.schedule import Program, Schedule, Stuck
from support.simulator.spark import ModelledCluster, ModelledRunner
from support.simulator.store import reached, sql_store
from support.simulator.weather import FOR_EVER, Fault, Weather

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
REACH = frozenset({"source:main", "catalog:lake", "catalog:pond"})
LAKE, POND = "lake", "pond"  # two catalogs; in some histories the second never answers
DESTINATION = ("db", "events")
CALM_SECONDS = 3600.0  # after the storm everything ends within this
_IDLE_SECONDS = 30.0
_TICK_SECONDS = 4.0
_IMPATIENCE = 0.3


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
    woken: bool = False
    jobs: int = 0


@dataclass(eq=False)
class World:
    case: Case

    def __post_init__(self) -> None:
        schedule = self.schedule = Schedule(seed=self.case.seed, log=self.case.log)
        nature = schedule.random("nature")
        self.quiet = nature.random() < 0.2
        kinds = [fault for fault in Fault if nature.random() < 0.7]
        self.weather = Weather(
            schedule=schedule,
            rate=0.0 if self.quiet else nature.choice((0.004, 0.01, 0.02)),
            faults=frozenset(kinds),
            kept=self.case.faults,
        )
        self.objects = ModelledObjects(self.weather)
        self.catalogs = {name: ModelledCatalog(name, self.weather, self.objects) for name in (LAKE, POND)}
        if nature.random() < 0.15:
            self.weather.outages[POND] = FOR_EVER
        self.source = ModelledSource(self.weather, schedule.clock)
        self.cluster = ModelledCluster(
            schedule=schedule,
            weather=self.weather,
            tasks={TASK_FUNCTION: ExportTask(self.source, self.objects)},
            rate=0.0 if self.quiet else nature.choice((0.0, 0.05, 0.2)),
        )
        self.storm_seconds = nature.choice((40.0, 80.0, 120.0))
        self.workers = nature.choice((1, 2, 2, 3))
        count = 60 if self.quiet else nature.choice((10, 16, 24))
        self.script = Script.of(
            nature,
            (*EXPORTS, *DATA, *FOREIGN, nature.choice(RUDE)),
            count,
            self.storm_seconds * (3 if self.quiet else 1),
            self.case.actions,
        )
        self.problems: list[str] = []
        self.ended: dict[ProcessId, ProcessState] = {}
        self.hands: list[Hand] = []
        self.started = 0
        self.objects.before_delete.append(self._refuse_referenced)

    # -- a run --------------------------------------------------------------------------------------

    @contextmanager
    def opened(self) -> Iterator["World"]:
        with ExitStack() as stack:
            stack.enter_context(seeded(self.schedule))
            stack.callback(logging.getLogger("calve").setLevel, logging.getLogger("calve").level)
            logging.getLogger("calve").setLevel(logging.CRITICAL)
            self.store = stack.enter_context(sql_store(self.schedule))
            stack.callback(self.schedule.close)
            yield self

    def live(self) -> None:
        """The storm, then the calm. Raises Stuck where the calm does not end it."""
        self._begin_tables()
        world = Program("world")
        for action in self.script.to_do():
            person = Program(f"person {action.name}")
            self.schedule.spawn(person, action.verb, partial(self._act, action), action.at)
        for number in range(self.workers):
            self._start_worker(after=3.0 * number)
        self.schedule.spawn(world, "supervise", self._supervise)
        if not self.quiet and self.schedule.random("outages?").random() < 0.5:
            self.schedule.spawn(world, "outages", self._outages)
        last = max((one.at for one in self.script.to_do()), default=0.0)
        self.schedule.run(max(self.storm_seconds, last) + 1.0)
        self.schedule.tell("the storm is over")
        self.weather.clear()
        for hand in self.hands[1:]:  # what others held, one goes on with
            self.schedule.kill(hand.program)
        self.hands = self.hands[:1]
        end = self.schedule.now + CALM_SECONDS
        while not self._settled():
            if self.schedule.now > end:
                raise Stuck(f"not everything has ended {CALM_SECONDS:.0f} s after the storm: {self._open()}")
            self.schedule.run(self.schedule.now + 10.0)
        self.weather.land(all_of_them=True)
        self.schedule.run(self.schedule.now + 60.0)

    def processes(self) -> list[Process]:
        return self.store.processes(ProcessQuery(limit=1000))

    def _settled(self) -> bool:
        rows = self.processes()
        return (
            all(
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
            [*rows, *(f"pin {pin.name} {pin.state}" for pin in self.store.pins(states=PIN_HELD))]
        )

    # -- workers ------------------------------------------------------------------------------------

    def ports(self) -> ReachedPorts:
        return ReachedPorts(LIMITS, self.schedule, self.source, self.catalogs, self.objects)

    def kinds(self) -> dict[str, Kind]:
        return {"export": ExportKind(self.ports())}

    def _start_worker(self, after: float = 0.0) -> None:
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

        loop = WorkerLoop(
            store=reached(self.store, self.weather),
            kinds=self.kinds(),
            runner=ModelledRunner(self.cluster),
            limits=LIMITS,
            reach=REACH,
            worker_id=WorkerId(program.name),
            spawn=spawn,
            monotonic=self.schedule.monotonic,
            random=self.schedule.random(program.name).random,
        )
        hand = Hand(program, loop)
        self.hands.append(hand)
        self.schedule.spawn(program, "loop", lambda: self._work(hand), after)

    def _work(self, hand: Hand) -> None:
        """As `WorkerLoop.run`, without its threads: a tick, then a rest until something happened."""
        rest = _TICK_SECONDS
        while True:
            seen = self.store.last_event()
            hand.woken = False
            hand.loop.tick()
            changed = self.store.last_event() != seen
            rest = _TICK_SECONDS if changed or hand.jobs else min(2 * rest, _IDLE_SECONDS)
            self.schedule.sleep(0.05)
            self.schedule.wait(lambda: hand.woken, rest, step=0.5)

    def _supervise(self) -> None:
        """Starts anew what died, lands what was under way, and watches that what ended stays so."""
        chance = self.schedule.random("supervisor")
        while True:
            self.schedule.sleep(3.0)
            self.weather.land()
            for hand in [one for one in self.hands if not one.program.alive]:
                self.hands.remove(hand)
                self._start_worker(after=chance.choice((0.5, 10.0, 45.0)))
            for row in self.processes():
                before = self.ended.get(row.id, row.state)
                if before is not row.state:
                    self.problems.append(f"process {row.id} was {before} and is {row.state}")
                if row.state in PROCESS_TERMINAL:
                    self.ended[row.id] = row.state
                elif row.publish_sent:
                    self._lose_patience(row)

    def _lose_patience(self, row: Process) -> None:
        """Somebody cancels what hangs in its publish: the moment at which most can go wrong."""
        name, chance = self.schedule.draw("impatience")
        if self.weather.rate and self.weather.stormy and chance < _IMPATIENCE and self.weather.keeps(name):
            self.schedule.tell(f"{row.id} is cancelled in its publish")
            with self.schedule.aside():
                cancel(self.store, row.id)

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
            table = ModelledTable("db", name, f"00000000-0000-0000-0000-{name:>012}")
            for partition in ("1", "2", "3"):
                for count in (2, 5):
                    table.insert(partition, count)
            self.source.tables["db", name] = table

    def _act(self, action: Action) -> None:
        self.script.done.append(action.name)
        self.schedule.tell(f"{action.name} {action.verb}")
        try:
            self._do(action)
        except CalveError as error:
            self.schedule.tell(f"{action.name} is answered {error.code}")

    def _do(self, action: Action) -> None:
        chance = action.random
        table = self.source.tables["db", chance.choice(("events", "events", "clicks"))]
        partition = chance.choice(("1", "2", "3"))
        match action.verb:
            case "insert":
                table.insert(partition, chance.randint(1, 7))
            case "merge":
                table.merge(partition)
            case "mutate":
                table.mutate(partition)
            case "drop":
                table.drop(partition)
            case "append":
                foreign.append(self.catalogs[LAKE], self.objects, DESTINATION, f"{action.name}")
            case "expire":
                foreign.expire(self.catalogs[LAKE], DESTINATION)
            case "sweep_tags":
                foreign.sweep_tags(self.catalogs[LAKE], DESTINATION)
            case "rollback":
                foreign.rollback(self.catalogs[LAKE], DESTINATION)
            case "cancel" | "retry":
                wanted = PROCESS_LIVE if action.verb == "cancel" else PROCESS_TERMINAL
                rows = sorted(self.processes(), key=lambda row: (row.state not in wanted, row.id))
                if rows:
                    row = chance.choice(rows[: 1 + len(rows) // 2])
                    (cancel if action.verb == "cancel" else retry)(reached(self.store, self.weather), row.id)
            case verb:
                parts = (
                    tuple(part.facts.name for part in table.of(partition)[:1])
                    if verb == "export_parts"
                    else ()
                )
                if verb == "export_all":
                    selection = Selection(all=True)
                elif parts:
                    selection = Selection(parts=parts)
                else:
                    selection = Selection(partitions=(partition,))
                request = ExportRequest(
                    source="main",
                    database=table.database,
                    table=table.name,
                    catalog=POND if chance.random() < 0.15 else LAKE,
                    identifier=DESTINATION,
                    partitions=(),
                    force=verb == "force",
                    allow_shrink=verb == "force" and chance.random() < 0.5,
                    new_parts=verb == "new_parts",
                )
                ports = self.ports()
                surveyed = survey_export(ports, request, selection)
                submit_export(ports, reached(self.store, self.weather), surveyed, sleep=self.schedule.sleep)

    # -- what must never be -------------------------------------------------------------------------

    def _refuse_referenced(self, uri: str) -> None:
        with self.schedule.aside():
            if any(uri in catalog.referenced() for catalog in self.catalogs.values()):
                self.problems.append(f"{uri} was deleted, and a snapshot refers to it")


def is_unknown(row: Process) -> bool:
    return row.error is not None and row.error.outcome is Outcome.UNKNOWN and row.state in PROCESS_TERMINAL
