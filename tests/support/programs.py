"""Programs that tests start: on free loopback ports, without a shell, ended for certain.

A program's output goes to a file, never to a pipe that could fill up. What it printed last is
in the error when it does not start.
"""

import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from calve.model.errors import PermanentError, UsageError
from support import zygote

_LEASH = Path(__file__).with_name("leash.py")
_LOOK_SECONDS = 0.05
_OUTPUT_SHOWN = 2000
_FIRST_PORT = 12_000
_EPHEMERAL = 32_768  # from here on the kernel hands them out
_ports = itertools.count(os.getpid() * 7919)  # a prime: programs that start one after the other are far apart


class Program:
    """A running program. Its process id is the program's own, not the leash's."""

    def __init__(
        self, name: str, command: Sequence[str], output: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.output = output
        self._leash: subprocess.Popen[bytes] | zygote.Forked
        with output.open("ab") as sink:
            self._start(command, sink.fileno(), environment or {})

    def _start(self, command: Sequence[str], errors: int, environment: Mapping[str, str]) -> None:
        # if we die here or later, the leash sees its input end and kills the program
        self._leash = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_LEASH), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, **environment},
        )
        assert self._leash.stdout is not None
        first = self._leash.stdout.readline()
        if not first:
            raise self._failed("could not be started")
        self.pid = int(first)

    @property
    def running(self) -> bool:
        return self._leash.poll() is None

    def read_line(self) -> str:
        """The next line of the program's standard output, which the leash shares with it."""
        assert self._leash.stdout is not None
        line = self._leash.stdout.readline()
        if not line:
            raise self._failed("ended before it said that it is ready")
        return line.decode().rstrip("\n")

    def read_all(self) -> str:
        """The rest of the program's standard output, to its end."""
        assert self._leash.stdout is not None
        return self._leash.stdout.read().decode()

    def wait(self, seconds: float = 60.0) -> int:
        """Its exit code, once it has ended by itself."""
        try:
            return self._leash.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self._failed(f"did not end within {seconds:.0f} s") from None

    def wait_ready(self, ready: Callable[[], bool], seconds: float = 60.0) -> None:
        """Return once `ready` says so. The one place that polls: no program tells us by itself."""
        until = time.monotonic() + seconds
        while not ready():
            if not self.running:
                raise self._failed("ended before it was ready")
            if time.monotonic() > until:
                self.kill()
                raise self._failed(f"was not ready within {seconds:.0f} s")
            time.sleep(_LOOK_SECONDS)

    def send(self, number: signal.Signals) -> None:
        """A signal to the program alone: SIGSTOP, SIGCONT, SIGTERM."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL to the program and its children, awaited. Twice is harmless."""
        assert self._leash.stdin is not None and self._leash.stdout is not None
        self._leash.stdin.close()
        self._leash.wait()
        self._leash.stdout.close()

    def _failed(self, what: str) -> PermanentError:
        shown = self.output.read_bytes()[-_OUTPUT_SHOWN:].decode("utf-8", "replace").strip()
        return PermanentError(
            f"{self.name} {what}: {shown or 'it printed nothing'}",
            code="service_failed",
            hint=f"its output is in {self.output}",
        )


class ForkedProgram(Program):
    """A Python program of ours, forked in place of started: the command is a `module:function` and its arguments."""

    def __init__(
        self, name: str, command: Sequence[str], output: Path, environment: Mapping[str, str], cwd: Path
    ) -> None:
        self._cwd = str(cwd)
        super().__init__(name, command, output, environment)

    def _start(self, command: Sequence[str], errors: int, environment: Mapping[str, str]) -> None:
        ours, theirs = os.pipe()
        try:
            # if we die here or later, the zygote sees the connection end and kills the program
            self._leash = zygote.start(
                command[0], command[1:], stdout=theirs, stderr=errors, cwd=self._cwd, environment=environment
            )
        finally:
            os.close(theirs)
        self._leash.stdout = os.fdopen(ours, "rb")
        self.pid = self._leash.pid


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listens on, all different. The kernel gives none of them to a connection or to
    who asks for any port, so each stays free until its program binds it, also again after an outage; and each test
    program walks through them from a place of its own."""
    found: list[int] = []
    while len(found) < count:
        port = _FIRST_PORT + next(_ports) % (_EPHEMERAL - _FIRST_PORT)
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            found.append(port)
    return found


def listening(port: int) -> bool:
    """Whether somebody accepts connections on that port of the loopback."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True


def missing(program: str, install: str) -> UsageError:
    """The error for a program that is not on this machine."""
    return UsageError(
        f"{program} is not installed on this machine",
        code="service_missing",
        hint=install,
    )
