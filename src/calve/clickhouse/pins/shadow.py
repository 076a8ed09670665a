"""The `shadow` folder of a disk: where FREEZE puts its links, under an escaped name.

Only folders that bear a name of ours, directly below `shadow`, are ever looked into or
removed: a name that is not ours never becomes a path.
"""

import fcntl
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from calve.clickhouse.errors import is_answer
from calve.clickhouse.source import Session
from calve.clickhouse.sql.tokens import name as quoted
from calve.clickhouse.sql.tokens import string
from calve.model.errors import CalveError, PermanentError, TemporaryError

_OURS = re.compile(r"calve-[a-z0-9]{1,64}-[0-9]{1,10}")
_COUNTER = "increment.txt"


def checked(name: str) -> str:
    """The pin's name, if it is one: `calve-<process id>-<attempt>`."""
    if not _OURS.fullmatch(name):
        raise PermanentError(f"invalid pin name {name!r}", code="pin_name")
    return name


def folder(disk: Path, name: str) -> Path:
    """Where a freeze of that name is on a disk. On disk a `-` is `%2D`."""
    return disk / "shadow" / checked(name).replace("-", "%2D")


def folder_of_any(disk: Path, name: str) -> Path:
    """Where a freeze is that anybody took, for reading alone. Escaped as ClickHouse escapes file names,
    so that no name leads out of the folder."""
    escaped = "".join(
        chr(byte) if byte < 128 and (chr(byte).isalnum() or byte == ord("_")) else f"%{byte:02X}"
        for byte in name.encode()
    )
    return disk / "shadow" / escaped


def is_ours(name: str) -> bool:
    return _OURS.fullmatch(name) is not None


def names(disks: Sequence[Path]) -> tuple[str, ...]:
    """The pins of ours that hold a file on any of the disks."""
    found: set[str] = set()
    for disk in disks:
        shadow = disk / "shadow"
        entries = [entry.name.replace("%2D", "-") for entry in shadow.iterdir()] if shadow.is_dir() else []
        found.update(name for name in entries if is_ours(name) and holds([disk], name))
    return tuple(sorted(found))


def holds(disks: Sequence[Path], name: str) -> bool:
    """Whether the freeze still keeps a file. UNFREEZE leaves empty folders behind (tried). A folder
    that cannot be looked into counts as one that does."""
    return any(_holds(folder(disk, name)) for disk in disks)


def _holds(target: Path) -> bool:
    try:
        with os.scandir(target) as entries:
            return any(not one.is_dir(follow_symlinks=False) or _holds(Path(one.path)) for one in entries)
    except (FileNotFoundError, NotADirectoryError):
        return target.is_symlink()
    except OSError:
        return True


def exists(disks: Sequence[Path], name: str) -> bool:
    """Whether anything of that name is on any disk."""
    return any(folder(disk, name).exists() for disk in disks)


def remove(disks: Sequence[Path], name: str) -> None:
    """Take away exactly that freeze, from every disk. Twice is harmless."""
    for disk in disks:
        target = folder(disk, name)
        if target.is_symlink():
            raise PermanentError(
                f"{target} is a symbolic link: not made by a freeze, not removed", code="pin_link"
            )
        try:
            # if we die here, part of the folder is left, and the next try takes the rest
            shutil.rmtree(target)
        except FileNotFoundError:
            if target.exists():
                raise _failed(target, "it changes while it is removed") from None
        except OSError as error:
            if not _holds(target):
                continue  # empty folders of the server's user, left by UNFREEZE: they hold nothing
            raise _failed(target, error.strerror or str(error)) from None


def mend_counter(disk: Path) -> bool:
    """Make `increment.txt` readable again if a crash left it empty: every FREEZE, also one with a
    name of its own, would fail on it (P20). Under the lock that the engine itself takes to count
    (tried), so that a server may be counting meanwhile. The counter names freezes that were given no
    name, so it goes on from the highest of those."""
    counter = disk / "shadow" / _COUNTER
    try:
        if _counts(counter.read_bytes()):
            return False
    except OSError:
        return False  # the engine makes it; or it is not ours to read, and the FREEZE itself will tell
    try:
        with counter.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _counts(file.read()):
                return False
            numbered = [int(entry.name) for entry in counter.parent.iterdir() if entry.name.isdigit()]
            text = b"%d\n" % max(numbered, default=0)
            # if we die here, the counter is as it was, or whole: it is one short write
            os.pwrite(file.fileno(), text, 0)
            file.truncate(len(text))
            return True
    except (FileNotFoundError, BlockingIOError):
        return False  # the engine is counting right now
    except OSError as error:
        raise PermanentError(
            f"{counter} is empty, so every FREEZE fails, and it cannot be fixed from here: {error.strerror}",
            code="freeze_counter",
            hint=f"write a number into it, as the server's user: echo 0 > {counter}",
        ) from None


def _counts(text: bytes) -> bool:
    return text.strip().isdigit()


def _failed(target: Path, why: str) -> TemporaryError:
    return TemporaryError(
        f"the freeze in {target} could not be removed: {why}",
        code="pin_release",
        hint="it takes disk space until it is removed; Calve retries",
    )


def unfreeze(session: Session, name: str, table: tuple[str, str] | None, disks: Sequence[Path]) -> None:
    """Ask the source, as far as it can and anything is left. An answer that may come later (a timeout,
    a server that is down) is raised: the release is tried again."""
    checked(name)  # never a freeze that is not ours
    if not holds(disks, name):
        return
    if table is not None and session.unfreezes_tables:
        database, table_name = table
        _ask(session, f"ALTER TABLE {quoted(database)}.{quoted(table_name)} UNFREEZE", name)
    if session.unfreezes_all and holds(disks, name):
        _ask(session, "SYSTEM UNFREEZE", name)


def _ask(session: Session, statement: str, name: str) -> None:
    try:
        # if we die here, the freeze is there, half there or gone: the next try looks
        session.execute(f"{statement} WITH NAME {string(name)}", what=f"releasing the pin {name}")
    except CalveError as error:
        if not is_answer(error):
            raise
        # no such table any more, not allowed, or switched off: there are other ways
