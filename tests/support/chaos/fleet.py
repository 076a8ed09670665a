"""Calve's own programs, each started again when it ends, as systemd does it; and their whole trees of processes.

What belongs to a program is found by a mark in its environment: Spark's JVM and the engines are in sessions of their
own, and outlive a killed driver for a while.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from calve.app.token_file import read_token
from support.chaos.diary import Span
from support.chaos.jumping_clock import JumpingClock, jumping_clock
from support.chaos.world import Disk, World
from support.programs import Program

_MARK = "CALVE_CHAOS_PROGRAM"  # not in any section: calve ignores it
_LOOK_SECONDS = 0.2
_RESTART_SECONDS = 0.5
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@dataclass(kw_only=True)
class Kept:
    """One program, over all its lives."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    log: Path
    mark: str
    disk: Disk | None = None
    clock: JumpingClock | None = None
    program: Program | None = None
    lives: int = 0
    wanted: bool = True
    codes: list[int] = field(default_factory=list)  # of lives that ended by themselves
    ending: bool = False  # the next end is a nemesis's
    span: Span | None = None

    def pids(self) -> list[int]:
        """Of the program and of everything that it started, however deep."""
        text = f"{_MARK}={self.mark}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    if text in (entry / "environ").read_bytes().split(b"\0") and _runs(entry):
                        found.append(int(entry.name))
        return found

    def signal_all(self, number: signal.Signals) -> int:
        pids = self.pids()
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return len(pids)

    def signal(self, number: signal.Signals) -> None:
        """To the program alone."""
        if self.program is not None and self.program.running:
            with suppress(ProcessLookupError):
                self.program.send(number)


def _runs(entry: Path) -> bool:
    return (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z"


class Fleet:
    """Workers and a server. Use it as a context manager."""

    def __init__(
        self,
        world: World,
        disks: list[Disk],
        command: tuple[str, ...],
        run_id: str,
        *,
        jumping_clock: bool = True,  # of the first worker
    ) -> None:
        self.world, self.diary, self._jumping_clock = world, world.diary, jumping_clock
        self.workers = [self._worker(number, disk, command, run_id) for number, disk in enumerate(disks)]
        self.server = self._server(run_id)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="chaos-fleet", daemon=True)

    @property
    def all(self) -> list[Kept]:
        return [*self.workers, self.server]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.world.serve_port}"

    def token(self) -> str:
        return read_token(self.world.folder / "calve.token")

    def __enter__(self) -> "Fleet":
        for one in self.all:
            self._start(one)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for one in self.all:
            one.signal_all(signal.SIGCONT)
            if one.program is not None:
                one.program.kill()
            one.signal_all(signal.SIGKILL)

    def stop(self, seconds: float) -> list[str]:
        """SIGTERM to all, and what is wrong with how they end."""
        faults = []
        for one in self.all:
            one.wanted, one.ending = False, True
            one.signal(signal.SIGTERM)
        until = time.monotonic() + seconds
        for one in self.all:
            while one.program is not None and one.program.running and time.monotonic() < until:
                time.sleep(_LOOK_SECONDS)
            if one.program is not None and one.program.running:
                faults.append(f"{one.name} did not end within {seconds:.0f} s of SIGTERM, see {one.log}")
                one.signal(signal.SIGABRT)  # every thread's stack goes into its log
            elif one.program is not None and (code := one.program.wait()) != 0:
                faults.append(f"{one.name} ended with exit code {code} after SIGTERM, see {one.log}")
        return faults

    def left(self) -> list[str]:
        """Processes that outlived their program."""
        found = []
        for one in self.all:
            for pid in one.pids():
                with suppress(OSError):
                    words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:120]
                    found.append(f"{one.name}: {pid} {words}")
        return found

    def _worker(self, number: int, disk: Disk, command: tuple[str, ...], run_id: str) -> Kept:
        name = f"worker {number}"
        environment = {
            "TMPDIR": str(disk.folder),
            "SPARK_SUBMIT_OPTS": QUICK_JVM,
            "SPARK_LAUNCHER_OPTS": QUICK_JVM,
        }
        clock = None
        if number == 0 and self._jumping_clock:
            clock = jumping_clock(self.world.folder)
            if clock is None:
                self.diary.remark("there is no C compiler here: no clock was set")
            else:
                environment |= clock.environment
        return self._kept(name, (*command, "worker"), environment, run_id, disk=disk, clock=clock)

    def _server(self, run_id: str) -> Kept:
        folder = self.world.folder / "server-tmp"
        folder.mkdir()
        command = (sys.executable, "-m", "calve.cli", "--config", str(self.world.config), "serve")
        return self._kept("server", command, {"TMPDIR": str(folder)}, run_id)

    def _kept(
        self,
        name: str,
        command: tuple[str, ...],
        environment: Mapping[str, str],
        run_id: str,
        *,
        disk: Disk | None = None,
        clock: JumpingClock | None = None,
    ) -> Kept:
        mark = f"{run_id}-{name.replace(' ', '-')}"
        log = self.world.folder / f"{name.replace(' ', '-')}.log"
        return Kept(
            name=name,
            command=command,
            environment={**environment, _MARK: mark, "PYTHONFAULTHANDLER": "1"},
            log=log,
            mark=mark,
            disk=disk,
            clock=clock,
        )

    def _start(self, one: Kept) -> None:
        one.lives += 1
        one.ending = False
        one.program = Program(one.name, one.command, one.log, one.environment)
        one.span = self.diary.begin(one.name, "up")

    def _look(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            for one in self.all:
                if one.program is not None and not one.program.running:
                    self._ended(one)

    def _ended(self, one: Kept) -> None:
        assert one.program is not None
        if one.span is not None:
            self.diary.end(one.span)
        if not one.wanted:
            return
        if not one.ending:
            code = one.program.wait()
            one.codes.append(code)
            self.diary.count("ends by themselves")
            self.diary.end(self.diary.begin(one.name, "ended", f"exit code {code}"))
        one.program.kill()
        if not self._over.wait(_RESTART_SECONDS):
            self._start(one)
