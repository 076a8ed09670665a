"""A store, a world, a clock, and workers ticked by hand: hours of a worker's life in milliseconds."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from calve.control.background import inline
from calve.control.ports import Store
from calve.control.steps.context import Spawn
from calve.control.worker import WorkerLoop
from calve.model.errors import Outcome
from calve.model.limits import Limits
from calve.model.process import Granted, Lock, NewProcess, Process, ProcessId, WorkerId, new_process_id
from calve.model.record import fields_of
from calve.model.states import PIN_HELD, PROCESS_TERMINAL, TASK_LIVE, Leftovers, ProcessState
from calve.testing.clock import FakeClock
from calve.testing.fake_kind import FakeKind
from calve.testing.fake_runner import FakeRunner
from calve.testing.fake_world import World
from calve.testing.faults import Faults, crashing_kind, crashing_runner, crashing_store

REACH = frozenset({"source:main", "source:other", "catalog:lake", "catalog:pond"})


@dataclass
class Deferred:
    """An executor whose work waits until the test runs it: what hangs, hangs."""

    works: list[Callable[[], None]] = field(default_factory=list)

    def __call__(self, work: Callable[[], None]) -> None:
        self.works.append(work)

    def run(self) -> None:
        """All that waits now, in order."""
        works, self.works = self.works, []
        for work in works:
            work()


@dataclass
class Scene:
    store: Store
    clock: FakeClock
    limits: Limits = field(default_factory=Limits)
    world: World = field(default_factory=World)
    seed: int = 0
    ids: list[ProcessId] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kind = FakeKind(self.world)
        self.runner = FakeRunner(self.world)
        self._workers_made = 0

    def submit(
        self, *, lane: str = "catalog:lake", source: str = "main", key: str = "", **request: object
    ) -> ProcessId:
        priority = int(str(request.pop("priority", 0)))
        deadline_seconds = float(str(request.pop("deadline_seconds", 86_400.0)))
        process_id = new_process_id()
        new = NewProcess(
            id=process_id,
            kind="fake",
            source=f"{source}:db.events",
            destination=f"{lane.split(':')[-1]}.ns.events",
            lane=lane,
            needs=(f"source:{source}", lane),
            request=json.dumps(request),
            locks=(Lock(name=key),) if key else (),
            priority=priority,
            deadline_seconds=deadline_seconds,
        )
        self.store.submit([new])
        self.ids.append(process_id)
        return process_id

    def worker(
        self,
        *,
        spawn: Spawn = inline,
        faults: Faults | None = None,
        limits: Limits | None = None,
        monotonic: Callable[[], float] | None = None,
        probes: Mapping[str, Callable[[], None]] | None = None,
        granted: Callable[[], Granted | None] = lambda: None,
    ) -> WorkerLoop:
        """`monotonic` is its own clock, where that is not the store's."""
        self._workers_made += 1
        quiet = faults or Faults()
        return WorkerLoop(
            store=crashing_store(self.store, quiet),
            kinds={"fake": crashing_kind(self.kind, quiet)},
            runner=crashing_runner(self.runner, quiet),
            limits=limits or self.limits,
            reach=REACH,
            probes=probes,
            granted=granted,
            worker_id=WorkerId(f"worker-{self._workers_made}"),
            spawn=spawn,
            monotonic=monotonic or self.clock.offset_seconds,
            random=Random(self.seed).random,
        )

    def row(self, process_id: ProcessId) -> Process:
        return self.store.process(process_id)

    def state(self, process_id: ProcessId) -> ProcessState:
        return self.row(process_id).state

    def run(self, worker: WorkerLoop, *, ticks: int = 200, seconds: float = 0.5) -> None:
        """Tick until all processes have ended and all pins are released, or `ticks` are used."""
        for _ in range(ticks):
            worker.tick()
            if self.settled():
                return
            self.clock.advance(seconds)

    def settled(self) -> bool:
        return all(self.state(key) in PROCESS_TERMINAL for key in self.ids) and not self.store.pins(
            states=PIN_HELD
        )

    def events(self, process_id: ProcessId) -> list[str]:
        return [event.name for event in self.store.events(process_id)]

    def check(self) -> None:
        """What must hold at every moment, whatever happened."""
        world = self.world
        assert world.violations == []
        keys = [snapshot.key for snapshot in world.snapshots]
        assert len(keys) == len(set(keys)), "a key was published twice"
        for snapshot in world.snapshots:
            assert world.files.issuperset(snapshot.files), "a published file was deleted"
        for process_id in self.ids:
            self._check_process(self.row(process_id))

    def _check_process(self, row: Process) -> None:
        published = self.world.published(row.id)
        if row.state is ProcessState.COMPLETED and not fields_of(row.request).get("nothing"):
            assert published is not None, "COMPLETED, and nothing was published"
            assert row.tasks.done == row.tasks.total
        if row.state in (ProcessState.CANCELLED, ProcessState.FAILED) and published is not None:
            outcome = row.error.outcome if row.error else None
            assert row.state is ProcessState.FAILED, "CANCELLED, and published"
            assert outcome in (Outcome.UNKNOWN, Outcome.APPLIED), "FAILED for certain, and published"
            assert row.leftovers is Leftovers.NONE
        if row.state in PROCESS_TERMINAL:
            assert not self.store.tasks(row.id, TASK_LIVE), "ended, with tasks that have not"
            assert row.finished_at is not None

    def check_settled(self) -> None:
        """What must hold once everything had its time: nothing is left."""
        self.check()
        for process_id in self.ids:
            row = self.row(process_id)
            assert row.state in PROCESS_TERMINAL, f"{row.id} is still {row.state}"
            leased = row.lease_until is not None and row.lease_until > self.store.now()
            assert not leased, f"{row.id} is still leased"
        assert not self.store.pins(states=PIN_HELD), "a pin is left in the journal"
        assert not self.world.pins, "a pin is left at the source"
