"""One state from facts alone: the first rule that fits decides, and nothing is remembered."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from calve.policy.policy import LateRows, Policy, ReleaseRule
from calve.policy.stand import (
    ExportFacts,
    Failure,
    NextAction,
    PartitionFacts,
    PartitionStanding,
    ReleaseFacts,
    State,
    stand,
)

NOW = datetime(2024, 6, 1, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
POLICY = Policy(
    name="events",
    source="main",
    tables="db.events",
    to="lake.ns.events",
    export_after=3 * DAY,
    quiet=6 * HOUR,
)
REPLACES = replace(POLICY, on_late_rows=LateRows.REPLACE)
APPENDS = replace(POLICY, on_late_rows=LateRows.APPEND)
OLD = PartitionFacts(policy=POLICY, now=NOW, looked_at=NOW, closed_at=NOW - 9 * DAY, changed_at=NOW - 9 * DAY)
DONE = ExportFacts(process="p1", unchanged=True)
LATE = replace(DONE, unchanged=False)


def _failed(times: int, ago: timedelta, policy: Policy = POLICY) -> Failure:
    return Failure(code="refused", at=NOW - ago, times=times, policy=policy.hash)


RELEASES = replace(POLICY, release=ReleaseRule.QUARANTINE, release_after=30 * DAY)
PROVEN = replace(DONE, proven=True, depth="rows")
READY = ReleaseFacts(approved=True, proven_at=NOW - 31 * DAY)
OUT = replace(PROVEN, released=True)


def _leaving(
    export: ExportFacts = PROVEN, there: bool = True, policy: Policy = RELEASES, **given: Any
) -> PartitionFacts:
    facts = {name: given.pop(name) for name in ("held", "mutating") if name in given}
    return replace(OLD, policy=policy, there=there, export=export, release=replace(READY, **given), **facts)


CASES: list[tuple[str, PartitionFacts, PartitionStanding]] = [
    ("may leave", _leaving(), PartitionStanding(state=State.GRACE, next=NextAction.RELEASE)),
    ("is proven, and nobody releases it", _leaving(policy=POLICY), PartitionStanding(state=State.VERIFIED)),
    (
        "is in its grace",
        _leaving(proven_at=NOW - 10 * DAY),
        PartitionStanding(state=State.GRACE, until=NOW + 20 * DAY),
    ),
    ("is proven, but not by value", _leaving(proven_at=None), PartitionStanding(state=State.VERIFIED, code="not_by_value")),
    ("is the newest", _leaving(over="newest_partition"), PartitionStanding(state=State.VERIFIED, code="newest_partition")),
    ("may leave, and nobody allowed it", _leaving(approved=False), PartitionStanding(state=State.HELD, code="not_approved")),
    ("may leave, and is held", _leaving(held=True), PartitionStanding(state=State.HELD, code="hold")),
    ("may leave, and is mutating", _leaving(mutating=True), PartitionStanding(state=State.BLOCKED, code="mutation")),
    ("is released by two policies", _leaving(rival=True), PartitionStanding(state=State.BLOCKED, code="two_policies")),
    ("is leaving", _leaving(live="r1"), PartitionStanding(state=State.RELEASING)),
    (
        "went back because it differed",
        _leaving(state="RETURNED", moved=True, error="differs"),
        PartitionStanding(state=State.HELD, code="came_back"),
    ),
    (
        "was brought back since the last look",
        _leaving(OUT, there=False, state="RETURNED", moved=True, error="undone by a person", back_at=NOW + HOUR),
        PartitionStanding(state=State.HELD, code="undone"),
    ),
    (
        "stayed after all since the last look",
        _leaving(OUT, state="RETURNED", back_at=NOW + HOUR),
        PartitionStanding(state=State.GRACE),
    ),
    (
        "came back, and left again by another store",
        _leaving(OUT, there=False, state="RETURNED", moved=True, back_at=NOW - HOUR),
        PartitionStanding(state=State.HELD, code="released_elsewhere"),
    ),
    (
        "was brought back by a person",
        _leaving(state="RETURNED", moved=True, error="undone by a person"),
        PartitionStanding(state=State.HELD, code="undone"),
    ),
    (
        "could not leave a moment ago",
        _leaving(state="RETURNED", since=_failed(1, HOUR / 2, RELEASES)),
        PartitionStanding(state=State.BLOCKED, code="refused", until=NOW + HOUR / 2),
    ),
    (
        "could not leave yesterday",
        _leaving(state="RETURNED", since=_failed(1, DAY, RELEASES)),
        PartitionStanding(state=State.GRACE, next=NextAction.RELEASE),
    ),
    ("has left", _leaving(OUT, there=False, state="QUARANTINED"), PartitionStanding(state=State.QUARANTINED)),
    ("is dropped", _leaving(OUT, there=False, state="DROPPED"), PartitionStanding(state=State.DROPPED)),
    ("is half-way out", _leaving(OUT, there=False, state="MOVED"), PartitionStanding(state=State.RELEASING)),
    ("has not come back", _leaving(OUT, there=False, state="RETURNING"), PartitionStanding(state=State.HELD, code="halfway")),
    ("is nowhere", _leaving(OUT, there=False, state="LOST"), PartitionStanding(state=State.BLOCKED, code="released_rows_missing")),
    (
        "has left, and the lake lost it",
        _leaving(replace(OUT, missing=True), there=False, state="QUARANTINED"),
        PartitionStanding(state=State.BLOCKED, code="released_rows_missing"),
    ),
    ("left by another store", _leaving(OUT, there=False), PartitionStanding(state=State.HELD, code="released_elsewhere")),
    (
        "has left, and rows came late",
        _leaving(replace(OUT, unchanged=False), state="QUARANTINED"),
        PartitionStanding(state=State.HELD, code="released"),
    ),
    ("is over and quiet", OLD, PartitionStanding(state=State.DUE, next=NextAction.EXPORT)),
    ("ends in the future", replace(OLD, closed_at=NOW + DAY), PartitionStanding(state=State.HOT, until=NOW + 4 * DAY)),
    ("ended a moment ago", replace(OLD, closed_at=NOW - DAY), PartitionStanding(state=State.HOT, until=NOW + 2 * DAY)),
    ("changed an hour ago", replace(OLD, changed_at=NOW - HOUR), PartitionStanding(state=State.HOT, until=NOW + 5 * HOUR)),
    ("is due this very moment", replace(OLD, closed_at=NOW - 3 * DAY), PartitionStanding(state=State.DUE, next=NextAction.EXPORT)),
    (
        "has no time key and changed lately",
        replace(OLD, closed_at=None, changed_at=NOW - DAY),
        PartitionStanding(state=State.HOT, until=NOW + 2 * DAY),
    ),
    ("has no time key and is old", replace(OLD, closed_at=None), PartitionStanding(state=State.DUE, next=NextAction.EXPORT)),
    ("was never seen", replace(OLD, closed_at=None, changed_at=None), PartitionStanding(state=State.BLOCKED, code="source_unseen")),
    ("is being exported", replace(OLD, live="p0"), PartitionStanding(state=State.EXPORTING)),
    ("is being exported, and nobody looks", replace(OLD, live="p0", looked_at=None), PartitionStanding(state=State.EXPORTING)),
    ("nobody ever looked", replace(OLD, looked_at=None), PartitionStanding(state=State.BLOCKED, code="source_unseen")),
    ("the look is old", replace(OLD, looked_at=NOW - HOUR), PartitionStanding(state=State.BLOCKED, code="source_unseen")),
    ("the clock is ahead", replace(OLD, skew=HOUR), PartitionStanding(state=State.BLOCKED, code="clock_skew")),
    ("the clock is behind", replace(OLD, skew=-HOUR), PartitionStanding(state=State.BLOCKED, code="clock_skew")),
    (
        "shares its destination with another table",
        replace(OLD, alone=False),
        PartitionStanding(state=State.BLOCKED, code="shared_destination"),
    ),
    ("two policies want it", replace(OLD, shared=True), PartitionStanding(state=State.BLOCKED, code="two_policies")),
    ("an ALTER is under way", replace(OLD, mutating=True), PartitionStanding(state=State.BLOCKED, code="mutation")),
    (
        "it failed once, half an hour ago",
        replace(OLD, failure=_failed(1, HOUR / 2)),
        PartitionStanding(state=State.BLOCKED, code="refused", until=NOW + HOUR / 2),
    ),
    (
        "it failed five times",
        replace(OLD, failure=_failed(5, HOUR)),
        PartitionStanding(state=State.BLOCKED, code="refused", until=NOW + 15 * HOUR),
    ),
    (
        "it failed a thousand times",
        replace(OLD, failure=_failed(1000, HOUR)),
        PartitionStanding(state=State.BLOCKED, code="refused", until=NOW + 23 * HOUR),
    ),
    ("it failed long ago", replace(OLD, failure=_failed(1, DAY)), PartitionStanding(state=State.DUE, next=NextAction.EXPORT)),
    (
        "it failed under other rules",
        replace(OLD, failure=_failed(9, HOUR, REPLACES)),
        PartitionStanding(state=State.DUE, next=NextAction.EXPORT),
    ),
    (
        "has late rows to append, and is held and released",
        replace(OLD, held=True, policy=APPENDS, export=replace(LATE, released=True)),
        PartitionStanding(state=State.CHANGED, next=NextAction.APPEND),
    ),
    (
        "has late rows to append, and changed an hour ago",
        replace(OLD, policy=APPENDS, export=LATE, changed_at=NOW - HOUR),
        PartitionStanding(state=State.CHANGED, until=NOW + 5 * HOUR),
    ),
    (
        "has late rows that cannot be told from others",
        replace(OLD, policy=APPENDS, export=LATE, failure=replace(_failed(1, 9 * DAY, APPENDS), code="mixed_merge")),
        PartitionStanding(state=State.HELD, code="mixed_merge"),
    ),
    (
        "could not be appended under other rules",
        replace(OLD, policy=APPENDS, export=LATE, failure=replace(_failed(1, HOUR / 2), code="mixed_merge")),
        PartitionStanding(state=State.CHANGED, next=NextAction.APPEND),
    ),
    ("is held and not exported", replace(OLD, held=True), PartitionStanding(state=State.DUE, next=NextAction.EXPORT)),
    (
        "is held and only grew",
        replace(OLD, held=True, policy=REPLACES, export=replace(LATE, grows=True)),
        PartitionStanding(state=State.HELD, code="hold"),
    ),
    ("is held and proven", replace(OLD, held=True, export=replace(DONE, proven=True)), PartitionStanding(state=State.VERIFIED)),
    ("is exported", replace(OLD, export=DONE), PartitionStanding(state=State.EXPORTED, next=NextAction.PROVE)),
    ("is proven", replace(OLD, export=replace(DONE, proven=True)), PartitionStanding(state=State.VERIFIED)),
    ("proof failed", replace(OLD, export=replace(DONE, proven=False)), PartitionStanding(state=State.BLOCKED, code="proof_failed")),
    ("is being proven", replace(OLD, export=replace(DONE, proving="p2")), PartitionStanding(state=State.EXPORTED)),
    ("was exported elsewhere", replace(OLD, export=replace(DONE, known=False)), PartitionStanding(state=State.EXPORTED, code="unknown_process")),
    (
        "has a proof that ended without an answer",
        replace(OLD, export=replace(DONE, unproven=replace(_failed(1, HOUR / 2), policy=""))),
        PartitionStanding(state=State.BLOCKED, code="refused", until=NOW + HOUR / 2),
    ),
    (
        "has a proof that ended so long ago",
        replace(OLD, export=replace(DONE, unproven=replace(_failed(1, 2 * HOUR), policy=""))),
        PartitionStanding(state=State.EXPORTED, next=NextAction.PROVE),
    ),
    ("is exported while an ALTER goes on", replace(OLD, mutating=True, export=DONE), PartitionStanding(state=State.EXPORTED, next=NextAction.PROVE)),
    ("is lost in the lake", replace(OLD, export=replace(DONE, missing=True)), PartitionStanding(state=State.BLOCKED, code="no_longer_there")),
    (
        "is gone at the source",
        replace(OLD, there=False, export=replace(DONE, proven=True)),
        PartitionStanding(state=State.VERIFIED, code="gone_at_source"),
    ),
    (
        "is gone at the source and unproven",
        replace(OLD, there=False, export=DONE),
        PartitionStanding(state=State.EXPORTED, next=NextAction.PROVE),
    ),
    ("has late rows", replace(OLD, export=LATE), PartitionStanding(state=State.HELD, code="late_rows")),
    (
        "has late rows that may replace",
        replace(OLD, policy=REPLACES, export=replace(LATE, grows=True)),
        PartitionStanding(state=State.CHANGED, next=NextAction.REPLACE),
    ),
    (
        "has late rows that still come",
        replace(OLD, policy=REPLACES, export=replace(LATE, grows=True), changed_at=NOW - HOUR),
        PartitionStanding(state=State.CHANGED, until=NOW + 5 * HOUR),
    ),
    (
        "has lost rows",
        replace(OLD, policy=REPLACES, export=LATE),
        PartitionStanding(state=State.HELD, code="rows_gone"),
    ),
    (
        "has late rows and was released",
        replace(OLD, policy=REPLACES, export=replace(LATE, grows=True, released=True)),
        PartitionStanding(state=State.HELD, code="released"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("facts", "standing"), [one[1:] for one in CASES], ids=[one[0] for one in CASES])
def test_a_partition_that(facts: PartitionFacts, standing: PartitionStanding) -> None:
    assert stand(facts) == standing


def test_whatever_the_facts_there_is_one_state_and_nothing_unsafe_starts() -> None:
    """All combinations: nothing starts from facts that are not trusted, nothing replaces what it must not."""
    choices: dict[str, list[Any]] = {
        "policy": [POLICY, REPLACES, APPENDS],
        "looked_at": [None, NOW, NOW - HOUR],
        "skew": [timedelta(), HOUR],
        "shared": [False, True],
        "there": [True, False],
        "closed_at": [None, NOW - 9 * DAY, NOW + DAY],
        "changed_at": [None, NOW - HOUR, NOW - 9 * DAY],
        "mutating": [False, True],
        "held": [False, True],
        "live": ["", "p"],
        "failure": [None, _failed(2, HOUR / 2)],
        "export": [
            None,
            *(
                ExportFacts(
                    process="p", unchanged=same, missing=gone, released=out, grows=grows, proven=proven
                )
                for same, gone, out, grows, proven in itertools.product(
                    (True, False), (True, False), (True, False), (True, False), (None, True, False)
                )
            ),
        ],
    }
    started = set()
    for values in itertools.product(*choices.values()):
        facts = PartitionFacts(now=NOW, **dict(zip(choices, values, strict=True)))
        found = stand(facts)
        if found.next is None:
            continue
        started.add(found.next)
        assert not facts.live and not facts.shared and not facts.skew and facts.looked_at == NOW
        assert found.next is NextAction.PROVE or not facts.mutating
        if found.next is not NextAction.PROVE:  # the failure of an export stops no proof of an earlier one
            assert facts.failure is None or facts.failure.policy != facts.policy.hash
        if found.next is NextAction.EXPORT:
            assert facts.export is None
        if found.next is NextAction.APPEND:
            assert facts.policy is APPENDS and facts.export and not facts.export.missing
        if found.next is NextAction.REPLACE:
            export = facts.export
            assert facts.policy is REPLACES
            assert not facts.held
            assert export is not None and export.grows and not export.released and not export.missing
    assert started == set(NextAction) - {NextAction.RELEASE}


def test_whatever_the_facts_nothing_leaves_unless_everything_allows_it() -> None:
    choices: dict[str, list[Any]] = {
        "policy": [RELEASES, POLICY],
        "there": [True, False],
        "held": [False, True],
        "mutating": [False, True],
        "export": [PROVEN, replace(PROVEN, unchanged=False), replace(PROVEN, missing=True), OUT, DONE],
        "approved": [True, False],
        "proven_at": [None, NOW - 31 * DAY, NOW - DAY],
        "rival": [False, True],
        "over": ["", "newest_partition"],
        "live": ["", "r1"],
        "state": ["", "QUARANTINED", "RETURNED", "RETURNING"],
        "moved": [False, True],
        "since": [None, _failed(1, HOUR / 2, RELEASES)],
    }
    names, started = list(choices), 0
    for values in itertools.product(*choices.values()):
        given = dict(zip(names, values, strict=True))
        facts = {name: given.pop(name) for name in names[:5]}
        if stand(replace(OLD, **facts, release=ReleaseFacts(**given))).next is NextAction.RELEASE:
            started += 1
            assert facts == {
                "policy": RELEASES,
                "there": True,
                "held": False,
                "mutating": False,
                "export": PROVEN,
            }
            assert not (given["state"] == "RETURNED" and given["moved"])
            wanted = {
                "approved": True,
                "proven_at": NOW - 31 * DAY,
                "rival": False,
                "over": "",
                "live": "",
                "since": None,
            }
            assert wanted.items() <= given.items()
    assert started
