"""Showing processes while they run: a bar on a terminal, plain lines elsewhere, on stderr."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from calve.app.front import Standing
from calve.cli import output
from calve.model.process import Process
from calve.model.states import PROCESS_TERMINAL, ProcessState

if TYPE_CHECKING:
    from rich.live import Live

_MOST_BARS = 8  # beyond this one line stands for all
_BAR = 20  # characters
_WIDE = 76  # columns; narrower terminals get no bar and no rows, so that a line stays a line


@dataclass(frozen=True, kw_only=True)
class Line:
    """What one line of the display says."""

    what: str
    state: str
    done: int
    total: int  # 0 until it is planned
    rows: int
    ended: bool
    in_bytes: bool = False  # `done` and `total` are bytes, not tasks
    note: str = ""
    down: str = ""  # the service that it waits for

    def amount(self, seconds: float) -> str:
        """How much is done; of bytes also how fast, and how long it will take."""
        if not self.total:
            return ""
        if not self.in_bytes:
            return f"{self.done}/{self.total} tasks"
        text = f"{output.size(self.done)} of {output.size(self.total)}"
        if self.ended or not self.done:
            return text
        rate = self.done / max(seconds, 0.001)
        return f"{text}, {output.size(rate)}/s, {output.seconds((self.total - self.done) / rate)} left"


class Display(Protocol):
    def update(self, standing: Standing) -> None: ...


@contextmanager
def display(*, quiet: bool) -> Iterator[Display]:
    """`quiet` (JSON was asked for, and nobody looks) shows nothing on a pipe, still a bar on a terminal."""
    if output.is_terminal(sys.stderr):
        with _bars() as bars:
            yield bars
    else:
        yield _Silent() if quiet else _Lines()


class _Silent:
    def update(self, standing: Standing) -> None:
        """Nothing to show."""


class _Lines:
    """A line when a process changes its state, and one for each tenth of its work."""

    def __init__(self) -> None:
        self._began_at = time.monotonic()
        self._said: dict[str, tuple[ProcessState, int, str]] = {}

    def update(self, standing: Standing) -> None:
        for process in standing.processes:
            line = _one(process, standing)
            tenth = 10 * line.done // max(1, line.total)
            now = (process.state, tenth, line.down)
            if self._said.get(process.id) != now:
                self._said[process.id] = now
                seconds = time.monotonic() - self._began_at
                output.say(f"{process.id}  {process.state.value}  {_told(process, line, seconds)}".rstrip())


def _told(process: Process, line: Line, seconds: float) -> str:
    """How far one process is, in a few words."""
    parts = [line.amount(seconds)]
    if process.rows and not line.in_bytes:
        parts.append(output.counted(process.rows, "row"))
    if line.down:
        parts.append(line.note)
    elif process.error and process.state is not ProcessState.COMPLETED:
        parts.append(output.one_line(process.error.message))
    return ", ".join(part for part in parts if part)


@contextmanager
def _bars() -> "Iterator[Display]":
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(stderr=True, no_color=not output.wants_colour(sys.stderr))
    bars = _Bars()

    def drawn() -> Text:
        # Cut here: left to itself Rich takes the room for a long note from the columns before it.
        return Text("\n".join(bars.lines(console.width)), no_wrap=True, overflow="ellipsis")

    with Live(get_renderable=drawn, console=console, transient=True, refresh_per_second=4) as live:
        yield _Refreshing(bars, live)


class _Refreshing:
    """What is new is seen at once, also when the next thing is the end."""

    def __init__(self, bars: "_Bars", live: "Live") -> None:
        self._bars = bars
        self._live = live

    def update(self, standing: Standing) -> None:
        self._bars.update(standing)
        self._live.refresh()


class _Bars:
    """One line for each process, or one for all where they are many."""

    def __init__(self) -> None:
        self._began_at = time.monotonic()
        self._lines: dict[str, Line] = {}
        self._seconds: dict[str, float] = {}  # of those that have ended

    def update(self, standing: Standing) -> None:
        processes = standing.processes
        many = len(processes) > _MOST_BARS
        self._lines = {"all": _all(standing)} if many else {one.id: _one(one, standing) for one in processes}
        for key, line in self._lines.items():
            if line.ended:
                self._seconds.setdefault(key, time.monotonic() - self._began_at)

    def lines(self, width: int) -> list[str]:
        return drawn_lines(
            [
                (line, self._seconds.get(key, time.monotonic() - self._began_at))
                for key, line in self._lines.items()
            ],
            width,
        )


def drawn_lines(shown: Sequence[tuple[Line, float]], width: int) -> list[str]:
    """Lines with the seconds each has taken, in columns, none longer than the terminal is wide."""
    wide = width >= _WIDE
    rows = [_cells(line, seconds, wide=wide) for line, seconds in shown]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))] if rows else []
    texts = (
        "  ".join(cell.ljust(room) for cell, room in zip(row, widths, strict=True) if room) for row in rows
    )
    return [text if len(text) <= width else f"{text[: width - 1]}…" for text in map(str.rstrip, texts)]


def _cells(line: Line, seconds: float, *, wide: bool) -> list[str]:
    return [
        line.what,
        line.state,
        bar(line.done, line.total) if wide else "",
        line.amount(seconds),
        output.counted(line.rows, "row") if line.rows and wide else "",
        output.duration(timedelta(seconds=seconds)),
        line.note,
    ]


def bar(done: int, total: int) -> str:
    """Readable without colour; nothing until it is known how much there is to do."""
    full = _BAR * done // total if total else 0
    return "█" * full + "░" * (_BAR - full) if total else ""


def _one(process: Process, standing: Standing) -> Line:
    ended = process.state in PROCESS_TERMINAL
    waits = process.error is not None and not ended
    size = standing.sizes.get(process.id, 0)
    note = f"retrying after: {output.one_line(process.error.message)}" if process.error and waits else ""
    down = standing.outages.get(process.id)
    if down is not None:
        note = f"waiting for {down.service}: {output.one_line(down.reason)}"
    return Line(
        what=output.listed(process.partitions, most=2) or process.kind,
        state=process.state.value,
        done=min(process.bytes, size) if size else process.tasks.done,
        total=size or process.tasks.total,
        in_bytes=bool(size),
        rows=process.rows,
        ended=ended,
        note=note,
        down=down.service if down else "",
    )


def _all(standing: Standing) -> Line:
    processes = standing.processes
    ended = sum(process.state in PROCESS_TERMINAL for process in processes)
    failed = sum(process.state is ProcessState.FAILED for process in processes)
    return Line(
        what=f"{ended}/{len(processes)} processes",
        state=f"{failed} failed" if failed else "",
        done=sum(process.tasks.done for process in processes),
        total=sum(process.tasks.total for process in processes),
        rows=sum(process.rows for process in processes),
        ended=ended == len(processes),
        note=next((note for process in processes if (note := _one(process, standing).note)), ""),
    )
