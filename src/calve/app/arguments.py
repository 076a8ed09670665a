"""Arguments as a front gets them: texts and JSON, checked by name and type before anything is asked.

Says what is wrong with a value, never the value of an option of another name: it may be a secret.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from calve.model.errors import UsageError

_MOST = 1_000_000_000
_LONGEST = timedelta(days=36_500)  # what is longer leads out of the calendar
# No store keeps a text with NUL, or with half of a surrogate pair.
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_SPAN = re.compile(r"(\d{1,9})([smhdw])")
_SIZE = re.compile(r"(\d{1,9})([KMGTP]?)B")
_BYTES: dict[str, int] = {unit: 1000**power for power, unit in enumerate(("", "K", "M", "G", "T", "P"))}
_MOST_BYTES = 10**18  # what a column of the store can count
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
# `list` is one of texts, `dict` one of texts by name.
_NAMES = {
    str: "a text", int: "a whole number from 0", float: "a number from 0 to 1", bool: "true or false", list: "a list of texts",
    dict: "an object of texts", datetime: "a time as 2026-01-31T00:00:00Z", timedelta: "a span as 90d, 12h or 30m",
}  # fmt: skip


def span(text: str, *, what: str = "age", code: str = "bad_age", units: str = "hdw") -> timedelta:
    """`90d`, `12h`: a number and one of the units."""
    found = _SPAN.fullmatch(text.strip())
    if not found or found.group(2) not in units:
        shown = ", ".join(
            f"{number}{unit}" for number, unit in ((90, "d"), (12, "h"), (4, "w"), (30, "m")) if unit in units
        )
        *most, last = (_UNITS[unit] for unit in units)
        names = f"{', '.join(most)} or {last}"
        raise UsageError(f"invalid {what} {text!r}", code=code, hint=f"give a number of {names}: {shown}")
    number, unit = int(found.group(1)), timedelta(**{_UNITS[found.group(2)]: 1})
    if number > _LONGEST / unit:
        raise UsageError(f"invalid {what} {text!r}", code=code, hint="give less than a hundred years")
    return number * unit


def size(text: str, *, what: str = "size") -> int:
    """`500GB`, `2TB`: a number of bytes, by powers of 1000."""
    found = _SIZE.fullmatch(text.strip())
    bytes = int(found[1]) * _BYTES[found[2]] if found else 0
    if not 0 < bytes <= _MOST_BYTES:
        raise UsageError(
            f"invalid {what} {text!r}",
            code="config_bad_value",
            hint="give 500GB or 2TB: more than nothing, and at most 1000PB",
        )
    return bytes


def share(text: str, *, what: str = "percentage") -> float:
    """`5%`, as a number from 0 to 1."""
    try:
        found = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        raise UsageError(f"invalid {what} {text!r}", code="bad_share", hint="give 0% to 100%, such as 5%")
    return found


def checked(
    given: Mapping[str, Any],
    options: Mapping[str, type],
    *,
    required: Collection[str] = (),
    choices: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> dict[str, Any]:
    """The given values, each of the type of its option; null is as if it were not given. UsageError for an
    unknown name, a wrong type, or one that is missing."""
    known = {name: value for name, value in given.items() if value is not None}
    for name in known:
        if name not in options:
            raise unknown_option(name, options)
    for name in required:
        # An empty name is the façade's to refuse: it knows what form one has.
        if known.get(name) in (None, []) or (name in choices and not known[name]):
            raise UsageError(f"{name} is missing", code="missing_option", hint=_form(name, options[name]))
    for name in choices:
        if known.get(name) and known[name] not in choices[name]:
            raise UsageError(f"invalid {name}", code="bad_option", hint=f"give {', '.join(choices[name])}")
    return {name: _read(name, value, options[name]) for name, value in known.items()}


def unknown_option(name: str, options: Collection[str]) -> UsageError:
    near = get_close_matches(name, options, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(options) or 'none'}"
    return UsageError(f"unknown option {name[:200]!r}", code="unknown_option", hint=hint)


def _read(name: str, value: Any, wanted: type) -> Any:
    try:
        if wanted is timedelta and isinstance(value, str):
            return span(value, what=name, units="smhdw")
        if wanted is datetime and isinstance(value, str):
            found = datetime.fromisoformat(value)
            return found if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        pass
    if wanted is float and type(value) is int:
        return float(value)
    # `type`, as True is an int.
    fits = type(value) is wanted
    if fits and wanted is int:
        fits = 0 <= value <= _MOST
    if fits and wanted is float:
        fits = 0 <= value <= 1
    if fits and wanted is list:
        fits = all(type(one) is str for one in value)
    if fits and wanted is dict:
        fits = all(type(one) is str for one in (*value, *value.values()))
    if not fits:
        raise UsageError(f"invalid {name}", code="bad_option", hint=_form(name, wanted))
    texts = [value] if wanted is str else value if wanted is list else ()
    if wanted is dict:
        texts = [*value, *value.values()]
    if any(_UNSTORABLE.search(text) for text in texts):
        raise UsageError(f"invalid {name}", code="bad_option", hint="give Unicode text without NUL")
    return tuple(value) if wanted is list else value


def _form(name: str, wanted: type) -> str:
    return f"give {name} as {_NAMES[wanted]}"
