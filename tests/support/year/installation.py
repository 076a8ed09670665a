"""One installation of Calve: a store, a configuration, and programs with everything that `calve worker` runs, over modelled services."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from calve.app.config import Config, load_config
from calve.app.pages.cards.policies import kept_out
from calve.app.policies import consent, guard, starts
from calve.app.policies.releases import announce
from calve.app.wiring import App
from calve.clickhouse.source import LiveSource
from calve.control.worker import WorkerLoop
from calve.destination.names import DestinationAddress
from calve.destination.port import Destination
from calve.model.errors import CalveError
from calve.model.process import Process, ProcessQuery, WorkerId
from calve.model.states import PIN_HELD, PROCESS_TERMINAL
from calve.model.tier import Announced
from calve.store.store import SqlStore
from support.simulator.exports import ReachedDestination
from support.simulator.schedule import Program
from support.simulator.spark import ModelledRunner
from support.simulator.store import Reached
from support.simulator.weather import Weather
from support.year.stores import RememberedStore

if TYPE_CHECKING:
    from support.year.world import YearWorld

LIMITS: Mapping[str, str] = {
    "slots": "4",
    "processes_per_worker": "8",
    "task_seconds": "120",
    "publish_attempts": "8",
    "fence_attempts": "4",
    "process_hours": "1",
    "keep_failed_hours": "1",
    "backoff_most_seconds": "20",
    "call_seconds": "15",
    "tag_days": "30",
}
_POLICY_SECONDS = 60.0
_ANNOUNCE_SECONDS = 15.0
_TICK_SECONDS = 3.0
_REST_SECONDS = 15.0
Rules = Mapping[str, Mapping[str, str]]  # policies, by name


def configured(rules: Rules) -> Config:
    settings = {
        "CALVE_SOURCE__MAIN__URL": "http://modelled:8123",
        "CALVE_SOURCE__MAIN__LAKE__LAKE": "Iceberg('{bucket}/{path}')",
        "CALVE_CATALOG__LAKE__TYPE": "modelled",
        "CALVE_STORE__URL": "sqlite:///unused.db",
        **{f"CALVE_LIMITS__{name.upper()}": value for name, value in LIMITS.items()},
        **{
            f"CALVE_POLICY__{name.upper()}__{key.upper()}": value
            for name, policy in rules.items()
            for key, value in policy.items()
        },
    }
    return load_config(environ=settings, cwd=Path("/nowhere"))


class ProgramStore(Reached):
    """As one program reaches the store; it announces under its own name."""

    def __init__(self, store: SqlStore, weather: Weather, program: str) -> None:
        super().__init__(store, weather)
        self._program = program

    def announce(self, program: str, said: Sequence[Announced]) -> None:
        self.store.announce(self._program, said)


class YearApp(App):
    """The application, over what the world models."""

    def __init__(self, world: "YearWorld", config: Config, store: SqlStore, program: str) -> None:
        super().__init__(config, runner=cast(Any, ModelledRunner(world.cluster)))
        self._world = world
        self.__dict__["store"] = ProgramStore(store, world.weather, program)

    def source(self, name: str) -> LiveSource:
        return self._world.server.as_source()

    source_with_disks = source

    def catalog(self, name: str) -> Any:
        return self._world.catalog

    def destination(self, address: DestinationAddress) -> Destination:
        if address not in self._destinations:
            made = ReachedDestination(
                address, self._world.catalog, self._world.objects, self.limits, self._world.schedule
            )
            self._destinations[address] = ({}, made)
        return self._destinations[address][1]


@dataclass(eq=False)
class Member:
    """One worker of an installation."""

    program: Program
    app: YearApp
    woken: bool = False
    jobs: int = 0


@dataclass(eq=False)
class Installation:
    world: "YearWorld"
    name: str
    rules: dict[str, dict[str, str]]
    remembered: RememberedStore
    members: list[Member] = field(default_factory=list)
    started: int = 0
    edited_at: float = 0.0  # the last change of its rules

    @property
    def store(self) -> SqlStore:
        return self.remembered.store

    # -- its store ----------------------------------------------------------------------------------

    def restore(self, copy: Any) -> None:
        """All its programs end, and begin anew with an older store."""
        count = max(1, len(self.members))
        self.stop()
        self.remembered.restore(copy)
        for _ in range(count):
            self.start()

    def processes(self) -> list[Process]:
        return self.store.processes(ProcessQuery(limit=10_000))

    def open_processes(self) -> list[Process]:
        return self.store.live(limit=1000)

    def is_settled(self) -> bool:
        ended = all(row.state in PROCESS_TERMINAL and row.cleanup_at is None for row in self.processes())
        return ended and not self.store.pins(states=PIN_HELD)

    # -- people at a terminal -----------------------------------------------------------------------

    def person(self) -> YearApp:
        return YearApp(self.world, configured(self.rules), self.store, "")

    def bring_back_what_was_kept_out(self) -> None:
        """As the first page and doctor tell a person."""
        app = self.person()
        self.world.server.drop_doubles()
        for release, process in kept_out(app, app.store.live(1000), app.registry.unknown_outcomes(1000)):
            consent.policy_undo(app, app.store, process.source, release.partition, force=True)

    # -- programs -----------------------------------------------------------------------------------

    def stop(self) -> None:
        for member in self.members:
            self.world.schedule.kill(member.program)
        self.members.clear()

    def edit(self, name: str, rule: dict[str, str] | None) -> None:
        """Another rule, or none: programs are started again with it."""
        self.rules = {key: value for key, value in self.rules.items() if key != name}
        if rule is not None:
            self.rules[name] = rule
        self.edited_at = self.world.schedule.now
        count = len(self.members)
        self.stop()
        for _ in range(count):
            self.start()

    def start(self, after: float = 0.0) -> None:
        self.started += 1
        world = self.world
        program = Program(f"worker-{self.name}{self.started}")
        app = YearApp(world, configured(self.rules), self.store, program.name)

        def spawn(work: Callable[[], None]) -> None:
            def job() -> None:
                try:
                    work()
                except CalveError as error:
                    world.schedule.tell(f"a job ends with {error.code}")
                finally:
                    member.woken = True
                    member.jobs -= 1

            member.jobs += 1
            world.schedule.spawn(program, "job", job)

        loop = WorkerLoop(
            store=app.store,
            kinds=app.kinds,
            runner=cast(Any, app.runner),
            limits=app.limits,
            reach=app.config.reach,
            worker_id=WorkerId(program.name),
            spawn=spawn,
            monotonic=world.schedule.monotonic,
            random=world.schedule.random(program.name).random,
        )
        member = Member(program, app)
        self.members.append(member)
        world.schedule.spawn(program, "loop", lambda: self._work(member, loop), after)
        world.schedule.spawn(program, "rules", lambda: self._follow_rules(member), after + 1.0)
        world.schedule.spawn(program, "announcing", lambda: self._announce(member), after)

    def _work(self, member: Member, loop: WorkerLoop) -> None:
        """As `WorkerLoop.run`, without its threads."""
        schedule = self.world.schedule
        rest = _TICK_SECONDS
        while True:
            seen = self.store.last_event()
            member.woken = False
            loop.tick()
            changed = self.store.last_event() != seen
            rest = _TICK_SECONDS if changed or member.jobs else min(2 * rest, _REST_SECONDS)
            schedule.sleep(0.05)
            schedule.wait(lambda: member.woken, rest, step=0.5)

    def _follow_rules(self, member: Member) -> None:
        """As `app.rules` and `app.guard` do in threads: no error ends it."""
        ticks: list[Callable[[], object]] = [
            *(partial(starts.tick, member.app, one) for one in member.app.config.policies),
            partial(guard.tick, member.app),
        ]
        while True:
            for tick in ticks:
                try:
                    tick()
                except CalveError as error:
                    self.world.schedule.tell(f"a rule ends with {error.code}: {error.message[:200]}")
            self.world.schedule.sleep(_POLICY_SECONDS)

    def _announce(self, member: Member) -> None:
        while True:
            try:
                announce(member.app)
            except CalveError:
                self.world.schedule.tell("nothing could be announced")
            self.world.schedule.sleep(_ANNOUNCE_SECONDS)
