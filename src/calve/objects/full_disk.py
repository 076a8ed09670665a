"""A worker's or executor's own disk without room: one error, wherever it is met.

It may go away by itself, so it is temporary; it is nobody's outage, so it uses the task's budget.
"""

import errno
import os
import shutil
from pathlib import Path

from calve.model.errors import TemporaryError

CODE = "disk_full"
# EFBIG: a limit on the size of files says no in other words.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def is_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in _FULL


def full_disk(path: str | Path, cause: str) -> TemporaryError:
    """`path` is what could not be written, or the folder for such files."""
    return TemporaryError(
        f"no room on this worker's disk for {path}{_free(Path(path))}: {cause}",
        code=CODE,
        hint="make room there, or set TMPDIR of the workers and executors to a larger disk; the task is"
        " tried again by itself, and `calve retry` goes on where it stopped",
    )


def as_full_disk(error: OSError, folder: Path) -> TemporaryError:
    """For an error that `is_full`."""
    return full_disk(error.filename or folder, error.strerror or os.strerror(error.errno or errno.ENOSPC))


def _free(path: Path) -> str:
    for folder in (path, *path.parents):
        try:
            return f" ({shutil.disk_usage(folder).free / 1e6:.0f} MB are free)"
        except OSError:
            continue  # it is gone, or not ours to see: its parent tells as much
    return ""
