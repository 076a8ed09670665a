"""Virtual time and who runs in it. One thread: a fiber runs until it waits, so a seed is one history.

A program is what a crash takes down: a worker with all its fibers, or a person at a terminal. A dead program's
fibers meet `Crash` wherever they are, and no service hears of them again.
"""

import hashlib
import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import greenlet

from calve.testing.faults import Crash

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class Stuck(AssertionError):
    """The history does not end within its bound."""


@dataclass(eq=False)
class Program:
    name: str
    alive: bool = True
    stopped_until: float = 0.0  # SIGSTOP: its fibers wait, the world goes on


@dataclass(eq=False)
class Fiber:
    program: Program
    name: str
    run: greenlet.greenlet


@dataclass
class Schedule:
    """`now` is seconds since the beginning."""

    seed: int
    now: float = 0.0
    steps: int = 0
    most_steps: int = 2_000_000
    trace: "hashlib._Hash" = field(default_factory=hashlib.sha256)
    log: Callable[[str], None] | None = None  # tells every step, for a person

    def __post_init__(self) -> None:
        self._queue: list[tuple[float, float, int, Fiber]] = []
        self._numbers = 0
        self._draws: Counter[str] = Counter()
        self._order = random.Random(f"{self.seed}/order")
        self._main = greenlet.getcurrent()
        self.current: Fiber | None = None
        self.last: Program | None = None  # whose turn it is, also while a service works for it
        self.failures: list[BaseException] = []  # what ended a fiber that nothing may end

    # -- chance -------------------------------------------------------------------------------------

    def random(self, purpose: str) -> random.Random:
        """A source of chance of its own: what one purpose draws changes nothing for another."""
        return random.Random(f"{self.seed}/{purpose}")

    def draw(self, purpose: str) -> tuple[str, float]:
        """The name of this draw and its number in [0, 1): the same for the n-th of a purpose, whatever else
        happened. So a fault can be left out, and the others stay."""
        number = self._draws[purpose]
        self._draws[purpose] += 1
        name = f"{purpose}#{number}"
        digest = hashlib.blake2b(f"{self.seed}/{name}".encode(), digest_size=8).digest()
        return name, int.from_bytes(digest, "big") / 2**64

    # -- time ---------------------------------------------------------------------------------------

    def clock(self) -> datetime:
        return BEGIN + timedelta(seconds=self.now)

    def monotonic(self) -> float:
        return self.now

    def tell(self, text: str) -> None:
        """Part of the trace: two runs of a seed tell the same."""
        who = self.current.program.name if self.current else "world"
        line = f"{self.now:.6f} {who} {text}"
        self.trace.update(line.encode())
        if self.log is not None:
            self.log(line)

    def spawn(self, program: Program, name: str, work: Callable[[], None], after: float = 0.0) -> None:
        def run() -> None:
            try:
                work()
            except Crash:
                pass
            except Exception as error:  # noqa: BLE001 - told as a failure of the run
                self.failures.append(error)

        self._push(Fiber(program, name, greenlet.greenlet(run, self._main)), self.now + after)

    def sleep(self, seconds: float) -> None:
        """Let others run. Outside a fiber there is nobody to wait for."""
        fiber = self.current
        if fiber is None:
            return
        self._push(fiber, self.now + seconds)
        self._main.switch()
        self._refuse_dead(fiber)

    def wait(self, until: Callable[[], bool], seconds: float, step: float = 0.05) -> bool:
        """Until something holds, or the time is over."""
        end = self.now + seconds
        while not until():
            if self.now >= end or self.current is None:
                return False
            self.sleep(min(step, end - self.now))
        return True

    def run(self, until: float) -> None:
        """Everything that is due by then."""
        while self._queue and self._queue[0][0] <= until:
            at, _, _, fiber = heapq.heappop(self._queue)
            self.now = max(self.now, at)
            program = fiber.program
            if program.alive and program.stopped_until > self.now:
                self._push(fiber, program.stopped_until)
                continue
            self.steps += 1
            if self.steps > self.most_steps:
                raise Stuck(f"more than {self.most_steps} steps")
            self.current, self.last = fiber, program
            try:
                if not program.alive and not fiber.run:
                    continue  # it never began
                fiber.run.switch()
            finally:
                self.current = None
        self.now = max(self.now, until)

    def kill(self, program: Program) -> None:
        program.alive = False
        self.tell(f"{program.name} dies")

    def close(self) -> None:
        """What is left ends where it is."""
        while self._queue:
            fiber = heapq.heappop(self._queue)[3]
            fiber.program.alive = False
            if fiber.run:
                self.current = fiber
                fiber.run.throw(Crash("the history is over"))
                self.current = None

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Work of a service itself: it takes no time and meets no fault."""
        fiber, self.current = self.current, None
        try:
            yield
        finally:
            self.current = fiber

    def refuse_dead(self) -> None:
        if self.current is not None:
            self._refuse_dead(self.current)

    def _refuse_dead(self, fiber: Fiber) -> None:
        if not fiber.program.alive:
            raise Crash(fiber.program.name)

    def _push(self, fiber: Fiber, at: float) -> None:
        self._numbers += 1
        heapq.heappush(self._queue, (at, self._order.random(), self._numbers, fiber))
