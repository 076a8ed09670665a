from enum import StrEnum

import pytest

from calve.model.states import (
    LEFTOVERS_TRANSITIONS,
    PIN_HELD,
    PIN_TRANSITIONS,
    PROCESS_LIVE,
    PROCESS_TERMINAL,
    PROCESS_TRANSITIONS,
    RELEASE_TRANSITIONS,
    TASK_LIVE,
    TASK_TERMINAL,
    TASK_TRANSITIONS,
    Leftovers,
    PinState,
    ProcessState,
    ReleaseState,
    TaskState,
    Transitions,
    may_move,
    terminal,
)
from calve.store.tables import metadata

TABLES: dict[type[StrEnum], Transitions] = {
    ProcessState: PROCESS_TRANSITIONS,
    TaskState: TASK_TRANSITIONS,
    PinState: PIN_TRANSITIONS,
    Leftovers: LEFTOVERS_TRANSITIONS,
    ReleaseState: RELEASE_TRANSITIONS,
}
KINDS = pytest.mark.parametrize("kind", TABLES, ids=lambda kind: kind.__name__)


@KINDS
def test_every_state_has_a_row_and_leads_only_to_states(kind: type[StrEnum]) -> None:
    assert set(TABLES[kind]) == set(kind)
    assert frozenset().union(*TABLES[kind].values()) <= set(kind)


@KINDS
def test_nothing_stays_by_a_transition(kind: type[StrEnum]) -> None:
    stays = {state for state in kind if may_move(TABLES[kind], state, state)}
    assert stays <= {ReleaseState.RETURNING}, "whose move back is announced"


@KINDS
def test_every_state_is_reached_from_the_first(kind: type[StrEnum]) -> None:
    reached = {next(iter(kind))}
    for _ in kind:
        reached |= frozenset().union(*(TABLES[kind][state] for state in reached))
    assert reached == set(kind)


def test_L18_terminal_states_are_final() -> None:
    assert {"COMPLETED", "FAILED", "CANCELLED"} == PROCESS_TERMINAL
    assert {"DONE", "FAILED", "CANCELLED"} == TASK_TERMINAL
    for state in PROCESS_TERMINAL:
        assert PROCESS_TRANSITIONS[state] == frozenset()


def test_every_live_process_may_fail_or_be_cancelled() -> None:
    for state in PROCESS_LIVE:
        assert PROCESS_TRANSITIONS[state] >= {ProcessState.FAILED, ProcessState.CANCELLED}


def test_a_task_that_waits_may_end_with_its_process() -> None:
    assert TASK_TRANSITIONS[TaskState.PENDING] == {TaskState.RUNNING, TaskState.FAILED, TaskState.CANCELLED}
    assert may_move(PROCESS_TRANSITIONS, ProcessState.PENDING, ProcessState.COMPLETED), "nothing to do"


def test_derived_sets_split_the_states_in_two() -> None:
    assert set(ProcessState) == PROCESS_LIVE | PROCESS_TERMINAL
    assert not PROCESS_LIVE & PROCESS_TERMINAL
    assert set(TaskState) == TASK_LIVE | TASK_TERMINAL
    assert set(PinState) - terminal(PIN_TRANSITIONS) == PIN_HELD


def test_D3_adopting_and_undoing_both_leave_kept_and_never_meet() -> None:
    assert LEFTOVERS_TRANSITIONS[Leftovers.KEPT] == {Leftovers.ADOPTED, Leftovers.UNDOING}
    assert LEFTOVERS_TRANSITIONS[Leftovers.ADOPTED] == {Leftovers.KEPT}
    assert not may_move(LEFTOVERS_TRANSITIONS, Leftovers.UNDOING, Leftovers.ADOPTED)
    assert not may_move(LEFTOVERS_TRANSITIONS, Leftovers.ADOPTED, Leftovers.UNDOING)


def test_rows_that_left_a_table_can_come_back_from_everywhere_and_are_never_forgotten() -> None:
    out = {ReleaseState.MOVING, ReleaseState.MOVED, ReleaseState.QUARANTINED}
    ways = RELEASE_TRANSITIONS
    assert all(ways[state] >= {ReleaseState.RETURNING, ReleaseState.LOST} for state in out)
    assert ways[ReleaseState.DROPPING] == {ReleaseState.DROPPED, ReleaseState.QUARANTINED, ReleaseState.LOST}
    assert ways[ReleaseState.DROPPED] == ways[ReleaseState.LOST] == {ReleaseState.RETURNING}
    assert ReleaseState.DROPPING in ways[ReleaseState.QUARANTINED]
    assert ways[ReleaseState.RETURNING] > {ReleaseState.RETURNED, ReleaseState.QUARANTINED, ReleaseState.LOST}
    assert terminal(ways) == {ReleaseState.RETURNED}


@pytest.mark.parametrize(
    ("table", "column", "kind"),
    [
        ("processes", "state", ProcessState),
        ("processes", "leftovers", Leftovers),
        ("tasks", "state", TaskState),
        ("pins", "state", PinState),
    ],
)
def test_the_databases_check_holds_exactly_the_states_of_the_table(
    table: str, column: str, kind: type[StrEnum]
) -> None:
    from calve.store.store import steps

    expected = f"CHECK ({column} IN ({', '.join(sorted(repr(state.value) for state in kind))}))"
    name = f"ck_{table}_{column}"
    checks = {str(item.name): item for item in metadata.tables[table].constraints}
    assert name in checks
    for dialect in ("sqlite", "postgresql"):
        assert f"CONSTRAINT {name} {expected}" in steps(dialect)[0][1]
