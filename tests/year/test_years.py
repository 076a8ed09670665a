"""Years of tiering over modelled services, seed by seed: see docs/year.md."""

import pytest

from support.year import table
from support.year.mistakes import MISTAKES, planted
from support.year.run import run
from support.year.world import YearCase

SEEDS = (1, 3)
# Removed in each `make test`; the others in `make test-long`.
QUICK = (
    "hold_ignored",
    "approval_ignored",
    "no_mark",
    "no_turn",
    "no_turn_back",
    "undo_insists",
    "released_replaced",
    "drop_unproven",
)
TOLD = {found.name: found for found in table.told()}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_year_keeps_every_row_and_every_promise(seed: int) -> None:
    verdict = run(YearCase(seed=seed))
    assert verdict.ok, f"make year SEED={seed}: {verdict.problems}"
    assert verdict.processes["release"] > 0
    assert verdict.checks > 100


def test_the_page_says_what_finds_each_rule() -> None:
    assert TOLD.keys() == MISTAKES.keys()


def _found(name: str) -> None:
    seed = TOLD[name].seed
    assert seed is not None
    case = MISTAKES[name].case(seed)
    with planted(name):
        assert not run(case).ok
    assert run(case).ok, "with the rule it holds"


@pytest.mark.parametrize("name", QUICK)
def test_a_rule_that_is_removed_is_found_by_the_seed_that_the_page_says(name: str) -> None:
    _found(name)


@pytest.mark.long
@pytest.mark.parametrize(
    "name", sorted(name for name, one in TOLD.items() if one.seed is not None and name not in QUICK)
)
def test_each_other_rule_is_found_by_its_seed(name: str) -> None:
    _found(name)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(name for name, one in TOLD.items() if one.seed is None))
def test_a_rule_that_no_year_can_break_fails_its_test(name: str) -> None:
    assert table.failure(name)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4, 15))
def test_more_years_hold(seed: int) -> None:
    verdict = run(YearCase(seed=seed))
    assert verdict.ok, f"make year SEED={seed}: {verdict.problems}"
