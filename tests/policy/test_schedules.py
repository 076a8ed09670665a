"""A schedule has one occurrence for each local date, whatever the clocks do; several in a day are steps of time."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest

from calve.model.errors import UsageError
from calve.policy.schedule import Occurrence, Schedule, TimeOfDay


def _utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def _schedule(
    at: str = "02:00 Europe/Berlin", every: timedelta = timedelta(days=1), **given: timedelta
) -> Schedule:
    made = Schedule(
        name="nightly", source="main", tables=("db.*",), every=every, clock=TimeOfDay.parse(at), **given
    )  # type: ignore[arg-type]
    made.check()
    return made


def test_a_day_of_the_week_is_for_weeks() -> None:
    _schedule("sun 02:00 UTC", timedelta(weeks=2))
    with pytest.raises(UsageError, match="day of the week"):
        _schedule("sun 02:00 UTC")


def _said(found: Iterable[Occurrence]) -> list[tuple[str, str]]:
    return [(one.name, f"{one.at:%m-%d %H:%M}") for one in found]


@pytest.mark.parametrize(
    ("at", "now", "expected"),
    [
        # 02:30 does not exist on the day when clocks go from 02:00 to 03:00: the first instant after.
        ("02:30 Europe/Berlin", "2026-03-28 00:00", ["03-28 01:30", "03-29 01:00", "03-30 00:30"]),
        # It comes twice on the day when they go back: the first of the two, and no other.
        ("02:30 Europe/Berlin", "2026-10-24 00:00", ["10-24 00:30", "10-25 00:30", "10-26 01:30"]),
        # Lord Howe's clocks move by half an hour: at 02:00 to 02:30, and from 02:00 to 01:30.
        ("02:15 Australia/Lord_Howe", "2026-10-02 16:00", ["10-03 15:30", "10-04 15:15", "10-05 15:15"]),
        ("01:45 Australia/Lord_Howe", "2026-04-03 12:00", ["04-03 14:45", "04-04 14:45", "04-05 15:15"]),
        ("23:59", "2028-02-28 00:00", ["02-28 23:59", "02-29 23:59", "03-01 23:59"]),
    ],
)
def test_each_local_date_has_one(at: str, now: str, expected: list[str]) -> None:
    schedule = _schedule(at)
    found = list(islice(schedule.after(_utc(now)), 3))
    assert [f"{one.at:%m-%d %H:%M}" for one in found] == expected
    dates = [one.name for one in islice(schedule.before(_utc("2027-01-01 12:00")), 400)]
    assert len(set(dates)) == 400
    assert dates == sorted(dates, reverse=True)


def test_every_look_of_a_day_on_which_clocks_change_means_the_same_occurrence() -> None:
    schedule = _schedule("02:30 Europe/Berlin")
    for day, hours in (("2026-03-29 01:00", 23.5), ("2026-10-25 00:30", 25)):
        begins = _utc(day)
        looks = [begins + timedelta(minutes=15 * step) for step in range(int(hours * 4))]
        assert {schedule.last(now) for now in looks} == {schedule.last(begins)}
        assert schedule.last(begins).at == begins
        assert schedule.last(begins - timedelta(seconds=1)) != schedule.last(begins)


@pytest.mark.parametrize(
    ("every", "day", "count"),
    [(1, "2026-03-29", 23), (1, "2026-10-25", 25), (6, "2026-03-29", 4), (6, "2026-10-25", 4)],
)
def test_several_in_a_day_are_steps_of_time_that_passes(every: int, day: str, count: int) -> None:
    schedule = _schedule("00:00 Europe/Berlin", timedelta(hours=every))
    local = [
        one
        for one in islice(schedule.after(_utc(f"{day} 00:00") - timedelta(days=1)), 80)
        if one.at.astimezone(ZoneInfo("Europe/Berlin")).date().isoformat() == day
    ]
    assert len(local) == count
    assert len({one.name for one in local}) == count
    assert {later.at - earlier.at for earlier, later in pairwise(local)} == {timedelta(hours=every)}


def test_weeks_begin_on_the_day_that_is_given_and_count_from_no_beginning() -> None:
    weekly = _schedule("sun 02:00 Europe/Berlin", timedelta(weeks=1))
    assert _said(islice(weekly.after(_utc("2026-11-19 00:00")), 2)) == [
        ("2026-11-22", "11-22 01:00"),
        ("2026-11-29", "11-29 01:00"),
    ]
    other = _schedule("02:00", timedelta(days=2))
    late = [one.name for one in islice(other.after(_utc("2026-11-21 12:00")), 2)]
    assert [one.name for one in islice(other.after(_utc("2026-11-19 12:00")), 3)][1:] == late


def test_of_those_that_were_missed_the_last_one_counts() -> None:
    schedule = _schedule()
    assert schedule.last(_utc("2026-11-26 00:59")).name == "2026-11-25"
    assert schedule.last(_utc("2026-11-26 01:00")).name == "2026-11-26"
    assert schedule.backup(schedule.last(_utc("2026-11-26 01:00"))) == "nightly-2026-11-26"


def test_jitter_delays_each_in_its_own_way_and_for_every_worker_alike() -> None:
    one, again = _schedule(jitter=timedelta(minutes=30)), _schedule(jitter=timedelta(minutes=30))
    delays = [found.begins_at - found.at for found in islice(one.after(_utc("2026-11-19 00:00")), 50)]
    assert len(set(delays)) > 40
    assert timedelta() <= min(delays) < max(delays) < timedelta(minutes=30)
    first = next(one.after(_utc("2026-11-19 00:00")))
    assert next(again.after(_utc("2026-11-19 00:00"))) == first
    assert one.last(first.begins_at) == first
    assert one.last(first.begins_at - timedelta(seconds=1)) != first


@pytest.mark.parametrize("text", ["", "2:00", "25:00 UTC", "02:00 Mars/Olympus", "day 02:00", "02:00 UTC x"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        TimeOfDay.parse(text)


@pytest.mark.parametrize(
    "every",
    [timedelta(hours=5), timedelta(hours=25), timedelta(minutes=1), timedelta(), timedelta(days=400)],
)
def test_an_interval_that_no_calendar_has_is_refused(every: timedelta) -> None:
    with pytest.raises(UsageError, match="invalid every"):
        _schedule(every=every)


def test_a_jitter_as_long_as_the_interval_is_refused() -> None:
    with pytest.raises(UsageError, match="jitter"):
        _schedule(every=timedelta(hours=1), jitter=timedelta(hours=1))
