"""Windows are wall time of a zone: on the days when clocks change too."""

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest

from calve.model.errors import UsageError
from calve.policy.calendar import Window, local_day, midnight


def _utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_a_window_is_open_from_its_first_minute_until_before_its_last() -> None:
    window = Window.parse("01:00-05:00 Europe/Berlin")
    said = [window.is_open(_utc(f"2024-01-10 {at}")) for at in ("23:59", "00:00", "03:59", "04:00")]
    assert said == [False, True, True, False]
    assert str(window) == "01:00-05:00 Europe/Berlin"


def test_a_window_may_lead_across_midnight() -> None:
    window = Window.parse("22:00-02:00 UTC")
    said = [window.is_open(_utc(f"2024-01-10 {at}")) for at in ("21:59", "22:00", "01:59", "02:00")]
    assert said == [False, True, True, False]


@pytest.mark.parametrize(
    ("now", "opens"),
    [
        ("2024-01-10 12:00", "2024-01-11 01:30"),
        ("2024-01-10 01:00", "2024-01-10 01:30"),
        ("2024-03-30 12:00", "2024-03-31 01:00"),  # 02:30 does not exist: clocks go from 02:00 to 03:00
        ("2024-10-26 12:00", "2024-10-27 00:30"),  # 02:30 comes twice: the first
    ],
)
def test_the_next_opening_is_found_on_days_when_clocks_change(now: str, opens: str) -> None:
    assert Window.parse("02:30-04:00 Europe/Berlin").opens_at(_utc(now)) == _utc(opens)


def test_an_open_window_opens_now() -> None:
    now = _utc("2024-01-10 02:00")
    assert Window.parse("01:00-05:00").opens_at(now) == now


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1:00-2:00",
        "01:00",
        "25:00-26:00 UTC",
        "01:00-01:00",
        "01:00-02:00 Mars/Olympus",
        "01:00-02:00 UTC x",
    ],
)
def test_what_is_no_window_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Window.parse(text)


def test_a_local_time_in_a_gap_is_the_first_instant_after_it() -> None:
    """In Sao Paulo the 4th of November 2018 began at 01:00; Apia left out the 30th of December 2011."""
    assert midnight(date(2018, 11, 4), ZoneInfo("America/Sao_Paulo")) == _utc("2018-11-04 03:00")
    assert midnight(date(2011, 12, 30), ZoneInfo("Pacific/Apia")) == _utc("2011-12-30 10:00")


def test_a_day_begins_at_midnight_of_its_zone() -> None:
    assert str(local_day(_utc("2024-01-10 23:30"), "Europe/Berlin")) == "2024-01-11"
