"""A year, run and judged."""

from dataclasses import dataclass

from support.simulator.schedule import Stuck
from support.year.world import Broken, YearCase, YearWorld


@dataclass(frozen=True, kw_only=True)
class YearVerdict:
    case: YearCase
    problems: tuple[str, ...]
    trace: str
    faults: tuple[str, ...]  # those that were met
    actions: tuple[str, ...]
    processes: dict[str, int]  # that ended well, by kind
    checks: int

    @property
    def ok(self) -> bool:
        return not self.problems


def run(case: YearCase) -> YearVerdict:
    world = YearWorld(case)
    with world.opened():
        try:
            world.live()
        except Stuck as stuck:
            world.problems.append(str(stuck))
        except Broken:
            pass
        world.problems += [f"{type(error).__name__}: {error}" for error in world.schedule.failures]
        world.problems += defects(world)
        kinds: dict[str, int] = {}
        for one in world.installations:
            for row in one.processes():
                if row.state.value == "COMPLETED":
                    kinds[row.kind] = kinds.get(row.kind, 0) + 1
        return YearVerdict(
            case=case,
            problems=tuple(dict.fromkeys(world.problems)),
            trace=world.schedule.trace.hexdigest(),
            faults=tuple(world.weather.met),
            actions=tuple(world.script.done),
            processes=kinds,
            checks=world.ledger.checks,
        )


def defects(world: YearWorld) -> list[str]:
    """What no fault explains: an error that nobody wrote down."""
    return [
        f"a {row.kind} ended by a defect: {row.error.message[:200]}"
        for one in world.installations
        for row in one.processes()
        if row.error is not None and row.error.code == "internal"
    ]
