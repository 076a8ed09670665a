"""What takes rows out of a table is announced only while everything allows it, and a hold never misses an announcement."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from calve.control.registry import ServedStore
from calve.model.access import Asked, Halt
from calve.model.change import (
    ANNOUNCED,
    Achieved,
    Change,
    Intend,
    NewRelease,
    Permit,
    PublishNote,
    ReleaseTo,
)
from calve.model.errors import (
    CalveError,
    ConflictError,
    FenceLostError,
    NotFoundError,
    PermanentError,
    RefusedError,
)
from calve.model.process import GuardedTable, Process
from calve.model.states import ReleaseState
from calve.model.tier import Announced, Approval, Hold, HoldAdded
from calve.testing.clock import FakeClock
from calve.testing.contracts.contract import ANNE, BERT, Contract, claim_one, lease_of, publishing, running
from calve.testing.contracts.races import race

TABLE = GuardedTable(identity="server:s/u1", uuid="u1", name="main:db.events")
PERMIT = Permit(what="release", policy="events", hash="h1", destination="lake.ns.events")
ASKED = Asked(who="anne", verb="hold_add", subject="main:db.events")
RACES = 25


def hold(id: str = "hold-1", **given: Any) -> Hold:
    first = Hold(
        id=id, name=TABLE.name, identity=TABLE.identity, uuid=TABLE.uuid, who="anne", reason="an audit"
    )
    return replace(first, **given)


def approve(store: ServedStore, **given: Any) -> Approval:
    first = Approval(
        what="release", policy="events", hash="h1", identity=TABLE.identity, destination="lake.ns.events", who="anne"
    )  # fmt: skip
    return store.approve(replace(first, **given), ASKED)


def allow(store: ServedStore) -> None:
    """Everything that a release needs."""
    approve(store)
    store.announce("worker-1", [said("events", "h1")])


def said(name: str, hash: str) -> Announced:
    return Announced(program="", name=name, hash=hash, body="{}")


def intend(store: ServedStore, **given: Any) -> Intend:
    first = Intend(
        table=TABLE, partition="202401", step="move", version=0, permit=PERMIT, query_id="calve-q", detail="{}"
    )  # fmt: skip
    wanted = replace(first, **given)
    return wanted if "version" in given else replace(wanted, version=store.guard(wanted.table))


def announce(store: ServedStore, process: Process, **given: Any) -> Process:
    return store.apply(lease_of(process), Change(PublishNote("look"), intend(store, **given)))


def open_intents(store: ServedStore, process: Process) -> list[int]:
    return [one.seq for one in store.intents(process.id) if one.done_at is None]


class TierContract(Contract):
    @pytest.fixture
    def rivals(self, store: ServedStore) -> Sequence[ServedStore]:
        """Handles on the same rows, as different programs would have them."""
        return [store] * 4

    # -- holds --------------------------------------------------------------------------------------

    def test_a_hold_is_kept_with_who_when_and_why_and_audited(self, store: ServedStore) -> None:
        first = store.add_hold(hold(), ASKED).hold
        second = store.add_hold(hold("hold-2", partition="202401", reason="a dispute"), ASKED).hold
        assert store.holds() == [first, second]
        assert (first.who, first.reason, first.released_at) == ("anne", "an audit", None)
        assert first.made_at is not None
        assert [entry.verb for entry in store.audited(None, 10)] == ["hold_add", "hold_add"]

    def test_a_hold_that_is_added_again_stays_as_it_is(self, store: ServedStore) -> None:
        first = store.add_hold(hold(), ASKED).hold
        assert store.add_hold(hold(reason="another"), ASKED).hold == first
        assert store.holds() == [first]
        assert len(store.audited(None, 10)) == 1

    def test_a_hold_ends_when_it_is_released_or_its_time_is_over(
        self, store: ServedStore, clock: FakeClock
    ) -> None:
        until = store.now() + timedelta(hours=1)
        store.add_hold(hold("short", until_at=until), ASKED)
        store.add_hold(hold("long"), ASKED)
        clock.advance(3601)
        assert [one.id for one in store.holds()] == ["long"]
        released = store.release_hold("long", replace(ASKED, who="bert", verb="hold_release"))
        assert released.released_by == "bert"
        assert store.release_hold("long", replace(ASKED, who="carl")) == released
        assert store.holds() == []
        assert {one.id for one in store.holds(every=True)} == {"short", "long"}
        assert [entry.who for entry in store.audited(None, 10)] == ["bert", "anne", "anne"]
        with pytest.raises(NotFoundError) as missing:
            store.release_hold("none", ASKED)
        assert missing.value.code == "hold_not_found"

    @pytest.mark.parametrize(
        ("given", "holds"),
        [
            ({}, True),
            ({"partition": "202401"}, True),
            ({"partition": "202402"}, False),
            ({"identity": "", "uuid": ""}, True),
            ({"identity": "", "uuid": "", "name": "main:db.other"}, False),
            ({"identity": "other", "uuid": "u1", "name": "main:db.renamed"}, True),
            ({"identity": TABLE.identity, "uuid": "", "name": "main:db.renamed"}, True),
            ({"identity": "other", "uuid": "u2", "name": "main:db.renamed"}, False),
        ],
        ids=lambda given: "-".join(given) if isinstance(given, dict) else None,
    )
    def test_a_hold_matches_by_identity_uuid_or_name_and_by_partition(
        self, store: ServedStore, given: dict[str, Any], holds: bool
    ) -> None:
        allow(store)
        row = publishing(store)
        store.add_hold(hold(**given), ASKED)
        if holds:
            with pytest.raises(RefusedError) as refused:
                announce(store, row)
            assert refused.value.code == "held"
            assert "an audit" in refused.value.message
            store.release_hold("hold-1", ASKED)
        announce(store, row)
        assert len(open_intents(store, row)) == 1

    # -- intents ------------------------------------------------------------------------------------

    def test_an_announcement_is_kept_with_its_event_and_its_note(self, store: ServedStore) -> None:
        allow(store)
        row = announce(store, publishing(store))
        (intent,) = store.intents(row.id)
        assert (intent.table, intent.partition, intent.step) == (TABLE, "202401", "move")
        assert (intent.query_id, intent.detail, intent.done_at) == ("calve-q", "{}", None)
        assert (row.publish_sent, row.publish_note) == (True, "look")
        assert store.events(row.id)[-1].name == ANNOUNCED

    @pytest.mark.parametrize(
        "wrong",
        [
            "held", "paused", "all_paused", "no_program", "another_hash", "one_of_two", "not_in_the_file", "unreadable",
            "dead", "not_approved", "revoked", "another_table", "another_destination", "another_what",
        ],
    )  # fmt: skip
    def test_nothing_is_announced_unless_everything_allows_it(
        self, store: ServedStore, clock: FakeClock, wrong: str
    ) -> None:
        row = publishing(store)
        approvals = {
            "not_approved": {"hash": "h0"},
            "another_table": {"identity": "server:s/u2"},
            "another_destination": {"destination": "lake.ns.other"},
            "another_what": {"what": "drop"},
        }
        approval = approve(store, **approvals.get(wrong, {}))
        store.announce("worker-1", [said("other", "h9"), said("events", "h1")])
        match wrong:
            case "held":
                store.add_hold(hold(), ASKED)
            case "paused":
                store.put_halt(Halt(kind="policy", source="events", who="anne"), ASKED)
            case "all_paused":
                store.put_halt(Halt(kind="policy", source="", who="anne"), ASKED)
            case "no_program":
                store.announce("worker-1", [])
            case "another_hash":
                store.announce("worker-1", [said("events", "h2")])
            case "one_of_two":
                store.announce("worker-2", [said("events", "h2")])
            case "not_in_the_file":
                store.announce("worker-2", [said("other", "h9")])
            case "unreadable":
                store.announce("worker-2", [said("", "unreadable")])
            case "dead":
                clock.advance(61)
            case "revoked":
                assert store.revoke_approval(approval.seq, ASKED)
        codes = {"held": "held", "paused": "paused", "all_paused": "paused"} | dict.fromkeys(
            ("no_program", "another_hash", "one_of_two", "not_in_the_file", "unreadable", "dead"), "policy_differs"
        )  # fmt: skip
        before, version = store.process(row.id), store.guard(TABLE)
        with pytest.raises(RefusedError) as refused:
            announce(store, row)
        assert refused.value.code == codes.get(wrong, "not_approved")
        assert store.intents(row.id) == []
        assert (store.process(row.id), store.guard(TABLE)) == (before, version)

    def test_a_program_that_died_with_an_older_policy_does_not_count(
        self, store: ServedStore, clock: FakeClock
    ) -> None:
        store.announce("worker-2", [said("events", "h0")])
        clock.advance(61)
        allow(store)
        assert [one.program for one in store.announced(live_seconds=60)] == ["worker-1"]
        row = publishing(store)
        announce(store, row)
        assert open_intents(store, row)

    def test_what_no_policy_wants_needs_its_own_approval_and_no_program(self, store: ServedStore) -> None:
        permit = Permit(what="drop", policy="", hash="plan-1", destination="lake.ns.events")
        row = publishing(store)
        with pytest.raises(RefusedError) as refused:
            announce(store, row, permit=permit)
        assert refused.value.code == "not_approved"
        approve(store, what="drop", policy="", hash="plan-1")
        announce(store, row, permit=permit)

    def test_a_hold_never_keeps_rows_away_from_their_table(self, store: ServedStore) -> None:
        store.add_hold(hold(), ASKED)
        row = publishing(store)
        announce(store, row, step="back", permit=None)
        assert len(open_intents(store, row)) == 1

    def test_an_announcement_by_an_older_version_of_the_guard_is_refused_whole(
        self, store: ServedStore
    ) -> None:
        allow(store)
        row = publishing(store)
        stale = intend(store)
        store.add_hold(hold(identity="", uuid=""), ASKED)
        store.release_hold("hold-1", ASKED)
        for item in (stale, replace(stale, permit=None)):
            with pytest.raises(ConflictError):
                store.apply(lease_of(row), Change(PublishNote("look"), item))
        after = store.process(row.id)
        assert (after.version, after.publish_sent, store.intents(row.id)) == (row.version, False, [])
        announce(store, row)

    def test_who_lost_the_lease_announces_nothing(self, store: ServedStore, clock: FakeClock) -> None:
        allow(store)
        row = publishing(store)
        clock.advance(60)
        claim_one(store, row.id, BERT)
        store.announce("worker-1", [said("events", "h1")])
        assert row.owner == ANNE
        with pytest.raises(FenceLostError):
            announce(store, row)
        assert store.intents(row.id) == []

    @pytest.mark.parametrize(
        "given",
        [{"partition": ""}, {"step": ""}, {"permit": replace(PERMIT, policy="")}, {"permit": replace(PERMIT, hash="")}],
        ids=["no_partition", "no_step", "no_policy", "no_hash"],
    )  # fmt: skip
    def test_an_announcement_that_says_too_little_is_illegal(
        self, store: ServedStore, given: dict[str, Any]
    ) -> None:
        allow(store)
        with pytest.raises(PermanentError) as refused:
            announce(store, publishing(store), **given)
        assert refused.value.code == "illegal_change"

    def test_an_announcement_needs_a_note_and_a_process_that_publishes(self, store: ServedStore) -> None:
        allow(store)
        row = publishing(store)
        with pytest.raises(PermanentError):
            store.apply(lease_of(row), Change(intend(store)))
        with pytest.raises(PermanentError):
            announce(store, running(store))

    def test_an_announced_step_ends_once_by_its_own_process(self, store: ServedStore) -> None:
        allow(store)
        row, other = publishing(store), publishing(store)
        announce(store, row)
        (seq,) = open_intents(store, row)
        done = Change(Achieved(intent=seq, result="moved"))
        with pytest.raises(ConflictError):
            store.apply(lease_of(other), done)
        store.apply(lease_of(row), done)
        with pytest.raises(ConflictError):
            store.apply(lease_of(row), done)
        (intent,) = store.intents(row.id)
        assert (intent.result, intent.done_at is None) == ("moved", False)

    def test_a_hold_names_the_steps_that_were_announced_before_it(self, store: ServedStore) -> None:
        allow(store)
        row = publishing(store)
        announce(store, row)
        announce(store, row, partition="202402")
        (first, second) = open_intents(store, row)
        assert [one.seq for one in store.add_hold(hold("a"), ASKED).open] == [first, second]
        assert [one.seq for one in store.add_hold(hold("b", partition="202402"), ASKED).open] == [second]
        store.apply(lease_of(row), Change(Achieved(intent=second, result="moved")))
        assert [one.seq for one in store.add_hold(hold("c", identity="", uuid=""), ASKED).open] == [first]
        assert store.add_hold(hold("d", identity="x", uuid="y", name="main:db.z"), ASKED).open == ()

    @pytest.mark.parametrize(
        "given", [{}, {"identity": "", "uuid": ""}, {"identity": "o", "name": "main:db.renamed"}],
        ids=["known", "by_name", "by_uuid"],
    )  # fmt: skip
    def test_a_hold_and_an_announcement_at_once_never_miss_each_other(
        self, store: ServedStore, rivals: Sequence[ServedStore], given: dict[str, str]
    ) -> None:
        """The guards' rows of a table are there only after the first round: that one is raced too."""
        row = publishing(store)
        for number in range(RACES):
            allow(store)
            wanted = Change(PublishNote("look"), intend(store))
            both: list[Callable[[], object]] = [
                partial(rivals[0].add_hold, hold(f"hold-{number}", **given), ASKED),
                partial(rivals[1].apply, lease_of(row), wanted),
            ]
            added, announced = race(both)
            assert isinstance(added, HoldAdded), added
            begun = open_intents(store, row)
            assert [one.seq for one in added.open] == begun
            if isinstance(announced, CalveError):
                assert isinstance(announced, ConflictError) or announced.code == "held"
                assert begun == []
            for seq in begun:
                store.apply(lease_of(row), Change(Achieved(intent=seq, result="done")))
            store.release_hold(f"hold-{number}", ASKED)

    def test_of_announcements_by_one_version_of_the_guard_one_wins(
        self, store: ServedStore, rivals: Sequence[ServedStore]
    ) -> None:
        allow(store)
        processes = [publishing(store) for _ in rivals]
        wanted = Change(PublishNote("look"), intend(store))
        outcomes = race(
            [
                partial(rival.apply, lease_of(process), wanted)
                for rival, process in zip(rivals, processes, strict=True)
            ]
        )
        assert sum(isinstance(one, Process) for one in outcomes) == 1
        assert all(isinstance(one, Process | ConflictError) for one in outcomes)
        assert sum(len(store.intents(process.id)) for process in processes) == 1

    # -- approvals and announcements ----------------------------------------------------------------

    def test_an_approval_stands_once_until_it_is_revoked(self, store: ServedStore) -> None:
        first = approve(store)
        assert approve(store, who="bert") == first
        assert store.approvals() == [first]
        assert store.revoke_approval(first.seq, replace(ASKED, who="bert"))
        assert not store.revoke_approval(first.seq, ASKED)
        assert store.approvals() == []
        again = approve(store)
        assert again.seq != first.seq
        assert [one.revoked_by for one in store.approvals(every=True)] == ["bert", ""]

    def test_a_program_announces_in_place_of_what_it_said_before(self, store: ServedStore) -> None:
        store.announce("worker-1", [said("a", "1"), said("b", "2")])
        store.announce("worker-2", [said("a", "1")])
        store.announce("worker-1", [said("b", "3")])
        found = store.announced(live_seconds=60)
        assert [(one.program, one.name, one.hash, one.body) for one in found] == [
            ("worker-1", "b", "3", "{}"),
            ("worker-2", "a", "1", "{}"),
        ]

    # -- releases -----------------------------------------------------------------------------------

    def test_a_release_lives_with_the_changes_of_its_process(self, store: ServedStore) -> None:
        row = publishing(store)
        begin(store, row, 1)
        for item in (
            ReleaseTo(state=ReleaseState.MOVING, place="calve_released.u1_1"),
            ReleaseTo(state=ReleaseState.MOVED, rows=3_000_000_000, sums="[1]", parts='["p"]'),
            ReleaseTo(state=ReleaseState.QUARANTINED),
        ):
            store.apply(lease_of(row), Change(item))
        (found,) = store.releases(TABLE.identity, "lake.ns.events")
        assert (found.process_id, found.attempt, found.state) == (row.id, 1, ReleaseState.QUARANTINED)
        assert (found.place, found.rows, found.sums, found.version) == (
            "calve_released.u1_1", 3_000_000_000, "[1]", 4
        )  # fmt: skip
        assert found.moved_at is not None
        assert found.settled_at is not None
        assert store.releases(TABLE.identity, "lake.ns.other") == []
        assert store.releases_in(frozenset({ReleaseState.QUARANTINED, ReleaseState.MOVED})) == [found]
        assert store.releases_in(frozenset({ReleaseState.DROPPED})) == []
        drop = publishing(store)
        store.apply(lease_of(drop), Change(ReleaseTo(state=ReleaseState.DROPPING, release=row.id)))
        assert store.releases(TABLE.identity)[0].state is ReleaseState.DROPPING

    def test_a_release_takes_no_other_way_than_the_table_has(self, store: ServedStore) -> None:
        row = publishing(store)
        with pytest.raises(ConflictError):
            store.apply(lease_of(row), Change(ReleaseTo(state=ReleaseState.MOVING)))
        begin(store, row, 1)
        with pytest.raises(PermanentError) as refused:
            store.apply(lease_of(row), Change(ReleaseTo(state=ReleaseState.DROPPED)))
        assert refused.value.code == "illegal_transition"
        assert store.releases(TABLE.identity)[0].state is ReleaseState.MARKED

    def test_an_attempt_is_made_once_and_of_one_partition_one_at_a_time(self, store: ServedStore) -> None:
        first = publishing(store)
        begin(store, first, 1)
        for attempt, partition in ((1, "202402"), (2, "202401")):
            with pytest.raises(ConflictError):
                begin(store, publishing(store), attempt, partition)
        begin(store, publishing(store), 2, "202402")
        for state in (ReleaseState.RETURNING, ReleaseState.RETURNED):
            store.apply(lease_of(first), Change(ReleaseTo(state=state)))
        begin(store, publishing(store), 3)
        assert [one.attempt for one in store.releases(TABLE.identity)] == [1, 2, 3]


def begin(store: ServedStore, process: Process, attempt: int, partition: str = "202401") -> None:
    new = NewRelease(
        identity=TABLE.identity, partition=partition, destination="lake.ns.events", attempt=attempt, keys="{}"
    )
    store.apply(lease_of(process), Change(new))
