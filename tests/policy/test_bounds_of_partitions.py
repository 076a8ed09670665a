"""The time that a partition covers is what ClickHouse itself files under its value, in every zone."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from calve.clickhouse.embedded.source import EmbeddedSession, EmbeddedSource
from calve.policy.bounds import NoTimeKey, TimeBounds, TimeKey, Unit, time_key

ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kolkata", "Pacific/Apia",
         "America/Sao_Paulo", "Australia/Lord_Howe")  # fmt: skip
INSTANTS = [
    datetime.fromisoformat(text).replace(tzinfo=UTC)
    for text in (
        "1971-06-02 12:00:00", "2016-02-29 23:59:59", "2018-11-04 02:30:00",  # a day that begins at 01:00 in Sao Paulo
        "2024-02-29 00:00:00", "2024-03-31 00:30:00", "2024-03-31 01:30:00", "2024-10-27 00:30:00",
        "2024-10-27 01:30:00", "2024-12-31 23:30:00", "2025-01-01 00:00:00", "2024-06-30 12:00:00",
        "2011-12-30 11:00:00",  # Apia had no such day
        "2024-04-06 15:10:00", "2024-10-05 15:40:00", "2085-12-31 20:00:00",
    )
]  # fmt: skip
FUNCTIONS = [
    "toDate({})", "toDate32({})", "toStartOfDay({})", "toYYYYMMDD({})", "toYYYYMM({})", "toStartOfMonth({})",
    "toStartOfQuarter({})", "toYear({})", "toStartOfYear({})", "toMonday({})", "toStartOfWeek({})",
    "toStartOfWeek({}, 1)", "toStartOfHour({})", "toStartOfFifteenMinutes({})", "toStartOfTenMinutes({})",
    "toStartOfFiveMinutes({})", "toStartOfMinute({})", "toStartOfInterval({}, toIntervalHour(1))",
    "toStartOfInterval({}, toIntervalDay(1))", "toStartOfInterval({}, toIntervalWeek(1))",
    "toStartOfInterval({}, toIntervalMonth(1))", "toStartOfInterval({}, toIntervalQuarter(1))",
    "toStartOfInterval({}, toIntervalYear(1))",
]  # fmt: skip
_SECOND = timedelta(seconds=1)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedSession]:
    with EmbeddedSource(
        "main", tmp_path_factory.mktemp("bounds") / "clickhouse", create=True
    ).visit() as visit:
        yield visit


def _values(session: EmbeddedSession, asked: list[tuple[str, str, datetime]]) -> list[str]:
    """What ClickHouse makes of each instant, in a few queries."""
    found: list[str] = []
    for first in range(0, len(asked), 500):
        items = []
        for function, zone, at in asked[first : first + 500]:
            column = f"toDateTime64({at.timestamp():.0f}, 0, '{zone}')"
            items.append(f"toString({function.format(column)})")
        found += session.rows(f"SELECT [{', '.join(items)}] AS found")[0]["found"]
    return found


def test_bounds_are_where_clickhouse_changes_the_value(session: EmbeddedSession) -> None:
    asked = [(function, zone, at) for function in FUNCTIONS for zone in ZONES for at in INSTANTS]
    values = _values(session, asked)
    edges: list[tuple[str, str, datetime]] = []
    found: list[tuple[str, str, str, datetime, TimeBounds]] = []
    for (function, zone, at), value in zip(asked, values, strict=True):
        key = time_key(function.format("ts"), {"ts": f"DateTime64(0, '{zone}')"}, "UTC")
        assert isinstance(key, TimeKey), function
        bounds = key.bounds(value)
        if bounds is None and key.unit in (Unit.HOUR, Unit.MINUTE) and zone == "Australia/Lord_Howe":
            continue  # around the days when clocks change by half an hour
        assert bounds is not None, (function, zone, value)
        found.append((function, zone, value, at, bounds))
        edges += [
            (function, zone, one)
            for one in (bounds.lower - _SECOND, bounds.lower, bounds.upper - _SECOND, bounds.upper)
        ]
    said = _values(session, edges)
    wrong = []
    for number, (function, zone, value, at, bounds) in enumerate(found):
        before, first, last, after = said[4 * number : 4 * number + 4]
        whole = bounds.lower <= at < bounds.upper and first == last == value and value not in (before, after)
        if not whole:
            wrong.append(
                (function, zone, value, str(bounds.lower), str(bounds.upper), before, first, last, after)
            )
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("toMonth(ts)", NoTimeKey.CYCLIC),
        ("(toHour(ts), tenant)", NoTimeKey.CYCLIC),
        ("tenant", NoTimeKey.NONE),
        ("tuple()", NoTimeKey.NONE),
        ("", NoTimeKey.NONE),
        ("ts % 10", NoTimeKey.NONE),
        ("intHash32(ts)", NoTimeKey.NONE),
        ("ts", NoTimeKey.NONE),  # each second is a partition of its own
        ("(toYYYYMM(ts), toDate(ts))", NoTimeKey.NONE),  # two of them
        ("toStartOfInterval(ts, toIntervalHour(6))", NoTimeKey.NONE),
        ("toStartOfHour(day)", NoTimeKey.NONE),
        ("toYYYYMM(ts, zone)", NoTimeKey.NONE),
        ("date_trunc('month', ts)", NoTimeKey.NONE),
    ],
)
def test_what_is_not_on_the_list_has_no_time(key: str, code: NoTimeKey) -> None:
    types = {"ts": "DateTime", "day": "Date", "tenant": "UInt32", "zone": "String"}
    assert time_key(key, types, "UTC") is code


def test_a_zone_comes_from_the_function_else_the_column_else_the_server() -> None:
    zones = [
        key.zone
        for text, type in (
            ("toYYYYMM(ts, 'Asia/Kolkata')", "DateTime('Europe/Berlin')"),
            ("toYYYYMM(ts)", "Nullable(DateTime64(3, 'Europe/Berlin'))"),
            ("toYYYYMM(ts)", "DateTime"),
        )
        if isinstance(key := time_key(text, {"ts": type}, "Pacific/Apia"), TimeKey)
    ]
    assert zones == ["Asia/Kolkata", "Europe/Berlin", "Pacific/Apia"]


def test_a_day_without_a_zone_is_over_when_it_is_over_everywhere() -> None:
    key = time_key("day", {"day": "Date"}, "Europe/Berlin")
    assert isinstance(key, TimeKey)
    found = key.bounds("2024-01-31")
    assert found is not None
    assert found.upper == datetime(2024, 2, 1, tzinfo=UTC)
    assert found.closed_at == datetime(2024, 2, 1, 12, tzinfo=UTC)


def test_the_time_is_read_out_of_a_tuple() -> None:
    key = time_key("(tenant, toYYYYMM(ts))", {"ts": "DateTime('UTC')", "tenant": "String"}, "UTC")
    assert key == TimeKey(member=1, members=2, column="ts", unit=Unit.MONTH, count=1, zone="UTC", plain=True)
    found = key.bounds("('a,(\\'b',202402)")
    assert found is not None
    assert (found.lower, found.upper) == (datetime(2024, 2, 1, tzinfo=UTC), datetime(2024, 3, 1, tzinfo=UTC))
    other = time_key("(cityHash64(tenant), toYYYYMM(ts))", {"ts": "DateTime", "tenant": "String"}, "UTC")
    assert isinstance(other, TimeKey)
    assert not other.plain


@pytest.mark.parametrize(
    "value", ["NULL", "", "197001", "202413", "2024", "all", "-1", "99999999999", "('a',202401)"]
)
def test_a_value_that_is_no_time_has_no_bounds(value: str) -> None:
    key = time_key("toYYYYMM(ts)", {"ts": "DateTime"}, "UTC")
    assert isinstance(key, TimeKey)
    assert key.bounds(value) is None
