"""Wall time of a zone: windows in which work may begin, days, and where a local time lies on the line of instants.

A local time that the clocks skip is the first instant after the gap; one that comes twice is the first of the two.
"""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from calve.model.errors import UsageError

_WINDOW = re.compile(r"(\d\d):(\d\d)-(\d\d):(\d\d)(?:\s+(\S+))?")
_DAY = timedelta(days=1)


def zone_of(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UsageError(
            f"unknown time zone {name!r}", code="bad_zone", hint="give a name such as Europe/Berlin or UTC"
        ) from error


def instant(local: datetime, zone: ZoneInfo) -> datetime:
    """The instant at which clocks of the zone show this time, without a zone of its own, or the next one."""
    early = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if early.astimezone(zone).replace(tzinfo=None) == local:
        return early
    # Clocks skip it. The change lies between what the offsets of before and after make of it.
    before, after = local.replace(tzinfo=zone, fold=1).astimezone(UTC), early
    low, high = min(before, after), max(before, after)
    offset = low.astimezone(zone).utcoffset()
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) // 2
        low, high = (middle, high) if middle.astimezone(zone).utcoffset() == offset else (low, middle)
    return high.replace(microsecond=0)


def midnight(day: date, zone: ZoneInfo) -> datetime:
    return instant(datetime.combine(day, time()), zone)


def local_day(now: datetime, zone: str) -> date:
    return now.astimezone(zone_of(zone)).date()


@dataclass(frozen=True, kw_only=True)
class Window:
    """From one wall time to another, of every day; across midnight where it begins later than it ends."""

    begins: time
    ends: time
    zone: str

    @classmethod
    def parse(cls, text: str) -> "Window":
        found = _WINDOW.fullmatch(text.strip())
        try:
            if found is None:
                raise ValueError
            begins, ends = time(int(found[1]), int(found[2])), time(int(found[3]), int(found[4]))
            if begins == ends:
                raise ValueError
        except ValueError:
            raise UsageError(
                f"invalid window {text!r}",
                code="bad_window",
                hint="give two different times and a zone: 01:00-05:00 Europe/Berlin",
            ) from None
        zone = found[5] or "UTC"
        zone_of(zone)
        return cls(begins=begins, ends=ends, zone=zone)

    def is_open(self, now: datetime) -> bool:
        wall = now.astimezone(zone_of(self.zone)).time()
        if self.begins < self.ends:
            return self.begins <= wall < self.ends
        return wall >= self.begins or wall < self.ends

    def opens_at(self, now: datetime) -> datetime:
        """Now, or the next time it opens."""
        if self.is_open(now):
            return now
        zone = zone_of(self.zone)
        today = now.astimezone(zone).date()
        days = (today + number * _DAY for number in range(3))
        return next(at for day in days if (at := instant(datetime.combine(day, self.begins), zone)) > now)

    def __str__(self) -> str:
        return f"{self.begins:%H:%M}-{self.ends:%H:%M} {self.zone}"
