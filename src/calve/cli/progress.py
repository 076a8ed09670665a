"""Showing processes while they run: a bar on a terminal, plain lines elsewhere, on stderr."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from calve.cli import output, words
from calve.model.process import Process
from calve.model.states import PROCESS_TERMINAL, ProcessState

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_MOST_BARS = 8  # beyond this one bar stands for all


class Display(Protocol):
    def update(self, processes: Sequence[Process]) -> None: ...


@contextmanager
def display(*, quiet: bool) -> Iterator[Display]:
    """`quiet` (JSON was asked for, and nobody looks) shows nothing on a pipe, still a bar on a terminal."""
    if output.is_terminal(sys.stderr):
        with _bars() as bars:
            yield bars
    else:
        yield _Silent() if quiet else _Lines()


def watch(snapshots: Iterable[Sequence[Process]], *, quiet: bool) -> list[Process]:
    """Show each snapshot; the last one."""
    last: Sequence[Process] = ()
    with display(quiet=quiet) as shown:
        for last in snapshots:
            shown.update(last)
    return list(last)


class _Silent:
    def update(self, processes: Sequence[Process]) -> None:
        """Nothing to show."""


class _Lines:
    """A line when a process changes its state, and one for each tenth of its tasks."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[ProcessState, int]] = {}

    def update(self, processes: Sequence[Process]) -> None:
        for process in processes:
            tenth = 10 * process.tasks.done // max(1, process.tasks.total)
            if self._said.get(process.id) != (process.state, tenth):
                self._said[process.id] = (process.state, tenth)
                output.say(f"{process.id}  {process.state.value}  {progress(process)}".rstrip())


def progress(process: Process) -> str:
    """How far one process is, in a few words."""
    parts = []
    if process.tasks.total:
        parts.append(f"{process.tasks.done}/{process.tasks.total} tasks")
    if process.rows:
        parts.append(words.counted(process.rows, "row"))
    if process.error and process.state is not ProcessState.COMPLETED:
        parts.append(output.one_line(process.error.message))
    return ", ".join(parts)


@contextmanager
def _bars() -> "Iterator[Display]":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rows]}"),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True, no_color=not output.wants_colour(sys.stderr))
    with Progress(*columns, console=console, transient=True) as bars:
        yield _Bars(bars)


class _Bars:
    """One bar for each process, or one for all where they are many."""

    def __init__(self, bars: "Progress") -> None:
        self._bars = bars
        self._shown: dict[str, TaskID] = {}

    def update(self, processes: Sequence[Process]) -> None:
        if len(processes) > _MOST_BARS:
            self._set("all", _all(processes))
            return
        for process in processes:
            self._set(process.id, _one(process))

    def _set(self, key: str, bar: tuple[str, int, int, int]) -> None:
        text, done, total, rows = bar
        if key not in self._shown:
            self._shown[key] = self._bars.add_task(text, total=None, rows="")
        self._bars.update(
            self._shown[key],
            description=text,
            total=total or None,  # unknown until it is planned: the bar moves to and fro
            completed=done,
            rows=words.counted(rows, "row") if rows else "",
        )


def _one(process: Process) -> tuple[str, int, int, int]:
    what = words.listed(process.partitions, most=2) or process.kind
    return (
        f"{what}  {process.state.value:<10}",
        process.tasks.done,
        process.tasks.total,
        process.rows,
    )


def _all(processes: Sequence[Process]) -> tuple[str, int, int, int]:
    ended = sum(process.state in PROCESS_TERMINAL for process in processes)
    return (
        f"{ended}/{len(processes)} processes",
        sum(process.tasks.done for process in processes),
        sum(process.tasks.total for process in processes),
        sum(process.rows for process in processes),
    )
