"""What breaks things: one strike after the other, each from its act of the schedule, each undone by itself.

Strikes overlap where their times do, but no two on the same thing.
"""

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from support.chaos.fleet import Fleet, Kept
from support.chaos.schedule import NETWORKS, WAYS, Act
from support.chaos.world import LEASE_SECONDS, World
from support.network_proxy import Fault, Mode

_AT_ONCE = 4
_LATE_SECONDS = 10.0


class Nemesis:
    def __init__(self, world: World, fleet: Fleet) -> None:
        self._world, self._fleet, self._diary = world, fleet, world.diary
        self._busy: set[str] = set()
        self._lock = threading.Lock()
        self.problems: list[str] = []

    def run(self, acts: tuple[Act, ...], over: threading.Event) -> None:
        """Each at its time; returns when the last is undone."""
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="chaos-nemesis") as pool:
            for act in acts:
                if over.wait(max(0.0, act.at - self._diary.now())):
                    return
                pool.submit(self._strike, act)

    def heal(self) -> None:
        """Whatever was left broken."""
        for proxy in self._world.proxies.values():
            proxy.heal()
        for one in self._fleet.all:
            one.signal_all(signal.SIGCONT)
            if one.disk is not None:
                one.disk.make_room()
            if one.clock is not None:
                one.clock.set(0)

    def _strike(self, act: Act) -> None:
        if self._diary.now() > act.at + _LATE_SECONDS:
            return  # others took long, on a busy machine
        try:
            strike: Callable[[random.Random], None] = getattr(self, f"_{act.verb}")
            strike(act.random)
        except Exception as error:  # noqa: BLE001 - the run goes on, and fails in the end
            self.problems.append(f"the nemesis {act.verb} failed: {type(error).__name__}: {error}")

    @contextmanager
    def _alone(self, name: str) -> Iterator[bool]:
        """False if something else is at it."""
        with self._lock:
            free = name not in self._busy
            if free:
                self._busy.add(name)
        try:
            yield free
        finally:
            if free:
                with self._lock:
                    self._busy.discard(name)

    # -- programs -----------------------------------------------------------------------------------

    def _kill_worker(self, chance: random.Random) -> None:
        """The driver alone: its JVM and its tasks notice by themselves."""
        self._end(chance.choice(self._fleet.workers), "kill")

    def _kill_machine(self, chance: random.Random) -> None:
        """The driver, its JVM and every task, at one moment."""
        self._end(chance.choice(self._fleet.workers), "kill", every=True)

    def _kill_server(self, chance: random.Random) -> None:
        self._end(self._fleet.server, "kill")

    def _terminate_worker(self, chance: random.Random) -> None:
        self._end(chance.choice(self._fleet.workers), "terminate")

    def _end(self, one: Kept, how: str, *, every: bool = False) -> None:
        with self._alone(one.name) as free:
            if not free or one.program is None or not one.program.running:
                return
            with self._diary.during(one.name, how, "with its JVM and its tasks" if every else ""):
                one.ending = True
                if every:
                    one.signal_all(signal.SIGKILL)
                else:
                    one.signal(signal.SIGKILL if how == "kill" else signal.SIGTERM)
                self._diary.count("kills" if how == "kill" else "terminations")
                self._wait_for_a_new_life(one, one.lives)

    def _wait_for_a_new_life(self, one: Kept, life: int) -> None:
        until = time.monotonic() + 3 * LEASE_SECONDS
        while one.lives == life and time.monotonic() < until:
            time.sleep(0.1)

    def _stop_worker(self, chance: random.Random) -> None:
        self._stop(chance.choice(self._fleet.workers), chance, every=False)

    def _stop_machine(self, chance: random.Random) -> None:
        self._stop(chance.choice(self._fleet.workers), chance, every=True)

    def _stop_server(self, chance: random.Random) -> None:
        self._stop(self._fleet.server, chance, every=True)

    def _stop(self, one: Kept, chance: random.Random, *, every: bool) -> None:
        with self._alone(one.name) as free:
            if not free:
                return
            seconds = LEASE_SECONDS * chance.uniform(1.2, 2.2)
            send = one.signal_all if every else one.signal
            with self._diary.during(
                one.name, "stop", f"{seconds:.1f} s{', the whole machine' if every else ''}"
            ):
                self._diary.count("stops")
                send(signal.SIGSTOP)
                time.sleep(seconds)
                one.signal_all(signal.SIGCONT)

    def _full_disk(self, chance: random.Random) -> None:
        one = chance.choice(self._fleet.workers)
        with self._alone(f"disk of {one.name}") as free:
            if not free or one.disk is None or not one.disk.small:
                return
            with self._diary.during(one.name, "full disk"):
                self._diary.count("full disks")
                one.disk.fill()
                time.sleep(chance.uniform(2.0, 6.0))
                one.disk.make_room()

    def _clock_jump(self, chance: random.Random) -> None:
        """Minutes, within what signatures of S3 requests allow."""
        one = self._fleet.workers[0]
        with self._alone("clock") as free:
            if not free or one.clock is None:
                return
            jump = chance.choice((-1, 1)) * chance.randrange(60, 300)
            with self._diary.during(one.name, "clock", f"{jump:+d} s"):
                self._diary.count("clock jumps")
                one.clock.set(jump)
                time.sleep(chance.uniform(5.0, 15.0))
                one.clock.set(0)

    # -- networks and services ----------------------------------------------------------------------

    def _network(self, chance: random.Random) -> None:
        name, way, seconds = chance.choice(NETWORKS), chance.choice(WAYS), chance.uniform(1.0, 8.0)
        with self._alone(name) as free:
            if not free:
                return
            proxy = self._world.proxies[name]
            before = proxy.counts.cut
            with self._diary.during(name, way):
                if way in ("cut", "refuse"):
                    self._diary.count("connections cut", proxy.cut_open())
                proxy.set(_fault(way, chance))
                time.sleep(seconds)
                if way == "half_open":
                    self._diary.count("half-open connections", proxy.counts.open)
                    proxy.cut_open()
                proxy.heal()
            ended = proxy.counts.cut - before
            self._diary.count("lost answers" if way == "lost_answers" else "connections cut", ended)
            self._diary.count(f"network: {way}")

    def _restart_s3(self, chance: random.Random) -> None:
        self._restart("s3", self._world.s3.kill, self._world.s3.start, chance)

    def _restart_postgres(self, chance: random.Random) -> None:
        self._restart("postgres", self._world.postgres.stop, self._world.postgres.start, chance)

    def _restart_clickhouse(self, chance: random.Random) -> None:
        self._restart("clickhouse", self._world.clickhouse.kill, self._world.clickhouse.start, chance)

    def _restart(
        self, name: str, stop: Callable[[], None], start: Callable[[], None], chance: random.Random
    ) -> None:
        with self._alone(name) as free:
            if not free:
                return
            with self._diary.during(name, "restart"):
                self._diary.count("restarts of services")
                stop()
                time.sleep(chance.uniform(0.0, 5.0))
                start()


def _fault(way: str, chance: random.Random) -> Fault:
    match way:
        case "refuse":
            return Fault(mode=Mode.REFUSE)
        case "half_open":
            return Fault(mode=Mode.BLACK_HOLE)
        case "delay":
            return Fault(delay_seconds=chance.uniform(0.05, 0.6))
        case "lost_answers":  # what was asked for is done, and nobody hears of it
            return Fault(reset_answer_after_bytes=0)
        case _:
            return Fault(cut_answer_after_bytes=chance.randrange(1, 5_000))
