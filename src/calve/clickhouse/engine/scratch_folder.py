"""Scratch folders that outlive no process: each is locked by its process, and swept once it is not.

Locks, not process ids: an id is reused, and means nothing across containers that share a
temporary folder. The lock file stands beside its folder and is taken before the folder is
made, so a folder without a held lock always belongs to the dead.
"""

import fcntl
import os
import secrets
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

_PREFIX = "calve-engine-"
_LOCK_SUFFIX = ".lock"


@dataclass(frozen=True, kw_only=True)
class ScratchFolder:
    """A folder of this process, locked until `remove` or the process's end."""

    path: Path
    lock_path: Path
    lock: int
    owner: int  # the process: a fork that exits must not remove its parent's folder

    def remove(self) -> None:
        """Take the folder away; twice is harmless."""
        if os.getpid() != self.owner:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        self.lock_path.unlink(missing_ok=True)


def _root() -> Path:
    return Path(tempfile.gettempdir())


def _prefix() -> str:
    return f"{_PREFIX}{os.getuid()}-"


def make() -> ScratchFolder:
    """Make a folder that only this user can read, under a lock that ends with this process."""
    while True:
        path = _root() / f"{_prefix()}{secrets.token_hex(8)}"
        lock_path = path.with_name(path.name + _LOCK_SUFFIX)
        lock = os.open(lock_path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _names(lock_path, lock):
            os.close(lock)  # a sweeper took the file between its making and its locking
            continue
        # if we die here, the lock file alone is left, and swept
        path.mkdir(mode=0o700)
        return ScratchFolder(path=path, lock_path=lock_path, lock=lock, owner=os.getpid())


def sweep() -> list[Path]:
    """Remove this user's folders whose process has ended; says which."""
    swept: list[Path] = []
    for lock_path in _root().glob(f"{_prefix()}*{_LOCK_SUFFIX}"):
        try:
            lock = os.open(lock_path, os.O_RDWR)
        except FileNotFoundError:
            continue  # another sweeper was faster
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path = lock_path.with_name(lock_path.name.removesuffix(_LOCK_SUFFIX))
            shutil.rmtree(path, ignore_errors=True)
            if not path.exists():
                lock_path.unlink(missing_ok=True)
                swept.append(path)
        except BlockingIOError:
            pass  # its process lives
        finally:
            os.close(lock)
    return swept


def _names(path: Path, descriptor: int) -> bool:
    """Whether the path still is the file that the descriptor holds."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
