"""What a program's JVM has on the disk: its log, and a folder for Spark's own files. Both are of the program's temporary folder,
and the next program that starts a JVM removes what a killed one left.

Spark itself would put its blocks, shuffles and artifacts into /tmp, whatever TMPDIR says, and after a SIGKILL nobody
would ever remove them: those of a sort are as large as what is sorted.
"""

import fcntl
import os
import re
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

KEEP_LOGS_DAYS = 7
_PREFIX = "calve-spark-"
_FOLDER = re.compile(rf"{_PREFIX}\d+-\w+")  # of a program: its number, and what is its own


def log_file(pid: int | str) -> Path:
    """What the JVM of a program logs, the errors of executors among it."""
    return Path(tempfile.gettempdir()) / f"{_PREFIX}{pid}.log"


class JvmFolder:
    """For the files of one JVM. It is locked for as long as its program lives, whatever its number is elsewhere."""

    def __init__(self) -> None:
        self.path, self._lock = self._made()
        while not self.path.exists():  # a sweeper took it between its making and its locking
            os.close(self._lock)
            self.path, self._lock = self._made()

    def _made(self) -> tuple[Path, int]:
        # If we die here or later, the next program that starts a JVM removes it.
        path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return path, descriptor

    def options(self) -> list[str]:
        """Options of the JVM. A path with a space would be taken for two options."""
        return [] if " " in str(self.path) else [f"-Djava.io.tmpdir={self.path}"]

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def sweep(folder: Path) -> None:
    """Remove what is left of programs that have ended: their JVMs' folders, and logs, which are kept for a while."""
    for path in folder.glob(f"{_PREFIX}*/"):
        with suppress(OSError):  # it is in use, another program removed it, or it is another user's
            if _FOLDER.fullmatch(path.name):
                _remove_unlocked(path)
    oldest = time.time() - KEEP_LOGS_DAYS * 86400
    for log in folder.glob(f"{_PREFIX}*.log"):
        pid = log.stem.rpartition("-")[2]
        with suppress(OSError):
            if pid.isdigit() and not _runs(int(pid)) and log.stat().st_mtime < oldest:
                remove_log(log)


def _remove_unlocked(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(descriptor)


def remove_log(log: Path) -> None:
    """And the older pieces beside it that log4j made."""
    for piece in (log, *log.parent.glob(f"{log.name}.[0-9]")):
        with suppress(OSError):  # another program was first
            piece.unlink()


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is another user's
    return True
