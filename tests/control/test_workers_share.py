"""Workers beside each other: no slot of one stays empty while a task waits for one of another."""

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count

import pytest

from calve.control.leases import Company
from calve.control.worker import WorkerLoop
from calve.model.limits import Limits
from calve.model.process import WorkerId
from calve.model.states import PROCESS_TERMINAL, ProcessState
from calve.testing.clock import FakeClock
from calve.testing.scene import Scene

TASK_SECONDS, STEP_SECONDS = 8.0, 2.0
SLOTS = 4


class Timed:
    """Work of one worker that takes its time: planning and publishing two seconds each, waves of tasks about eight."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._order = count()
        self._works: list[tuple[float, int, Callable[[], None]]] = []
        self.waves = 0

    def __call__(self, work: Callable[[], None]) -> None:
        is_step = isinstance(work, partial)
        self.waves += not is_step
        seconds = STEP_SECONDS if is_step else TASK_SECONDS + 0.3 * (self.waves % SLOTS)
        ends = self._clock.offset_seconds() + seconds
        heapq.heappush(self._works, (ends, next(self._order), work))

    def go_on(self) -> None:
        while self._works and self._works[0][0] <= self._clock.offset_seconds():
            heapq.heappop(self._works)[2]()


@pytest.fixture
def limits() -> Limits:
    return Limits(slots=SLOTS)


def run(scene: Scene, team: list[tuple[WorkerLoop, Timed]], seconds: float = 600.0) -> float:
    """Until all is done: how long it took."""
    began = scene.clock.offset_seconds()
    while not all(scene.state(key) in PROCESS_TERMINAL for key in scene.ids):
        assert scene.clock.offset_seconds() - began < seconds
        for place, (worker, work) in enumerate(team):
            for _ in range(len(team) - place):  # the first is woken more often
                work.go_on()
                worker.tick()
        scene.clock.advance(0.25)
    return scene.clock.offset_seconds() - began


def hire(scene: Scene, limits: Limits) -> tuple[WorkerLoop, Timed]:
    work = Timed(scene.clock)
    return scene.worker(spawn=work, limits=limits), work


def meet(scene: Scene, team: list[tuple[WorkerLoop, Timed]]) -> None:
    """Until each has heard of the others."""
    for _ in range(2):
        for worker, _work in team:
            worker.tick()
        scene.clock.advance(scene.limits.lease_seconds / 4)


@pytest.mark.parametrize("processes", [24, 25, 40])
def test_two_workers_need_no_more_waves_than_their_slots_together(
    scene: Scene, limits: Limits, processes: int
) -> None:
    """Bench `two-workers`: the one that looked more often while its first were planned took 13 or 16 of 24, which is
    four waves of four where three are enough."""
    team = [hire(scene, limits), hire(scene, limits)]
    meet(scene, team)
    for number in range(processes):
        scene.submit(key=f"part-{number}", tasks=1)
    seconds = run(scene, team)
    waves = -(-processes // (2 * SLOTS))
    assert seconds <= waves * (TASK_SECONDS + 1) + 2 * STEP_SECONDS
    assert sum(work.waves for _, work in team) == processes
    assert {scene.state(key) for key in scene.ids} == {ProcessState.COMPLETED}
    assert set(scene.world.runs.values()) == {1}


def test_a_worker_that_comes_later_is_given_what_waits_at_the_first(scene: Scene, limits: Limits) -> None:
    first = hire(scene, limits)
    for number in range(24):
        scene.submit(key=f"part-{number}", tasks=1)
    first[0].tick()
    assert {scene.row(key).owner for key in scene.ids} == {first[0].id}, "alone, it takes what it may hold"
    second = hire(scene, limits)
    meet(scene, [first, second])
    run(scene, [first, second])
    assert second[1].waves >= 8


def test_what_no_other_worker_reaches_is_not_handed_over(scene: Scene, limits: Limits) -> None:
    team = [hire(scene, limits), hire(scene, limits)]
    team[1][0]._reach = frozenset({"source:main", "catalog:pond"})  # as its heartbeat tells
    meet(scene, team)
    for number in range(3 * SLOTS):
        scene.submit(key=f"part-{number}", tasks=1)
    run(scene, team)
    assert team[1][1].waves == 0
    fences = Counter(scene.row(key).fence for key in scene.ids)
    assert fences == {1: 3 * SLOTS}


@pytest.mark.parametrize(
    ("taken", "waiting", "before", "after"),
    [
        (0, 0, 5, 5),  # a quarter of what is free
        (19, 0, 1, 1),
        (20, 0, 0, 5),  # all have work: for a cancel, ahead of a slot that ends
        (20, 19, 0, 5),
        (20, 20, 0, 1),  # what waits here would fill them all again
    ],
)
def test_how_much_is_taken_beside_others(
    scene: Scene, limits: Limits, taken: int, waiting: int, before: int, after: int
) -> None:
    company = Company(scene.store, WorkerId("me"), limits, scene.clock.offset_seconds)
    hire(scene, limits)[0].tick()
    company.look()
    assert company.room(0, 20, taken, waiting) == before
    scene.clock.advance(2.0)
    assert company.room(0, 20, taken, waiting) == after
    assert company.room(limits.processes_per_worker, 20, taken, waiting) == 0
    company.took()
    assert company.room(0, 20, taken, waiting) == before


def test_one_that_was_silent_for_a_lease_is_no_company(scene: Scene, limits: Limits) -> None:
    company = Company(scene.store, WorkerId("me"), limits, scene.clock.offset_seconds)
    hire(scene, limits)[0].tick()
    scene.clock.advance(limits.lease_seconds)
    company.look()
    assert company.room(0, 20, 20, 0) == limits.processes_per_worker


def test_what_others_have_slots_for_is_handed_over_the_last_in_turn_first(
    scene: Scene, limits: Limits
) -> None:
    scene.clock.advance(100.0)
    hire(scene, limits)[0].tick()  # four slots
    hire(scene, replace(limits, slots=2))[0].tick()
    company = Company(scene.store, WorkerId("me"), limits, scene.clock.offset_seconds)
    rows = []
    for total, done in ((1, 0), (1, 0), (1, 0), (3, 2), (3, 0)):
        scene.clock.advance(0.001)
        row = scene.row(scene.submit(tasks=1))
        rows.append(replace(row, tasks=replace(row.tasks, total=total, done=done)))
    company.look()
    assert company.to_hand_over(rows) == [], "not in each tick"
    scene.clock.advance(limits.tick_seconds)
    assert company.to_hand_over(rows) == rows[:0:-1], "none is left for the first"
    assert company.to_hand_over(rows) == []
