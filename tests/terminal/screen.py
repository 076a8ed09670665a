"""Running a program on a pseudo-terminal of a chosen size, and what it drew there."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7][0-9;]*m|\x1b\[[0-9;]*38;[0-9;]*m")


@dataclass(frozen=True, kw_only=True)
class Drawn:
    raw: str

    @property
    def lines(self) -> list[str]:
        """Every line that was ever drawn, without control sequences."""
        plain = _CONTROL.sub("", self.raw)
        return [line.rstrip() for line in re.split(r"[\r\n]+", plain) if line.strip()]

    @property
    def coloured(self) -> bool:
        return _COLOUR.search(self.raw) is not None


def run(*command: str, columns: int, cwd: Path | None = None, **environ: str) -> Drawn:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("CALVE_") and name not in ("NO_COLOR", "COLUMNS", "LINES", "FORCE_COLOR")
    }
    program = subprocess.Popen(
        [sys.executable, *command], stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd,
        env=clean | {"TERM": "xterm-256color", "LANG": "C.UTF-8"} | environ,
    )  # fmt: skip
    os.close(theirs)
    drawn = _read_to_the_end(ours)
    os.close(ours)
    assert program.wait(60) == 0, drawn
    return Drawn(raw=drawn)


INTERRUPT = "\x03"
INTERRUPT_ITS_CHILD = f"{INTERRUPT} while it runs a child"


def talk(*command: str, answers: Sequence[str], prompt: str, cwd: Path, **environ: str) -> Drawn:
    """What was drawn while the answers were typed, each once the program asks for it; or, for one, once it has started
    a program of its own."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # tests that run in the background of a shell ignore it
        os.execve(
            sys.executable,
            [sys.executable, *command],
            {"TERM": "xterm", "PATH": os.environ["PATH"], **environ},
        )
    drawn = ""
    for answer in answers:
        if answer == INTERRUPT_ITS_CHILD:
            while not Path(f"/proc/{pid}/task/{pid}/children").read_text():
                time.sleep(0.01)
            os.write(terminal, INTERRUPT.encode())
            continue
        drawn += os.read(terminal, 65536).decode()  # at least the echo of the answer before
        while not _CONTROL.sub("", drawn).endswith(prompt):
            drawn += os.read(terminal, 65536).decode()
        os.write(terminal, answer.encode())
    drawn += _read_to_the_end(terminal)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, drawn
    return Drawn(raw=drawn)


def _read_to_the_end(terminal: int) -> str:
    pieces: list[bytes] = []
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the other side is closed: how Linux says that it ended
            piece = b""
        if not piece:
            return b"".join(pieces).decode()
        pieces.append(piece)
