"""A schedule of backups as a value: when one is due, what it is called, and what is kept of them.

An occurrence is known by its date on the clocks of a zone, or, where there are several in a day, by its instant. So
however often somebody asks, and whatever the clocks did that day, it is one. Of those that were missed the last one
counts: the others would hold the same rows.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from calve.model.errors import UsageError
from calve.policy.calendar import instant, zone_of

DAY = timedelta(days=1)
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_AT = re.compile(r"(?:([A-Za-z]{3})\s+)?(\d\d):(\d\d)(?:\s+(\S+))?")
_LONGEST = 366 * DAY


@dataclass(frozen=True, kw_only=True)
class TimeOfDay:
    """A time on the clocks of a zone; for weeks, of a day."""

    at: time
    zone: str = "UTC"
    weekday: int | None = None  # None: none was given, and Monday counts

    @classmethod
    def parse(cls, text: str) -> "TimeOfDay":
        found = _AT.fullmatch(text.strip())
        try:
            if found is None:
                raise ValueError
            weekday = _WEEKDAYS.index(found[1].lower()) if found[1] else None
            at = time(int(found[2]), int(found[3]))
        except ValueError:
            raise UsageError(
                f"invalid time {text!r}",
                code="bad_time",
                hint="give a time and a zone: 02:00 Europe/Berlin; for weeks with a day: sun 02:00 Europe/Berlin",
            ) from None
        zone = found[4] or "UTC"
        zone_of(zone)
        return cls(at=at, zone=zone, weekday=weekday)


@dataclass(frozen=True, kw_only=True)
class Occurrence:
    """One time at which a schedule is due. `begins_at` is later by its share of the jitter."""

    name: str  # 2026-11-19, or 2026-11-19T0100Z
    at: datetime
    begins_at: datetime


@dataclass(frozen=True, kw_only=True)
class Schedule:
    name: str
    source: str  # in the configuration
    tables: tuple[str, ...]  # patterns: db.*
    every: timedelta
    clock: TimeOfDay
    jitter: timedelta = timedelta()
    seed: str = ""  # of the jitter: schedules of one name begin at different moments in different places
    keep: tuple[tuple[str, int], ...] = ()  # last, daily, weekly, … and how many; none: nothing is deleted
    rbac: bool = False
    ignore_row_policies: bool = False
    verify: float = 0.0  # the share of each backup that is read back
    drill_every: timedelta | None = None
    drill_bytes: int = 10**9

    @property
    def subject(self) -> str:
        """How the store names what it started."""
        return f"schedule {self.name}"

    @property
    def longest_gap(self) -> timedelta:
        """Between two backups that begin in time. A day may have 25 hours."""
        return self.every + self.jitter + timedelta(hours=1)

    def check(self) -> None:
        """UsageError for an interval that no calendar has."""
        if not self.name[:1].isalnum():
            raise UsageError(
                f"invalid name {self.name!r} of a schedule",
                code="config_bad_value",
                hint="begin with a letter or digit: names of its backups begin with it",
            )
        whole_days = self.every >= DAY and self.every % DAY == timedelta()
        divides_a_day = timedelta(minutes=5) <= self.every < DAY and DAY % self.every == timedelta()
        if not (whole_days or divides_a_day) or self.every > _LONGEST:
            raise UsageError(
                "invalid every: no calendar has that interval",
                code="config_bad_value",
                hint="give whole days or weeks (1d, 2w), or what divides a day (6h, 30m)",
            )
        if self.clock.weekday is not None and self.every % (7 * DAY):
            raise UsageError(
                "`at` names a day of the week, and `every` is not in weeks",
                code="config_bad_value",
                hint='give every = "1w", or omit the day',
            )
        if self.jitter >= self.every:
            raise UsageError(
                "the jitter is as long as the interval",
                code="config_bad_value",
                hint="give a shorter one: jitter = 5m",
            )

    def backup(self, occurrence: Occurrence) -> str:
        """The name of its backup."""
        return f"{self.name}-{occurrence.name}"

    def last(self, now: datetime) -> Occurrence:
        """The newest that has begun."""
        return next(one for one in self.before(now) if one.begins_at <= now)

    def before(self, now: datetime) -> Iterator[Occurrence]:
        """Newest first, without an end."""
        day = self._local(now) + DAY
        while True:
            yield from reversed([one for one in self._of(day) if one.at <= now])
            day -= DAY

    def after(self, now: datetime) -> Iterator[Occurrence]:
        """Those that have not begun, without an end."""
        day = self._local(now) - DAY
        while True:
            yield from (one for one in self._of(day) if one.begins_at > now)
            day += DAY

    def _local(self, now: datetime) -> date:
        return now.astimezone(zone_of(self.clock.zone)).date()

    def _of(self, day: date) -> Iterator[Occurrence]:
        """Of one date. Several in a day are steps of time that passes, not of clocks that change."""
        first, following = self._instant(day), self._instant(day + DAY)
        if self.every >= DAY:
            # Day 1 of year 1 was a Monday. Counted from there, no date depends on when anybody began to count.
            if (day.toordinal() - 1 - (self.clock.weekday or 0)) % self.every.days == 0:
                yield self._occurrence(day.isoformat(), first)
            return
        for step in range(round((following - first) / self.every)):
            at = first + step * self.every
            yield self._occurrence(f"{at:%Y-%m-%dT%H%MZ}", at)

    def _instant(self, day: date) -> datetime:
        """Where clocks skip it, the first instant after; where it comes twice, the first of the two."""
        return instant(datetime.combine(day, self.clock.at), zone_of(self.clock.zone)).astimezone(UTC)

    def _occurrence(self, name: str, at: datetime) -> Occurrence:
        digest = hashlib.sha256(f"{self.seed}\n{self.name}\n{name}".encode()).digest()
        share = int.from_bytes(digest[:4], "big") / 2**32
        late = timedelta(seconds=int(self.jitter.total_seconds() * share))
        return Occurrence(name=name, at=at, begins_at=at + late)
