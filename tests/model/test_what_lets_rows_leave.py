"""Holds, permits and releases as values: what a store asks before a step that takes rows away is announced."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from calve.model.access import Halt
from calve.model.change import Change, Intend, NewRelease, Permit, PublishNote
from calve.model.errors import CalveError, ConflictError
from calve.model.process import GuardedTable, Process
from calve.model.states import ReleaseState
from calve.model.tier import (
    POLICY_HALT,
    Announced,
    Approval,
    Hold,
    Release,
    Situation,
    check_intent,
    check_shape,
    new_release,
)
from calve.testing.contracts.contract import new

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TABLE = GuardedTable(identity="i", uuid="u", name="main:db.events")
PERMIT = Permit(what="release", hash="h1", destination="lake.ns.events", policy="events")
INTEND = Intend(table=TABLE, partition="202401", step="move", version=1, permit=PERMIT)
ALLOWED = Situation(version=1, announced=(Announced(program="w1", name="events", hash="h1"),), approved=True)
PROCESS: Process = new().accepted(adopted=False, now=NOW)


def why_not(found: Situation) -> str:
    with pytest.raises(CalveError) as refused:
        check_intent(PROCESS, INTEND, found)
    return f"{refused.value.code}: {refused.value.message}"


def test_a_hold_stands_until_its_time_and_no_longer() -> None:
    hold = Hold(id="h", name="main:db.events", who="anne", reason="audit", until_at=NOW)
    assert hold.stands(NOW - timedelta(seconds=1))
    assert not hold.stands(NOW)
    assert replace(hold, until_at=None).stands(NOW)


def test_what_is_not_said_allows_nothing() -> None:
    assert not Situation(version=1).approved
    assert Permit(what="release", hash="h", destination="d", policy="p").live_seconds == 60.0
    assert Approval(what="release", hash="h", identity="i", destination="d", who="anne").seq == 0
    assert why_not(replace(ALLOWED, approved=False)).startswith("not_approved")


def test_one_step_is_announced_at_a_time() -> None:
    with pytest.raises(CalveError, match="one step"):
        check_shape(PROCESS, Change(PublishNote("look"), INTEND, INTEND))


def test_only_a_halt_of_this_policy_or_of_all_pauses_it() -> None:
    for kind, source in (("export", "events"), ("export", ""), (POLICY_HALT, "other")):
        check_intent(PROCESS, INTEND, replace(ALLOWED, halts=[Halt(kind=kind, source=source, who="anne")]))
    for source in ("events", ""):
        halts = [Halt(kind=POLICY_HALT, source=source, who="anne")]
        assert why_not(replace(ALLOWED, halts=halts)).startswith("paused")


def test_programs_that_have_another_policy_are_named() -> None:
    other = Announced(program="w2", name="events", hash="h2")
    said = why_not(replace(ALLOWED, announced=[*ALLOWED.announced, other]))
    assert said.startswith("policy_differs") and "(w2 has another)" in said
    assert "no running program has it" in why_not(replace(ALLOWED, announced=()))


@pytest.mark.parametrize("state", ReleaseState)
def test_a_partition_is_released_again_only_once_it_is_back_or_gone_for_good(state: ReleaseState) -> None:
    given = NewRelease(identity="i", partition="202401", destination="lake.ns.events", attempt=2)
    before = Release(
        process_id=new().id,
        identity="i",
        partition="202401",
        destination="lake.ns.events",
        attempt=1,
        state=state,
    )
    assert (before.version, before.rows) == (1, 0)
    if state in {ReleaseState.MARKED, ReleaseState.MOVING, ReleaseState.MOVED, ReleaseState.RETURNING}:
        with pytest.raises(ConflictError):
            new_release(PROCESS, given, [before], NOW)
    else:
        assert new_release(PROCESS, given, [before], NOW).attempt == 2
    assert new_release(PROCESS, given, [replace(before, partition="202402")], NOW).attempt == 2
