"""Whole installations over modelled services, seed by seed: see docs/simulator.md."""

import os
import subprocess
import sys

import pytest

from support.simulator import table
from support.simulator.__main__ import command
from support.simulator.bugs import planted
from support.simulator.run import run
from support.simulator.shrink import shrunk
from support.simulator.storm import storm_of_seed
from support.simulator.world import Case

SEEDS, AT_ONCE = 200, 10
TOLD = {found.bug: found for found in table.told()}
EASY = "no_main_assertion"


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_a_history_keeps_every_promise(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        verdict = run(Case(seed=seed))
        assert verdict.ok, f"{command(verdict)}: {verdict.problems}"


def test_a_seed_is_one_history() -> None:
    first = {storm_of_seed(seed).name: seed for seed in range(100, 0, -1)}  # of each kind of storm
    ones = [run(Case(seed=seed)).trace for seed in first.values()]
    assert ones == [run(Case(seed=seed)).trace for seed in first.values()]
    assert len(set(ones)) == len(first)


@pytest.mark.programs
def test_a_seed_is_the_same_history_in_another_program() -> None:
    text = (
        "from support.simulator.run import run; from support.simulator.world import Case;"
        " print(run(Case(seed=1)).trace, run(Case(seed=15)).trace)"
    )
    told = subprocess.run(
        [sys.executable, "-c", text],
        env=os.environ | {"PYTHONHASHSEED": "7"},
        capture_output=True,
        check=True,
    )
    assert told.stdout.decode().split() == [run(Case(seed=seed)).trace for seed in (1, 15)]


@pytest.mark.parametrize("bug", sorted(TOLD))
def test_a_planted_mistake_is_found_by_the_seed_that_the_page_says(bug: str) -> None:
    with planted(bug):
        verdict = run(Case(seed=TOLD[bug].seed))
    assert not verdict.ok
    assert run(Case(seed=TOLD[bug].seed)).ok


def test_a_failing_history_is_made_small_and_still_fails() -> None:
    with planted(EASY):
        whole = run(Case(seed=TOLD[EASY].seed))
        small = shrunk(whole, tries=12)
        assert run(small.case).problems == small.problems != ()
    assert len(small.actions) + len(small.faults) < len(whole.actions) + len(whole.faults)
    assert command(small, EASY).startswith(f"make sim SEED={TOLD[EASY].seed} MORE=")
