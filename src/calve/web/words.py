"""Numbers, times, names and states as people read them. Pure: a value in, text out; nothing here is HTML.

Sizes and counts are those of the command line (a test compares them). A name from outside cannot hide what it is: what
an eye would not see is spelled out. A state that this version does not know is shown as it is, with a neutral icon.
"""

import json
import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_UNITS = (("year", 31_536_000), ("month", 2_592_000), ("week", 604_800), ("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))  # fmt: skip
_SPANS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_SCRIPTS = ("LATIN", "GREEK", "CYRILLIC")
NAME, _MESSAGE, _TITLE, _DOCUMENT = 80, 2_000, 500, 300_000  # characters that are shown
_LEAST = 0.001  # seconds
_KEPT = 4096  # times: a page has hundreds, and says each twice


@dataclass(frozen=True, kw_only=True)
class Appearance:
    """How a state is shown: never by its colour alone. `tone` is a class of the style sheet, `icon` a symbol of
    `parts/icons.html`."""

    word: str
    icon: str
    tone: str


_NEUTRAL = "off"
_STATES: Mapping[str, Appearance] = {
    "PENDING": Appearance(word="waiting", icon="waiting", tone="wait"),
    "RUNNING": Appearance(word="running", icon="running", tone="run"),
    "PUBLISHING": Appearance(word="publishing", icon="publishing", tone="run"),
    "COMPLETED": Appearance(word="completed", icon="completed", tone="ok"),
    "DONE": Appearance(word="done", icon="completed", tone="ok"),
    "FAILED": Appearance(word="failed", icon="failed", tone="bad"),
    "CANCELLED": Appearance(word="cancelled", icon="cancelled", tone="off"),
}
_UNKNOWN = Appearance(word="outcome unknown", icon="unknown", tone="bad")
_DAMAGED = Appearance(word="damaged", icon="damaged", tone="bad")
_CARDS: Mapping[str, Appearance] = {
    "unknown": Appearance(word="unknown outcome", icon="unknown", tone="bad"),
    "damaged": Appearance(word="damaged", icon="damaged", tone="bad"),
    "failed": Appearance(word="failed", icon="failed", tone="bad"),
    "down": Appearance(word="down", icon="down", tone="bad"),
    "silent": Appearance(word="silent", icon="silent", tone="warn"),
    "no_worker": Appearance(word="no worker", icon="silent", tone="warn"),
    "late": Appearance(word="late", icon="late", tone="warn"),
    "released_rows_missing": Appearance(word="rows missing", icon="changed", tone="bad"),
    "released_rows_uncounted": Appearance(word="not counted", icon="unknown", tone="warn"),
    "overdue": Appearance(word="overdue", icon="late", tone="warn"),
    "unproven": Appearance(word="unproven", icon="proven", tone="warn"),
    "held": Appearance(word="held", icon="held", tone="warn"),
    "halted": Appearance(word="stopped", icon="halted", tone="wait"),
    "approval": Appearance(word="approval", icon="held", tone="wait"),
    "drops": Appearance(word="to drop", icon="waiting", tone="off"),
    "versions": Appearance(word="versions", icon="changed", tone="off"),
}
_EXPORTED: Mapping[str, Appearance] = {
    "no": Appearance(word="not yet", icon="waiting", tone="off"),
    "unchanged": Appearance(word="exported", icon="completed", tone="ok"),
    "changed": Appearance(word="changed since", icon="changed", tone="warn"),
    "missing": Appearance(word="gone from the destination", icon="damaged", tone="bad"),
    "gone": Appearance(word="exported", icon="completed", tone="ok"),  # the source has dropped it since
}
STANDINGS: Mapping[str, Appearance] = {  # of partitions under a policy, in the order of their life
    "HOT": Appearance(word="hot", icon="waiting", tone="off"),
    "DUE": Appearance(word="due", icon="late", tone="wait"),
    "EXPORTING": Appearance(word="exporting", icon="running", tone="run"),
    "EXPORTED": Appearance(word="exported", icon="completed", tone="run"),
    "VERIFIED": Appearance(word="verified", icon="proven", tone="ok"),
    "GRACE": Appearance(word="leaves later", icon="late", tone="ok"),
    "RELEASING": Appearance(word="leaving", icon="running", tone="run"),
    "QUARANTINED": Appearance(word="in quarantine", icon="held", tone="wait"),
    "DROPPED": Appearance(word="dropped", icon="cancelled", tone="off"),
    "CHANGED": Appearance(word="changed", icon="changed", tone="warn"),
    "HELD": Appearance(word="held", icon="held", tone="warn"),
    "BLOCKED": Appearance(word="blocked", icon="damaged", tone="bad"),
}
_RELEASES: Mapping[str, Appearance] = {
    "DROPPING": Appearance(word="being dropped", icon="running", tone="run"),
    "RETURNING": Appearance(word="coming back", icon="running", tone="run"),
}


# -- numbers ------------------------------------------------------------------------------------------


def count(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:,.0f}"


def counted(number: int, one: str, many: str = "") -> str:
    """`1 row`, `2 rows`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def size(number: float) -> str:
    for unit in _SIZES[:-1]:
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} {_SIZES[-1]}"


def short(number: float) -> str:
    """`41.2 M`: for columns; the exact number stands in the title."""
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(number) >= limit:
            scaled = number / (1e3 if unit == "k" else limit)
            return f"{scaled:.0f} {unit}" if scaled >= 100 else f"{scaled:.1f} {unit}"
    return count(number)


def large(number: float) -> str:
    """`4.2 billion`: for a number that stands alone."""
    for limit, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if abs(number) >= limit:
            return f"{number / limit:.1f} {word}"
    return count(number)


def share(part: float, whole: float) -> float:
    """0 to 1, whatever the numbers are."""
    found = part / whole if whole else 0.0
    return min(max(found, 0.0), 1.0) if math.isfinite(found) else 0.0


def percent(part: float, whole: float = 1.0) -> str:
    """100 % only if it is all, and 0 % only if it is nothing."""
    found = share(part, whole) * 100
    return "99 %" if 99 <= found < 100 else "1 %" if 0 < found < 1 else f"{found:.0f} %"


# -- times --------------------------------------------------------------------------------------------


def moment(text: str | None) -> datetime | None:
    """A time of a document; None if there is none, or it cannot be read."""
    return _moment(text) if text and isinstance(text, str) else None


@lru_cache(_KEPT)
def _moment(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def between(first: str | None, last: str | None) -> float | None:
    """Seconds, never below 0."""
    begin, end = moment(first), moment(last)
    return max((end - begin).total_seconds(), 0.0) if begin and end else None


def span(seconds: float | None) -> str:
    """The two largest units: `3 d 4 h`, `12 min 5 s`, `0.4 s`."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds < 10:
        return (
            f"{max(seconds, 0):.1f} s" if seconds >= 0.1 or seconds < _LEAST else f"{seconds * 1000:.0f} ms"
        )
    left, parts = int(seconds), []
    for unit, length in _SPANS:
        if left >= length:
            parts.append(f"{left // length} {unit}")
            left %= length
    return " ".join(parts[:2])


def long(seconds: float | None) -> str:
    """In a word: `4 minutes`."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    for word, length in _UNITS:
        if seconds >= length:
            return counted(int(seconds // length), word)
    return "a moment"


def ago(at: str | None, now: datetime | str | None) -> str:
    """`4 minutes ago`, `in 3 hours`, by the store's clock."""
    then, today = moment(at), now if isinstance(now, datetime) else moment(now)
    if then is None or today is None:
        return "never"
    seconds = (today - then).total_seconds()
    if abs(seconds) < 1:
        return "just now"
    return f"{long(seconds)} ago" if seconds > 0 else f"in {long(-seconds)}"


def exact(at: str | None) -> str:
    """To the second, with its zone."""
    found = moment(at)
    return f"{found.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if found else ""


def day(at: str | None) -> str:
    """`3 November`, of UTC."""
    found = moment(at)
    return f"{found.astimezone(UTC).day} {found.astimezone(UTC):%B}" if found else ""


# -- names --------------------------------------------------------------------------------------------


def cleaned(text: object) -> str:
    """On one line, and nothing of it invisible."""
    text = str(text)
    if text.isascii() and text.isprintable():  # nearly all; a page has hundreds
        return text
    return "".join(_visible(sign) for sign in text)


def message(text: object, most: int = _MESSAGE) -> str:
    """As `cleaned`, with its line breaks, and not longer than a page bears."""
    lines = str(text)[:most].replace("\r\n", "\n").split("\n")
    return "\n".join(cleaned(line.replace("\t", "    ")) for line in lines)


def sentence(text: str) -> str:
    """With a capital at its beginning, as text that stands alone."""
    return text[:1].upper() + text[1:]


def cut(text: object, most: int = NAME) -> str:
    """Without its middle: both ends of a name tell it from another."""
    shown = cleaned(text)
    if len(shown) <= most:
        return shown
    tail = (most - 1) // 2
    return f"{shown[: most - 1 - tail]}…{shown[-tail:]}"


def pieces(text: str) -> list[str]:
    """A name in pieces between which a line may break: after its dots, dashes, slashes and underscores."""
    return re.findall(r"[^._/:\-]*[._/:\-]+|[^._/:\-]+", text)


def title(text: object) -> str:
    """All of a name, for the hover; with the code points if letters of several alphabets stand in one word."""
    shown = cleaned(text)
    shown = shown if len(shown) <= _TITLE else f"{shown[:_TITLE]}…"
    return f"{shown} ({mixed(text)})" if mixed(text) else shown


def mixed(text: object) -> str:
    """The letters that are not of the first alphabet, by code point; "" for a name of one alphabet."""
    if str(text).isascii():
        return ""
    found: list[tuple[str, str]] = []
    for sign in str(text)[:_TITLE]:
        script = unicodedata.name(sign, "").split(" ", 1)[0] if sign.isalpha() else ""
        if script in _SCRIPTS:
            found.append((script, sign))
    others = sorted({sign for script, sign in found if script != found[0][0]})
    return ", ".join(f"{sign} is U+{ord(sign):04X}" for sign in others[:5])


def _visible(sign: str) -> str:
    if sign == "\0" or "\1" <= sign < " ":
        return chr(0x2400 + ord(sign))
    if sign != " " and unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp"):
        return f"‹U+{ord(sign):04X}›"
    return sign


def pretty(value: Any) -> str:
    """JSON for the eye."""
    return message(json.dumps(value, indent=2, ensure_ascii=False, default=str), _DOCUMENT)


# -- states -------------------------------------------------------------------------------------------


def state_look(state: str) -> Appearance:
    return _STATES.get(state) or Appearance(word=cut(state.lower(), 20), icon="cancelled", tone=_NEUTRAL)


def process_look(process: Mapping[str, Any]) -> Appearance:
    """Of a process as documents have it."""
    if process.get("damaged"):
        return _DAMAGED
    error = process.get("error") or {}
    if process["state"] == "FAILED" and error.get("outcome") == "unknown":
        return _UNKNOWN
    found = state_look(process["state"])
    if process.get("cancel_requested") and found.tone in ("run", "wait"):
        return Appearance(word=f"{found.word}, stopping", icon=found.icon, tone=found.tone)
    return found


def gathered(processes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Processes of the same pair in the same state as one entry, in the order of the first of each. `why` is there if
    all say the same."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for one in processes:
        alike = tuple(one[key] for key in ("state", "kind", "source", "destination"))
        entry = found.setdefault(
            alike,
            {"first": one, "count": 0, "partitions": [], "why": one["why"], "done": 0, "total": 0},
        )
        entry["count"] += 1
        entry["partitions"] += one["partitions"]
        entry["done"] += one["tasks"]["done"]
        entry["total"] += one["tasks"]["total"]
        entry["why"] = entry["why"] if entry["why"] == one["why"] else ""
    return list(found.values())


def daily(rows: Sequence[Mapping[str, Any]], now: str, days: int) -> list[int]:
    """`[{day, count}]` as a number for each of the last days of UTC, today last; what is older is left out."""
    today = (moment(now) or datetime.now(UTC)).astimezone(UTC).date()
    found = {(today - timedelta(days=back)).isoformat(): 0 for back in range(days - 1, -1, -1)}
    for one in rows:
        if one["day"] in found:
            found[one["day"]] += one["count"]
    return list(found.values())


def card_look(kind: str) -> Appearance:
    return _CARDS.get(kind) or Appearance(word=cut(kind.replace("_", " "), 20), icon="late", tone="warn")


def standing_look(state: str) -> Appearance:
    """Where a partition stands under a policy, or where its rows are once it left its table."""
    found = STANDINGS.get(state) or _RELEASES.get(state)
    return found or Appearance(word=cut(state.lower(), 20), icon="unknown", tone=_NEUTRAL)


def exported_look(exported: str | None) -> Appearance:
    """How a partition stands at its destination."""
    return _EXPORTED.get(exported or "no") or Appearance(
        word=cut(exported, 20), icon="unknown", tone=_NEUTRAL
    )


def score_tone(score: float) -> str:
    return "ok" if score >= 90 else "warn" if score >= 60 else "bad"


FILTERS: Mapping[str, Callable[..., Any]] = {
    "ago": ago,
    "between": between,
    "bytes": size,
    "card_look": card_look,
    "cleaned": cleaned,
    "count": count,
    "counted": counted,
    "cut": cut,
    "daily": daily,
    "day": day,
    "exact": exact,
    "exported_look": exported_look,
    "full": title,
    "gathered": gathered,
    "large": large,
    "long": long,
    "message": message,
    "mixed": mixed,
    "percent": percent,
    "pieces": pieces,
    "pretty": pretty,
    "process_look": process_look,
    "score_tone": score_tone,
    "sentence": sentence,
    "share": share,
    "short": short,
    "span": span,
    "standing_look": standing_look,
    "state_look": state_look,
}
