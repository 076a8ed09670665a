"""Folders of the Python workers of a machine: scratch folders of one process, and folders that many share.

A scratch folder is locked by its process and swept once it is not. A shared folder is filled once, under
a lock, and used by many.

A lock on the folder itself says that it is in use; what nobody uses and nobody has used for a while
is swept. A lock ends with its process, however that ends, so nothing has to be tidied up after one.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from calve.model.errors import PermanentError

IDLE_SECONDS = 300.0  # after which a folder that nobody uses is swept
_WHOLE = "whole"


@contextmanager
def shared(key: str, fill: Callable[[Path], object]) -> Iterator[Path]:
    """The folder of that key, until the block ends. `fill` is called with a path to make it at, by
    one of those who want it at the same time; the others wait for that one. What it raises is raised,
    and leaves nothing."""
    sweep()
    folder = _root() / key
    descriptor = _entered(folder, fill)
    try:
        yield folder / _WHOLE
    finally:
        with contextlib.suppress(OSError):
            os.utime(folder)  # from now on it is idle
        os.close(descriptor)


def sweep(idle_seconds: float = IDLE_SECONDS) -> list[Path]:
    """Remove what has not been used for so long; return it."""
    if not _path().exists():
        return []
    swept = []
    for folder in _root().iterdir():
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            continue  # another sweeper was faster
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if time.time() - os.fstat(descriptor).st_mtime >= idle_seconds:
                # if we die here, what is left is not whole, or still whole: either is known by its name
                with contextlib.suppress(FileNotFoundError):
                    (folder / _WHOLE).rename(folder / _part_name())
                shutil.rmtree(folder, ignore_errors=True)
                swept.append(folder)
        except BlockingIOError:
            pass  # in use
        finally:
            os.close(descriptor)
    return swept


def _entered(folder: Path, fill: Callable[[Path], object]) -> int:
    """A descriptor that holds the folder, filled. Changing a lock lets it go for a moment, in which the
    folder may be swept: so after each change it is looked at again."""
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            if not (folder / _WHOLE).exists():
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if _is(folder, descriptor) and not (folder / _WHOLE).exists():
                    _fill(folder, fill)
                fcntl.flock(descriptor, fcntl.LOCK_SH)
            if _is(folder, descriptor) and (folder / _WHOLE).exists():
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _fill(folder: Path, fill: Callable[[Path], object]) -> None:
    for left in folder.iterdir():  # by one that died
        shutil.rmtree(left, ignore_errors=True)
    half = folder / _part_name()
    try:
        # if we die here, the folder is not whole, and the next one fills it anew
        fill(half)
        half.rename(folder / _WHOLE)
    except BaseException:
        shutil.rmtree(half, ignore_errors=True)
        raise


def _part_name() -> str:
    return f"half-{secrets.token_hex(4)}"


def _is(folder: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(folder.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _path() -> Path:
    return Path(tempfile.gettempdir()) / f"calve-shared-{os.getuid()}"


def _root() -> Path:
    """A folder of this user's own: the temporary folder is everybody's."""
    root = _path()
    root.mkdir(mode=0o700, exist_ok=True)
    found = root.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077 or root.is_symlink():
        raise PermanentError(
            f"{root} is not a folder that only this user can use",
            code="shared_folder",
            hint="remove it, or set TMPDIR for the executors to a folder of their own",
        )
    return root


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


def _scratch_root() -> Path:
    return Path(tempfile.gettempdir())


def _prefix() -> str:
    return f"{_PREFIX}{os.getuid()}-"


def folders() -> list[Path]:
    """This user's scratch folders and their locks, of all processes."""
    return list(_scratch_root().glob(f"{_prefix()}*"))


def make() -> ScratchFolder:
    """Make a folder that only this user can read, under a lock that ends with this process."""
    while True:
        path = _scratch_root() / f"{_prefix()}{secrets.token_hex(8)}"
        lock_path = path.with_name(path.name + _LOCK_SUFFIX)
        lock = os.open(lock_path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _names(lock_path, lock):
            os.close(lock)  # a sweeper took the file between its making and its locking
            continue
        # if we die here, the lock file alone is left, and swept
        path.mkdir(mode=0o700)
        return ScratchFolder(path=path, lock_path=lock_path, lock=lock, owner=os.getpid())


def sweep_scratch() -> list[Path]:
    """Remove this user's folders whose process has ended; says which."""
    swept: list[Path] = []
    for lock_path in _scratch_root().glob(f"{_prefix()}*{_LOCK_SUFFIX}"):
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
