"""Options that several commands share, and how spans of time are read."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import click

from calve.model.errors import UsageError

_SPAN = re.compile(r"(\d+)([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def span(text: str, *, what: str = "age", code: str = "bad_age", units: str = "hdw") -> timedelta:
    """`90d`, `12h`: a number and one of the units."""
    found = _SPAN.fullmatch(text.strip())
    if not found or found.group(2) not in units:
        shown = ", ".join(
            f"{number}{unit}" for number, unit in ((90, "d"), (12, "h"), (4, "w"), (30, "m")) if unit in units
        )
        *most, last = (_UNITS[unit] for unit in units)
        names = f"{', '.join(most)} or {last}"
        raise UsageError(f"invalid {what} {text!r}", code=code, hint=f"give a number of {names}: {shown}")  # fmt: skip
    return timedelta(**{_UNITS[found.group(2)]: int(found.group(1))})


def _timeout(_ctx: click.Context, _option: click.Parameter, text: str | None) -> float | None:
    if text is None:
        return None
    return span(text, what="timeout", code="bad_timeout", units="smhd").total_seconds()


def ids_argument(body: Callable[..., Any]) -> Callable[..., Any]:
    return click.argument("ids", metavar="ID…", nargs=-1, required=True)(body)


def no_wait_option(body: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--no-wait", is_flag=True, help="Print the ids and return; a worker does the work.")(
        body
    )


def timeout_option(body: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--timeout", "timeout_seconds", metavar="30m", callback=_timeout,
        help="Stop waiting after this long (90s, 30m, 2h). The work goes on; the exit code is 130.",
    )(body)  # fmt: skip
