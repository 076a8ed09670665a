"""Numbers, times, names and states are said as people read them."""

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.cli import output
from calve.model.states import ProcessState, TaskState
from calve.web import words

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


@given(st.integers(min_value=0, max_value=10**18))
def test_sizes_and_counts_are_those_of_the_command_line(number: int) -> None:
    assert words.size(number) == output.size(number)
    assert words.count(number) == output.count(number)
    assert words.counted(number, "row") == output.counted(number, "row")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0.0 s"), (0.004, "4 ms"), (0.4, "0.4 s"), (9.96, "10.0 s"), (42, "42 s"), (192, "3 min 12 s"),
        (3600, "1 h"), (7500, "2 h 5 min"), (273_600, "3 d 4 h"), (-3, "0.0 s"), (math.nan, "–"), (None, "–"),
    ],
)  # fmt: skip
def test_a_span_has_its_two_largest_units(seconds: float | None, said: str) -> None:
    assert words.span(seconds) == said


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("2026-11-16T11:56:00Z", "4 minutes ago"), ("2026-11-16T12:00:00Z", "just now"),
        ("2026-11-16T11:59:59Z", "1 second ago"), ("2026-11-16T15:00:00Z", "in 3 hours"),
        ("2026-11-09T12:00:00+00:00", "1 week ago"), ("2024-11-16T12:00:00Z", "2 years ago"),
        ("", "never"), (None, "never"), ("yesterday", "never"),
    ],
)  # fmt: skip
def test_an_age_is_a_word_by_the_clock_of_the_store(at: str | None, said: str) -> None:
    assert words.ago(at, NOW) == said
    assert words.ago(at, NOW.isoformat()) == said


def test_an_exact_time_has_its_zone() -> None:
    assert words.exact("2026-11-16T13:30:05+01:00") == "2026-11-16 12:30:05 UTC"
    assert words.exact(None) == "" and words.day("2026-11-03") == "3 November"


@pytest.mark.parametrize(
    ("number", "in_a_column", "alone"),
    [(999, "999", "999"), (9_999, "9,999", "9,999"), (12_300, "12.3 k", "12,300"), (41_200_000, "41.2 M", "41.2 million"), (4_200_000_000, "4.2 G", "4.2 billion")],
)  # fmt: skip
def test_large_numbers_are_short(number: int, in_a_column: str, alone: str) -> None:
    assert (words.short(number), words.large(number)) == (in_a_column, alone)


@pytest.mark.parametrize(
    ("part", "whole", "said"),
    [(0, 10, "0 %"), (1, 1000, "1 %"), (999, 1000, "99 %"), (10, 10, "100 %"), (5, 0, "0 %"), (20, 10, "100 %"), (math.nan, 1, "0 %")],
)  # fmt: skip
def test_all_and_nothing_are_said_of_all_and_nothing_only(part: float, whole: float, said: str) -> None:
    assert words.percent(part, whole) == said


@pytest.mark.parametrize(
    "hidden", ["\0", "\n", "\x1b", "\x7f", "\x85", "\u200b", "\u200e", "\u202e", "\u2028", "\ufeff", "\ud800"]
)
def test_nothing_in_a_name_is_invisible(hidden: str) -> None:
    shown = words.cleaned(f"a{hidden}b")
    assert shown.startswith("a") and shown.endswith("b") and hidden not in shown and len(shown) > 2


@given(st.text(max_size=300), st.integers(min_value=5, max_value=100))
def test_a_name_is_cut_in_the_middle_and_stays_short(text: str, most: int) -> None:
    shown = words.cut(text, most)
    assert len(shown) <= most
    whole = words.cleaned(text)
    assert shown == whole or (whole.startswith(shown.split("…")[0]) and len(whole) > most)


def test_letters_of_two_alphabets_in_a_name_are_named() -> None:
    assert words.mixed("lake.ns.events") == "" and words.mixed("события_2024") == ""
    assert words.mixed("lake.ns.e\u03bdents") == "\u03bd is U+03BD"
    assert "U+03BD" in words.title("lake.ns.e\u03bdents")


def test_a_message_keeps_its_lines_and_has_a_bound() -> None:
    assert words.message("one\r\ntwo\tx\x1b") == "one\ntwo    x\u241b"
    assert len(words.message("x" * 10_000)) == 2_000


def process(**given: Any) -> dict[str, Any]:
    return {"state": "RUNNING", "error": None, "cancel_requested": False} | given


def test_every_state_has_a_word_an_icon_and_a_tone() -> None:
    for state in (*ProcessState, *TaskState):
        look = words.state_look(state.value)
        assert look.word and look.icon and look.tone in ("run", "ok", "wait", "bad", "off")
    assert words.process_look(process(cancel_requested=True)).word == "running, stopping"
    assert words.process_look(process(state="FAILED", error={"outcome": "unknown"})).icon == "unknown"
    assert words.process_look(process(damaged="no JSON")).word == "damaged"


def test_what_a_newer_version_says_is_shown_as_it_is() -> None:
    assert words.state_look("DREAMING").word == "dreaming"
    assert words.card_look("too_cold").word == "too cold"
    assert words.exported_look("half").word == "half" and words.exported_look(None).word == "not yet"
