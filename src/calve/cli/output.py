"""Data on stdout, words for people on stderr; readable without colour."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from calve.model.errors import ErrorInfo

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
