"""Which backups to keep. Pure: the last few, and the newest of each day, week, month, year."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TypeVar

from calve.model.errors import UsageError

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Keep:
    """How many of each. At least one has to be given: nothing is deleted by default."""

    last: int = 0
    daily: int = 0
    weekly: int = 0
    monthly: int = 0
    yearly: int = 0

    def __post_init__(self) -> None:
        counts = [getattr(self, item.name) for item in fields(self)]
        if min(counts) < 0 or not any(counts):
            raise UsageError(
                "nothing says what to keep",
                code="keep_nothing",
                hint="give at least one of --keep-last, --keep-daily, --keep-weekly, --keep-monthly, --keep-yearly",
            )


def kept(items: Sequence[T], at: Callable[[T], datetime], keep: Keep) -> list[T]:
    """Those to keep, newest first. A day without a backup uses up no count."""
    newest_first = sorted(items, key=at, reverse=True)
    chosen: set[int] = set(range(min(keep.last, len(newest_first))))
    periods: tuple[tuple[int, Callable[[datetime], tuple[int, ...]]], ...] = (
        (keep.daily, lambda day: (day.year, day.month, day.day)),
        (keep.weekly, lambda day: tuple(day.isocalendar()[:2])),
        (keep.monthly, lambda day: (day.year, day.month)),
        (keep.yearly, lambda day: (day.year,)),
    )
    for count, period in periods:
        seen: set[tuple[int, ...]] = set()
        for place, item in enumerate(newest_first):
            which = period(at(item))
            if which not in seen and len(seen) < count:
                seen.add(which)
                chosen.add(place)
    return [item for place, item in enumerate(newest_first) if place in chosen]
