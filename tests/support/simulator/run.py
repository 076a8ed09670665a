"""A seed, run and judged; and a failing one made small."""

from dataclasses import dataclass

from support.simulator.check import check
from support.simulator.schedule import Stuck
from support.simulator.world import Case, World


@dataclass(frozen=True, kw_only=True)
class Verdict:
    case: Case
    problems: tuple[str, ...]
    trace: str
    faults: tuple[str, ...]  # those that were met
    actions: tuple[str, ...]
    processes: int
    seconds: float  # of virtual time
    steps: int

    @property
    def ok(self) -> bool:
        return not self.problems


def run(case: Case) -> Verdict:
    world = World(case)
    with world.opened():
        problems: list[str] = []
        try:
            world.live()
        except Stuck as stuck:
            problems.append(str(stuck))
        problems += check(world)
        return Verdict(
            case=case,
            problems=tuple(problems),
            trace=world.schedule.trace.hexdigest(),
            faults=tuple(world.weather.met),
            actions=tuple(world.script.done),
            processes=len(world.processes()),
            seconds=world.schedule.now,
            steps=world.schedule.steps,
        )
