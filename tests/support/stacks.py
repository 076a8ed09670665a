"""Where the programs of a test hang, said when the test runs out of time.

SIGABRT ends a Python program, and its faulthandler writes the stack of each thread to its standard error first:
`tests/conftest.py` sets PYTHONFAULTHANDLER for every child.
"""

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_END_SECONDS = 5.0
_MOST_BYTES = 40_000  # of one program
_ONLY_START_OTHERS = ("support.zygote", "leash.py")


def now() -> float:
    """The time of this machine, as processes are born in it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def of_children(born_after: float) -> str:
    """What the Python programs that were started below this one since then were at. It ends them."""
    return "\n".join(_ended(pid) for pid in _programs(os.getpid(), born_after))


def _programs(parent: int, born_after: float) -> Iterator[int]:
    """Each program that was started, not what it started itself: that ends with it."""
    for pid in sorted(_children(parent)):
        with suppress(OSError):
            command = (
                Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            )
            name = Path(f"/proc/{pid}/exe").readlink().name
            is_python = name.startswith("python")
            of_ours = parent == os.getpid() and any(word in command for word in _ONLY_START_OTHERS)
            if is_python and not of_ours:
                if _born(pid) >= born_after:
                    yield pid
            elif name != "java":
                yield from _programs(pid, born_after)


def _children(parent: int) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if int(_stat(int(entry.name))[1]) == parent:
                    yield int(entry.name)


def _stat(pid: int) -> list[str]:
    """From its state on: the name before it may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _born(pid: int) -> float:
    return int(_stat(pid)[19]) / os.sysconf("SC_CLK_TCK")


def _ended(pid: int) -> str:
    command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    said = b""
    with suppress(OSError):
        ended, errors = os.pidfd_open(pid), -1
        try:
            # A file is opened anew; of a pipe this is another end to read from, while its reader waits in this handler.
            errors = os.open(f"/proc/{pid}/fd/2", os.O_RDONLY | os.O_NONBLOCK)
            with suppress(OSError):
                os.lseek(errors, 0, os.SEEK_END)
            os.kill(pid, signal.SIGABRT)
            select.select([ended], [], [], _END_SECONDS)
            said = os.read(errors, _MOST_BYTES)
        finally:
            for descriptor in (ended, errors):
                if descriptor >= 0:
                    os.close(descriptor)
    return f"process {pid}, {command}\n{said.decode('utf-8', 'replace') or 'said nothing when it was ended'}"
