"""TLC finds nothing wrong with the model, and every mistake that is planted in it."""

import re
import sys
from pathlib import Path
from pkgutil import resolve_name

import pytest

FORMAL = Path(__file__).parents[2] / "formal"
sys.path.insert(0, str(FORMAL))

import check  # noqa: E402 - a script beside the model, not a package

README = (FORMAL / "README.md").read_text()
MODEL = (FORMAL / "Publish.tla").read_text()


@pytest.mark.programs
def test_every_invariant_holds_with_two_workers_and_a_fault() -> None:
    verdict = check.check(faults=1)
    assert verdict.broken == ""
    assert verdict.states > 100_000  # a guard that is never true would make the model small, and right


@pytest.mark.programs
def test_every_process_ends() -> None:
    verdict = check.check(faults=0, workers=1, temporal=True)
    assert verdict.broken == ""
    assert verdict.states > 3_000


@pytest.mark.programs
@pytest.mark.parametrize("bug", sorted(check.BUGS | check.NOT_PROMISED))
def test_a_planted_mistake_is_found_in_as_many_steps_as_the_page_says(bug: str) -> None:
    verdict = check.found(bug)
    broken, steps = _row(bug)
    assert (verdict.broken, verdict.steps) == (broken, steps)


def _row(bug: str) -> tuple[str, int]:
    found = re.search(rf"`{bug}`.*`(\w+)`[^`]* (\d+) (?:\||steps)", README)
    assert found, f"formal/README.md does not list {bug}"
    return found[1], int(found[2])


def test_the_page_lists_every_mistake_that_the_model_knows() -> None:
    planted = set(re.findall(r'Bug (?:=|#) "(\w+)"', MODEL)) - {"none"}
    assert planted == set(check.BUGS) | set(check.NOT_PROMISED)


def test_every_action_is_mapped_to_a_function_that_exists() -> None:
    table = README.split("## Where each action is done")[1]
    actions = {
        name
        for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    defined = set(re.findall(r"^(\w+)(?:\(.*?\))? ==", MODEL, re.MULTILINE))
    assert actions <= defined
    of_ours = {"Foreign", "Rollback", "SweepTag", "Expire"}  # others do these
    taken = set(re.findall(r"\b([A-Z]\w+)\(", MODEL.split("WorkerStep(w) ==")[1].split("Fair ==")[0]))
    assert taken - of_ours - {"WorkerStep"} <= actions
    for name in re.findall(r"`(calve\.[\w.]+)`", table):
        assert callable(resolve_name(name))
