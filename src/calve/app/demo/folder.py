"""The demo's folder: a whole installation, made anew by each demo, and touched only if it is a demo's."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from calve.app.config.template import render, write_private
from calve.app.config.values import CONFIG_NAME
from calve.clickhouse.embedded.source import EmbeddedSource
from calve.clickhouse.errors import SourceBusyError
from calve.model.errors import CalveError, RefusedError, UsageError

MARK = ".calve-demo"
_MADE = ("clickhouse", "lake", "calve.db", "calve.db-wal", "calve.db-shm", CONFIG_NAME)


def prepare(folder: Path) -> Path:
    """An empty installation; its configuration file."""
    try:
        _clear(folder)
        # If we die here, the mark is there first, so that the next demo may clear what follows.
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARK).write_text("Made by `calve demo`, which may remove it again.\n", encoding="utf-8")
        file = folder / CONFIG_NAME
        write_private(file, _configuration())
    except OSError as error:
        raise UsageError(
            f"cannot write to {folder}: {error.strerror}",
            code="folder_not_writable",
            hint="use a folder that you can write to: calve demo --dir DIR",
        ) from error
    return file


def _configuration() -> str:
    """The defaults, but with a task for each part: the demo's parts are small, and would share one."""
    key, why = "task_bytes_mb", "small on purpose: each of the demo's parts is a task"
    lines = (
        f"{key} = 12  # {why}" if line.startswith(f"# {key} = ") else line for line in render().splitlines()
    )
    return "\n".join(lines) + "\n"


def _clear(folder: Path) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError(
            f"{folder} is a file, not a folder", code="not_a_folder", hint="calve demo --dir DIR"
        )
    if not (folder / MARK).exists():
        if any(folder.iterdir()):
            raise RefusedError(
                f"{folder} is not empty and was not made by a demo; nothing was changed",
                code="not_a_demo",
                hint="use another folder: calve demo --dir DIR",
            )
        return
    _refuse_if_open(folder / "clickhouse")
    # If we die here, some of an old demo is left; the mark stays, and the next demo goes on.
    for name in _MADE:
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _refuse_if_open(clickhouse: Path) -> None:
    """A worker or a shell may still be at work in an earlier demo: nothing is removed under it."""
    try:
        with EmbeddedSource("main", clickhouse, busy_seconds=0).visit():
            return
    except SourceBusyError:
        raise
    except CalveError:
        return  # not there, or not whole: it is made anew


def fill(clickhouse: Path, statements: Iterable[str]) -> None:
    """Make the demo's table, in a visit of its own."""
    with EmbeddedSource("main", clickhouse, create=True).visit() as session:
        for statement in statements:
            session.execute(statement, what="making the demo's table")
