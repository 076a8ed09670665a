"""Years of tiering over modelled services, seed by seed: see docs/year.md."""

import pytest

from support.year import table
from support.year.mistakes import MISTAKES, planted
from support.year.run import run
from support.year.world import YearCase

SEEDS = (1, 2)
TOLD = {found.name: found for found in table.told()}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_year_keeps_every_row_and_every_promise(seed: int) -> None:
    verdict = run(YearCase(seed=seed))
    assert verdict.ok, f"make year SEED={seed}: {verdict.problems}"
    assert verdict.processes["release"] > 0
    assert verdict.checks > 100


@pytest.mark.parametrize("name", sorted(TOLD))
def test_a_rule_that_is_removed_is_found_by_the_seed_that_the_page_says(name: str) -> None:
    with planted(name):
        verdict = run(MISTAKES[name].case(TOLD[name].seed))
    assert not verdict.ok
