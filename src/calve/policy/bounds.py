"""The time that a partition covers, from its key and its value. Only functions on a list are read: each is monotone, and
its values are compared with ClickHouse's own in a test. Everything else has no time key.

A DateTime means its column's zone, the function's, or the server's. A Date has none: its day is over when it is over
everywhere on earth.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from calve.clickhouse.sql.tokens import Call, Expression, Name, Number, Text, expression, members, unquote
from calve.policy.calendar import instant, midnight, zone_of
from calve.policy.stand import SKEW_AT_MOST

_NOTHING, _HOUR, _DAY = timedelta(), timedelta(hours=1), timedelta(days=1)
_FIRST_YEAR = 1971  # before, and for values that are not set, functions of a Date answer with 1970
_LAST_MIDNIGHT = timedelta(hours=12)  # after UTC's, at UTC-12
_TIME = re.compile(r"(?:Nullable\()?(?:LowCardinality\()?(Date32|DateTime64|DateTime|Date)(?:\((.*?)\))?\)*")


class NoTimeKey(StrEnum):
    """Why a partition key says nothing about time."""

    NONE = "no_time_key"
    CYCLIC = "cyclic_key"  # its values come again: months of any year


@dataclass(frozen=True, kw_only=True)
class TimeBounds:
    """Of the rows in a partition: from `lower` to before `upper`. Of a Date both are midnights of UTC."""

    lower: datetime
    upper: datetime
    closed_at: datetime  # when no row of it can be of the present any more


class Unit(StrEnum):
    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    QUARTER = "quarter"
    YEAR = "year"


_FUNCTIONS: Mapping[str, tuple[Unit, int]] = {
    "toDate": (Unit.DAY, 1),
    "toDate32": (Unit.DAY, 1),
    "toStartOfDay": (Unit.DAY, 1),
    "toYYYYMMDD": (Unit.DAY, 1),
    "toYYYYMM": (Unit.MONTH, 1),
    "toStartOfMonth": (Unit.MONTH, 1),
    "toStartOfQuarter": (Unit.QUARTER, 1),
    "toYear": (Unit.YEAR, 1),
    "toStartOfYear": (Unit.YEAR, 1),
    "toMonday": (Unit.WEEK, 1),
    "toStartOfWeek": (Unit.WEEK, 1),
    "toStartOfHour": (Unit.HOUR, 1),
    "toStartOfFifteenMinutes": (Unit.MINUTE, 15),
    "toStartOfTenMinutes": (Unit.MINUTE, 10),
    "toStartOfFiveMinutes": (Unit.MINUTE, 5),
    "toStartOfFiveMinute": (Unit.MINUTE, 5),
    "toStartOfMinute": (Unit.MINUTE, 1),
}
_INTERVALS = {
    "toIntervalHour": Unit.HOUR,
    "toIntervalDay": Unit.DAY,
    "toIntervalWeek": Unit.WEEK,
    "toIntervalMonth": Unit.MONTH,
    "toIntervalQuarter": Unit.QUARTER,
    "toIntervalYear": Unit.YEAR,
}
_CYCLIC = frozenset(
    [
        "toMonth",
        "toHour",
        "toMinute",
        "toSecond",
        "toDayOfWeek",
        "toDayOfMonth",
        "toDayOfYear",
        "toWeek",
        "toISOWeek",
        "toQuarter",
        "modulo",
    ]
)


@dataclass(frozen=True, kw_only=True)
class TimeKey:
    """The one member of a partition key that says when."""

    member: int
    members: int
    column: str
    unit: Unit
    count: int  # of minutes
    zone: str  # "": of a Date, which has none
    plain: bool  # the other members are columns, so that rows of the partition can be told by their values

    def bounds(self, value: str) -> TimeBounds | None:
        """`value` as ClickHouse writes it in `system.parts`; None for what does not read as a time."""
        parts = members(value) if self.members > 1 else [value]
        if len(parts) != self.members:
            return None
        text = parts[self.member].strip()
        try:
            begins = _begin(unquote(text) if text.startswith("'") else text, self.unit)
            if begins.year < _FIRST_YEAR:
                return None
            ends = _end(begins, self.unit, self.count)
            if not self.zone:
                lower, upper = begins.replace(tzinfo=UTC), ends.replace(tzinfo=UTC)
                return TimeBounds(lower=lower, upper=upper, closed_at=upper + _LAST_MIDNIGHT)
            lower, upper = _placed(begins, ends, self.unit, zone_of(self.zone))
        except (ValueError, OverflowError):
            return None
        return TimeBounds(lower=lower, upper=upper, closed_at=upper)


def time_key(key: str, types: Mapping[str, str], server_zone: str) -> TimeKey | NoTimeKey:
    """Of a partition key as `system.tables` has it. `types` are those of the columns, by name."""
    found = [expression(member) for member in members(key)]
    times = [(number, _member(one, types, server_zone)) for number, one in enumerate(found)]
    keys = [(number, one) for number, one in times if isinstance(one, tuple)]
    if len(keys) != 1:
        cyclic = any(one is NoTimeKey.CYCLIC for _, one in times)
        return NoTimeKey.CYCLIC if cyclic and not keys else NoTimeKey.NONE
    number, (column, unit, count, zone) = keys[0]
    others = [one for at, one in enumerate(found) if at != number]
    return TimeKey(
        member=number,
        members=len(found),
        column=column,
        unit=unit,
        count=count,
        zone=zone,
        plain=all(isinstance(one, Name) for one in others),
    )


_Member = tuple[str, Unit, int, str]


def _member(one: Expression | None, types: Mapping[str, str], server_zone: str) -> _Member | NoTimeKey | None:
    match one:
        case Name(name=column) if (kind := _time_type(types.get(column, ""))) and kind[0].startswith("Date"):
            return (column, Unit.DAY, 1, "") if kind[0] in ("Date", "Date32") else None
        case Call(function=name) if name in _CYCLIC:
            return NoTimeKey.CYCLIC
        case Call(function=name, arguments=(Name(name=column), *rest)) if kind := _time_type(
            types.get(column, "")
        ):
            read = _function(name, rest)
            if read is None:
                return None
            unit, count, zone = read
            if kind[0] in ("Date", "Date32"):
                # Of a Date, hours and an explicit zone mean something else.
                return (
                    (column, unit, count, "") if unit not in (Unit.HOUR, Unit.MINUTE) and not zone else None
                )
            return column, unit, count, zone or kind[1] or server_zone
    return None


def _time_type(type: str) -> tuple[str, str] | None:
    """Its name, and its zone where it has one."""
    found = _TIME.fullmatch(type)
    if found is None:
        return None
    zones = re.findall(r"'([^']*)'", found[2] or "")
    return found[1], zones[-1] if zones else ""


def _function(name: str, rest: list[Expression | None]) -> tuple[Unit, int, str] | None:
    """Unit, count and zone of a function on the list, given what comes after its column."""
    if name == "toStartOfInterval":
        match rest:
            case [Call(function=interval, arguments=(Number(value=1),)), *zones] if interval in _INTERVALS:
                return _zoned((_INTERVALS[interval], 1), zones)
        return None
    if name == "toStartOfWeek":
        match rest:
            case [
                Number(value=1),
                *zones,
            ]:  # from Monday; without it from Sunday, which `_begin` reads as well
                return _zoned((Unit.WEEK, 1), zones)
            case [] | [Number(value=0)]:
                return Unit.WEEK, 1, ""
        return None
    return _zoned(_FUNCTIONS[name], rest) if name in _FUNCTIONS else None


def _zoned(read: tuple[Unit, int], zones: list[Expression | None]) -> tuple[Unit, int, str] | None:
    match zones:
        case []:
            return *read, ""
        case [Text(value=zone)]:
            return *read, zone
    return None


def _begin(text: str, unit: Unit) -> datetime:
    """Local time of the first moment: of 202401, 2024, 20240131, 2024-01-31 or 2024-01-31 10:00:00."""
    if not text.isdigit():
        return datetime.fromisoformat(text)
    if len(text) != {Unit.YEAR: 4, Unit.MONTH: 6, Unit.DAY: 8}.get(unit):
        raise ValueError(text)
    first = date(int(text[:4]), int(text[4:6] or 1), int(text[6:8] or 1))
    return datetime.combine(first, time())


def _end(begins: datetime, unit: Unit, count: int) -> datetime:
    match unit:
        case Unit.MINUTE:
            return begins + timedelta(minutes=count)
        case Unit.HOUR:
            return begins + timedelta(hours=1)
        case Unit.DAY:
            return begins + _DAY
        case Unit.WEEK:
            return begins + 7 * _DAY
        case Unit.MONTH | Unit.QUARTER | Unit.YEAR:
            months = {Unit.MONTH: 1, Unit.QUARTER: 3, Unit.YEAR: 12}[unit]
            month = begins.month - 1 + months
            return begins.replace(year=begins.year + month // 12, month=month % 12 + 1)


def _placed(begins: datetime, ends: datetime, unit: Unit, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """On the line of instants. An hour that comes twice is one value: it lasts until the second is over."""
    if unit not in (Unit.HOUR, Unit.MINUTE):
        return midnight(begins.date(), zone), midnight(ends.date(), zone)
    first, last = instant(begins, zone), begins.replace(tzinfo=zone, fold=1).astimezone(UTC)
    shifts = [(at.astimezone(zone).utcoffset() or _NOTHING) % _HOUR for at in (first - _DAY, last + _DAY)]
    if shifts[0] != shifts[1]:
        raise ValueError(begins)  # clocks change by half an hour here, which divides hours
    return first, max(first, last) + (ends - begins)


def not_over(
    key: TimeKey | NoTimeKey, value: str, others: Iterable[str], now: datetime, skew: timedelta
) -> tuple[str, str] | None:
    """A code and words unless the time of the partition is over for good: only then may it leave its table. `others`
    are the values of all partitions that the table has; `now` is the earlier of two clocks, the store's and the
    source's."""
    if abs(skew) > SKEW_AT_MOST:
        return "clock_skew", "the clocks of the source and the store differ by more than five minutes"
    if key is NoTimeKey.CYCLIC:
        return "cyclic_key", "its partition key repeats, as months without a year do"
    if not isinstance(key, TimeKey):
        return "no_time_key", "its partition key gives no time that Calve can read"
    bounds = key.bounds(value)
    if bounds is None:
        return (
            "no_bounds",
            f"its value {value!r} is not a time, or lies in 1970, where unset values end up",
        )
    if bounds.closed_at > now:
        return "not_over", f"its time range ends only at {bounds.closed_at:%Y-%m-%d %H:%M} UTC"
    begins = [found.lower for one in others if (found := key.bounds(one)) is not None]
    if bounds.lower >= max(begins, default=bounds.lower):
        return "newest_partition", "it is the newest partition of the table"
    return None
