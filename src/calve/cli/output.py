"""Data on stdout, words for people on stderr; readable without colour.

Numbers, sizes and times as people read them, and tables that need no colour.

Exit codes, and which of several wins.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, TextIO

from calve.model.errors import ErrorInfo
from calve.model.process import Process
from calve.model.states import PROCESS_TERMINAL, ProcessState

_RED, _YELLOW, _PLAIN = "\x1b[1;31m", "\x1b[1;33m", "\x1b[0m"
_ITEM = "\n  "  # what opens an item in an error that is a list


def data(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()  # before what is said next on stderr, also where stdout is a pipe


def document(value: Any) -> None:
    """The one JSON document of a command."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def say(text: str = "") -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def clear() -> None:
    """An empty terminal, for a page that is shown again and again."""
    sys.stdout.write("\x1b[H\x1b[2J")


@contextmanager
def during(text: str) -> Iterator[None]:
    """A line that stands on a terminal while something takes its time, and is gone afterwards."""
    if not is_terminal(sys.stderr):
        yield
        return
    sys.stderr.write(f"{text[: shutil.get_terminal_size().columns - 1]}\r")
    sys.stderr.flush()
    try:
        yield
    finally:
        sys.stderr.write("\x1b[2K")
        sys.stderr.flush()


def error(info: ErrorInfo) -> None:
    say(f"{_coloured('error:', _RED)} {_listed(info.message)}")
    if info.hint:
        hint(info.hint)


def warning(text: str) -> None:
    say(f"{_coloured('warning:', _YELLOW)} {one_line(text)}")


def hint(text: str) -> None:
    say(f"hint: {one_line(text)}")


def _listed(text: str) -> str:
    """One line; of an error that is a list, one for each item."""
    return _ITEM.join(map(one_line, text.split(_ITEM)))


def one_line(text: str) -> str:
    return " ".join(text.split())


def width(stream: TextIO) -> int | None:
    """Columns of a terminal; None elsewhere, where nothing may be shortened: a program may read it."""
    return shutil.get_terminal_size().columns if is_terminal(stream) else None


def is_terminal(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def wants_colour(stream: TextIO) -> bool:
    """https://no-color.org: any value of NO_COLOR turns it off."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def _coloured(text: str, colour: str) -> str:
    return f"{colour}{text}{_PLAIN}" if wants_colour(sys.stderr) else text


_READABLE, _LEAST = 12, 6  # characters that a shortened column keeps before others are dropped, and at all
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def count(number: int) -> str:
    return f"{number:,}"


def counted(number: int, one: str, many: str = "") -> str:
    """`1 row`, `2 rows`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def size(number: float) -> str:
    for unit in _SIZES[:-1]:
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} {_SIZES[-1]}"


def seconds(number: float) -> str:
    if number < 60:
        return f"{number:.1f} s"
    return duration(timedelta(seconds=number))


def duration(span: timedelta) -> str:
    """The two largest units: `3d 4h`, `12m 5s`."""
    left = max(0, int(span.total_seconds()))
    parts: list[str] = []
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        if left >= length or (unit == "s" and not parts):
            parts.append(f"{left // length}{unit}")
            left %= length
    return " ".join(parts[:2])


def age(at: datetime | None, now: datetime) -> str:
    return duration(now - at) if at else ""


def moment(at: datetime, now: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC ({age(at, now)} ago)"


def listed(names: Sequence[str], most: int = 3) -> str:
    """`a, b, c and 4 more`."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: frozenset[str] = frozenset(),
    *,
    width: int | None = None,
    cut: frozenset[str] = frozenset(),
    tails: frozenset[str] = frozenset(),
    drop: Sequence[str] = (),
) -> str:
    """Columns parted by two spaces; those in `right` are set to the right. Where a `width` is given, a
    row stays a line, as far as that is possible: the columns in `cut` are shortened, those in `tails` at
    their start; where that leaves too little, those in `drop` are omitted, the first one first."""
    widths = _widths(head, rows)
    if width is not None:
        for name in drop:
            if _total(_fitted(head, widths, width, cut | tails, _READABLE)) <= width:
                break
            kept = [at for at, title in enumerate(head) if title != name]
            head, rows = [head[at] for at in kept], [[row[at] for at in kept] for row in rows]
            widths = _widths(head, rows)
        widths = _fitted(head, widths, width, cut | tails, _LEAST)

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(room) if name in right else _shortened(cell, room, name in tails).ljust(room)
            for name, cell, room in zip(head, cells, widths, strict=True)
        )
        return "  ".join(padded).rstrip()

    return "\n".join(line(row) for row in (head, *rows))


def _widths(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def _fitted(
    head: Sequence[str], widths: Sequence[int], width: int, cut: frozenset[str], least: int
) -> list[int]:
    """The widest of those that may be cut gives a character at a time."""
    fitted = list(widths)
    while _total(fitted) > width:
        spare = [at for at, name in enumerate(head) if name in cut and fitted[at] > least]
        if not spare:
            break
        fitted[max(spare, key=lambda at: fitted[at])] -= 1
    return fitted


def _shortened(cell: str, room: int, tail: bool) -> str:
    if len(cell) <= room:
        return cell
    return f"…{cell[1 - room :]}" if tail else f"{cell[: room - 1]}…"


def facts(pairs: Sequence[tuple[str, str]]) -> str:
    """Names and values, one to a line; empty values are left out."""
    kept = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in kept), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in kept)


DONE = 0  # or nothing to do
FAILED = 1  # the work failed or was cancelled
WRONG = 2  # wrong in the command or the configuration
NOT_FOUND = 3
REFUSED = 4  # because of the state of the data
INTERRUPTED = 130  # safely

# A failure hides a refusal, never the other way round: a script that reads 4 may rely on it that
# nothing was tried in vain.
_BEST_FIRST = (DONE, WRONG, NOT_FOUND, REFUSED, FAILED, INTERRUPTED)


def worst(codes: Iterable[int]) -> int:
    return max(codes, key=_BEST_FIRST.index, default=DONE)


def of_process(process: Process) -> int:
    """What the end of a process means for the command that ran it."""
    if process.state is ProcessState.COMPLETED:
        return DONE
    if process.damaged:
        return FAILED
    if process.state not in PROCESS_TERMINAL:
        return DONE
    # What only planning could find out is no failure of the work.
    if process.state is ProcessState.FAILED and process.error is not None and process.error.refused:
        return REFUSED
    return FAILED
