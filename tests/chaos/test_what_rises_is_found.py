"""A soak's lines: level ones pass, however they jump about; one that rises for ever is named."""

import random

import pytest

from support.soak.picture import picture
from support.soak.slopes import Line

HOURS = 3
SECONDS = [30.0 * number for number in range(HOURS * 120)]


def line(
    rise_an_hour: float, *, measure: str = "memory MB", noise: float = 15.0, warm_up: float = 200.0
) -> Line:
    """Quickly up while it warms up, then jumping about a slope."""
    chance = random.Random(1)
    values = [
        300 + warm_up * min(at / 1800, 1.0) + rise_an_hour * at / 3600 + chance.uniform(-noise, noise)
        for at in SECONDS
    ]
    return Line(subject="worker 0", measure=measure, seconds=SECONDS, values=values)


def test_a_line_that_warms_up_and_then_jumps_about_is_level() -> None:
    assert line(0.0).fault() == ""
    assert abs(line(0.0).slope()) < 5


def test_a_line_that_rises_after_warming_up_is_a_leak_and_is_named() -> None:
    assert "worker 0: memory MB rose by" in line(100.0).fault()
    assert "threads rose by" in line(20.0, measure="threads", noise=2.0).fault()


def test_single_peaks_do_not_count() -> None:
    peaks = line(0.0)
    values = [value + 2_000 * (number % 17 == 0) for number, value in enumerate(peaks.values)]
    assert Line(subject="w", measure="memory MB", seconds=SECONDS, values=values).fault() == ""


def test_what_stays_by_design_is_drawn_and_not_judged() -> None:
    kept = line(10_000.0, measure="kept rows")
    assert kept.fault() == ""
    assert "kept rows" in picture([kept])


@pytest.mark.parametrize("samples", [0, 1, 5])
def test_too_few_samples_judge_nothing(samples: int) -> None:
    short = Line(
        subject="w", measure="handles", seconds=SECONDS[:samples], values=[1e6 * n for n in range(samples)]
    )
    assert short.fault() == ""
