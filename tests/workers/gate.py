"""A gate that real programs wait at: a file lock, so that they block in the kernel, as a hang does.

Who arrives leaves a file; nobody polls but the test, and it only asks whether somebody is there.
"""

import fcntl
import os
import uuid
from pathlib import Path


class Gate:
    """The test's side. Closed from the start."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self._lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    @property
    def arrived(self) -> int:
        return len(list(self.folder.glob("at-*")))

    def open(self) -> None:
        """For everybody, and for good."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def wait_at(folder: Path) -> None:
    """The program's side: says that it is here, and goes on once the gate is open."""
    (folder / f"at-{uuid.uuid4()}").touch()
    with (folder / "lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
