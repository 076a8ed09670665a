"""The diagrams in the docs are the transition tables, arrow by arrow."""

import re
from enum import StrEnum
from pathlib import Path

import pytest

from calve.model.states import PROCESS_TRANSITIONS, TASK_TRANSITIONS, Transitions, terminal

PAGE = Path(__file__).resolve().parents[2] / "docs" / "control-plane.md"
ARROW = re.compile(r"^\s*(\[\*\]|[A-Z]+) --> (\[\*\]|[A-Z]+)(?::.*)?$", re.MULTILINE)
FIRST, LAST = "[*]", "[*]"


def diagrams() -> list[list[tuple[str, str]]]:
    blocks = re.findall(r"```mermaid\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return [ARROW.findall(block) for block in blocks]


def arrows(transitions: Transitions[StrEnum]) -> list[tuple[str, str]]:
    moves = [(before.value, after.value) for before, following in transitions.items() for after in following]
    ends = [(state.value, LAST) for state in terminal(transitions)]
    return sorted([(FIRST, "PENDING"), *moves, *ends])


@pytest.mark.parametrize(
    ("number", "transitions"), [(0, PROCESS_TRANSITIONS), (1, TASK_TRANSITIONS)], ids=["process", "task"]
)
def test_the_diagram_has_every_transition_and_no_other(
    number: int, transitions: Transitions[StrEnum]
) -> None:
    assert sorted(diagrams()[number]) == arrows(transitions)
