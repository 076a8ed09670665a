"""A limit on what a worker uploads: all programs of one machine that upload for it share one clock.

The clock is a file beside the programs' temporary files. It holds the time at which the next byte may go, on the
machine's monotonic clock, which all its programs agree about. Whoever wants to send takes the file's lock, moves
the time on by as long as the bytes may take, and waits for its turn. A program that dies while it waits has used
bandwidth that no byte went through, and hurts nobody.
"""

import fcntl
import os
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

PIECE_BYTES = 1 << 20
_LONGEST_SECONDS = 600.0  # a time further ahead was left by a machine that has been started anew
_KEPT_SECONDS = 86_400.0
_TIME = struct.Struct("d")


class Pace:
    """`given` is "<MB a second>@<whose>": what `tasks.attempts.upload_pace` made."""

    def __init__(
        self,
        given: str,
        folder: Path | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        rate, _, whose = given.partition("@")
        self._bytes_per_second = float(rate) * 1_000_000
        folder = folder or Path(tempfile.gettempdir())
        self.file = folder / f"calve-pace-{os.getuid()}-{whose.replace('/', '_')}"
        self._monotonic = monotonic
        self._sleep = sleep
        _forget_old(folder)

    def pieces(self, source: BinaryIO) -> Iterator[bytes]:
        """What is read, each piece when it may be sent."""
        while piece := source.read(PIECE_BYTES):
            self.take(len(piece))
            yield piece

    def take(self, count: int) -> None:
        """Return when so many bytes may be sent."""
        handle = os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            now = self._monotonic()
            free = free_at(os.pread(handle, _TIME.size, 0))
            start = free if now < free < now + _LONGEST_SECONDS else now
            os.pwrite(handle, _TIME.pack(start + count / self._bytes_per_second), 0)
        finally:
            os.close(handle)
        self._sleep(start - now)


def free_at(stored: bytes) -> float:
    """The time that a clock's file holds: when the next byte may go."""
    return float(_TIME.unpack(stored)[0]) if len(stored) == _TIME.size else 0.0


def _forget_old(folder: Path) -> None:
    """Clocks that nobody has moved for a day: their workers have ended, or do not upload."""
    oldest = time.time() - _KEPT_SECONDS
    for file in folder.glob(f"calve-pace-{os.getuid()}-*"):
        try:
            if file.stat().st_mtime < oldest:
                file.unlink()
        except OSError:
            continue  # another program was first
