"""Holds one program on a leash: it ends when whoever started it does, however that dies.

Run as a script by `support.programs`, never imported. Standard input is a pipe from the
owner; its end means that the owner is gone (SIGKILL included) or wants the program gone. The
program is a process group of its own, so that its children go too, and it dies with the
leash itself (PR_SET_PDEATHSIG), should somebody kill that.

Not PR_SET_PDEATHSIG alone: it fires when the *thread* that started the program ends, and a
service is often started from a thread.
"""

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys

_PR_SET_PDEATHSIG = 1


def _begin() -> None:
    """In the program, before it is one: its pid is told before anything that it prints itself."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.write(1, f"{os.getpid()}\n".encode())


def main(command: list[str]) -> int:
    """Run `command`, which prints its pid first; wait for its end or for the end of our input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal: the owner decides
    if shutil.which(command[0]) is None:
        raise FileNotFoundError(command[0])
    # if we die here or later, the program gets SIGKILL from the kernel
    program = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_begin,  # noqa: PLW1509 - this process has one thread
    )
    ended = os.pidfd_open(program.pid)
    select.select([ended, sys.stdin.fileno()], [], [])
    with contextlib.suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)  # its children too, also when it ended by itself
    return program.wait()


if __name__ == "__main__":
    code = main(sys.argv[1:])
    # A signal's number is passed on the way a shell does it.
    sys.exit(code if code >= 0 else 128 - code)
