"""What goes wrong, and how often: decided by the seed for each call of each service.

Each fault has a name, "catalog.commit#7": the seventh such call of the history. A run can be told to keep only some of
them, which is how a failing one is made small.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from calve.testing.faults import Crash
from support.simulator.schedule import Program, Schedule

T = TypeVar("T")


class Fault(StrEnum):
    FAILED = "failed"  # not applied, and said so
    LOST = "lost"  # applied, and no answer
    DROPPED = "dropped"  # not applied, and no answer
    LATE = "late"  # no answer; applied later, maybe twice
    SLOW = "slow"  # the answer takes longer than a lease
    REFUSED = "refused"  # by the service, for good
    REPEATED = "repeated"  # applied, and sent once more by a proxy: the second answer comes back
    STALE = "stale"  # what was there a moment ago
    DIES_BEFORE = "dies before"
    DIES_AFTER = "dies after"
    STOPS = "stops"  # SIGSTOP before the call, for longer than a lease


OF_A_PROGRAM = (Fault.DIES_BEFORE, Fault.DIES_AFTER, Fault.STOPS, Fault.SLOW)
# What each kind of call can meet beside them.
OF_A_CALL: Mapping[str, tuple[Fault, ...]] = {
    "store.write": (Fault.FAILED, Fault.LOST),
    "store.read": (Fault.FAILED,),
    "catalog.load": (Fault.FAILED, Fault.STALE),
    "catalog.commit": (
        Fault.LATE,
        Fault.LATE,
        Fault.LOST,
        Fault.DROPPED,
        Fault.FAILED,
        Fault.REFUSED,
        Fault.REPEATED,
    ),
    "catalog.other": (Fault.FAILED, Fault.LOST),
    "objects.write": (Fault.FAILED, Fault.LOST, Fault.LATE),
    "objects.manifest": (Fault.FAILED, Fault.LOST, Fault.LATE),  # of a backup, in a storm that is aimed at it
    "objects.read": (Fault.FAILED,),
    "objects.delete": (Fault.FAILED, Fault.LOST),
    "source.pin": (Fault.FAILED, Fault.LOST),
    "source.release": (Fault.FAILED, Fault.LOST),
    "source.read": (Fault.FAILED,),
    "source.execute": (Fault.FAILED, Fault.LOST),
    "source.write": (Fault.FAILED, Fault.LOST),  # SQL, of a year of tiering
    "source.move": (Fault.FAILED, Fault.LOST, Fault.LATE),
}
FOR_EVER = float("inf")
# What is called seldom and matters most meets faults more often.
WEIGHTS = {
    "catalog.commit": 50.0,
    "catalog.load": 3.0,
    "catalog.other": 5.0,
    "objects.write": 4.0,
    "objects.read": 2.0,
    "objects.delete": 5.0,
    "source.pin": 8.0,
    "source.release": 5.0,
    "source.write": 3.0,
    "source.move": 30.0,
}
MOST = 0.5
SLOW_SECONDS = 40.0
STOP_SECONDS = 75.0  # more than two leases


@dataclass
class Weather:
    """`rate` is the chance of a fault in a call, weighed by its kind; 0 is a quiet history. `rates`, where given,
    are the chances of those kinds of calls, and no other fails: a storm that is aimed at one place."""

    schedule: Schedule
    rate: float
    faults: frozenset[Fault]
    rates: Mapping[str, float] = field(default_factory=dict)
    kept: frozenset[str] | None = None
    watchers: list[Callable[[str, Fault], None]] = field(default_factory=list)  # told of each fault
    stormy: bool = True
    met: list[str] = field(default_factory=list)
    outages: dict[str, float] = field(default_factory=dict)  # a service that answers nobody, until then
    later: list[tuple[float, Callable[[], object]]] = field(default_factory=list)

    def is_down(self, service: str) -> bool:
        return self.outages.get(service, 0.0) > self.schedule.now

    def keeps(self, name: str) -> bool:
        """Whether this fault is to happen; noted."""
        if self.kept is not None and name not in self.kept:
            return False
        self.met.append(name)
        return True

    def fault(self, call: str) -> Fault | None:
        schedule = self.schedule
        if schedule.current is None or not self.stormy:
            return None
        name, chance = schedule.draw(call)
        rate = self.rates.get(call, 0.0) if self.rates else min(self.rate * WEIGHTS.get(call, 1.0), MOST)
        if chance >= rate:
            return None
        choices = [
            fault for fault in (*OF_A_CALL[call], *OF_A_CALL[call], *OF_A_PROGRAM) if fault in self.faults
        ]
        if not choices or not self.keeps(name):
            return None
        fault = choices[int(chance / rate * len(choices))]
        schedule.tell(f"{call}: {fault}")
        for watch in self.watchers:
            watch(call, fault)
        return fault

    def call(
        self,
        kind: str,
        work: Callable[[], T],
        *,
        failed: Callable[[], Exception],
        lost: Callable[[], Exception] | None = None,
        refused: Callable[[], Exception] | None = None,
        stale: Callable[[], T] | None = None,
        latency: float = 0.0,
        service: str = "",
    ) -> T:
        """One call of a program to a service, as the weather has it. `work` is the effect, in one instant."""
        schedule = self.schedule
        schedule.refuse_dead()
        fiber = schedule.current
        if fiber is None:
            return work()
        if latency:
            schedule.sleep(latency)
        fault = self.fault(kind)
        lost = lost or failed
        if fault is Fault.DIES_BEFORE and self._dies(fiber.program):
            raise Crash(kind)
        if fault is Fault.STOPS:
            fiber.program.stopped_until = schedule.now + STOP_SECONDS
            schedule.sleep(0.0)
        if fault is Fault.SLOW:
            schedule.sleep(SLOW_SECONDS)
        if service and self.is_down(service):
            raise failed()
        match fault:
            case Fault.FAILED:
                raise failed()
            case Fault.REFUSED:
                raise (refused or failed)()
            case Fault.DROPPED:
                raise lost()
            case Fault.LATE:
                self._land_later(kind, work)
                raise lost()
            case _:
                pass
        with schedule.aside():
            answer = stale() if fault is Fault.STALE and stale is not None else work()
        if fault is Fault.LOST:
            raise lost()
        if fault is Fault.REPEATED:
            raise failed()
        if fault is Fault.DIES_AFTER and self._dies(fiber.program):
            raise Crash(kind)
        return answer

    def _dies(self, program: Program) -> bool:
        if not program.name.startswith("worker"):
            return False  # Spark's own deaths are `spark`'s
        self.schedule.kill(program)
        return True

    def _land_later(self, kind: str, work: Callable[[], T]) -> None:
        """A request under way: it arrives seconds or minutes later, and once more where a proxy repeats it."""
        chance = self.schedule.random(f"late/{self.schedule.draw('late')[0]}")
        for _ in range(chance.choice((1, 1, 2))):
            self.later.append((self.schedule.now + chance.choice((2.0, 30.0, 120.0)), work))

    def land(self, all_of_them: bool = False) -> None:
        """What is due of them, now."""
        now = self.schedule.now
        due = [one for one in self.later if all_of_them or one[0] <= now]
        self.later = [one for one in self.later if one not in due]
        for _, work in due:
            with self.schedule.aside():
                try:
                    work()
                    self.schedule.tell("a late request lands")
                except Exception as error:  # noqa: BLE001 - the service refuses it, and nobody listens
                    self.schedule.tell(f"a late request is refused: {type(error).__name__}")

    def clear(self) -> None:
        """From here on nothing goes wrong; what is under way still arrives."""
        self.stormy = False
        self.outages = {service: until for service, until in self.outages.items() if until == FOR_EVER}
