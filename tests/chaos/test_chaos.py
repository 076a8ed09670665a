"""A minute of chaos: real programs and services, broken and healed, and everything read by value at the end.

The plan is always the same, so that a change is blamed for what it breaks; `CALVE_SEED` is another. `make chaos MINUTES=…` draws one, and
runs longer.
"""

import os
from pathlib import Path

import pytest

from support.chaos.bugs import command
from support.chaos.run import Asked, run

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.programs, pytest.mark.timeout(1200)]

MINUTES = 1.0  # of strikes; starting, ending and reading take another


def test_every_row_is_there_once_after_a_minute_of_strikes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("CALVE_SEED", "21"))
    report = run(Asked(seed=seed, minutes=MINUTES, folder=tmp_path))
    report.write()
    print(report.told())
    assert report.ok, report.told()
    assert report.rows_compared > 0
    assert report.outcomes()["export"]["COMPLETED"] >= 2


@pytest.mark.long
@pytest.mark.parametrize(
    ("bug", "words"), [("doubled_files", "is there 2 times"), ("forgotten_pins", "is at ClickHouse")]
)
def test_a_mistake_that_is_planted_in_real_workers_is_found(tmp_path: Path, bug: str, words: str) -> None:
    report = run(Asked(seed=5, minutes=0.3, folder=tmp_path, command=command(bug), settle_seconds=60.0))
    assert any(words in one for one in report.problems), report.told()
