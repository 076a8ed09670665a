"""Notices and actions: added once, claimed by one at a time, recorded."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from calve.control.registry import ServedStore
from calve.model.access import Action, ActionQuery, Alarm, Notice, Role
from calve.model.errors import NotFoundError
from calve.model.process import ProcessId
from calve.testing.clock import FakeClock
from calve.testing.contracts.contract import Contract, submit
from calve.testing.contracts.races import ROUNDS, race, winners

P1 = ProcessId("p1")


def notice(id: str, **given: Any) -> Notice:
    return Notice(**{"id": id, "target": "ops", "name": "failed", "process_id": P1, "body": "{}"} | given)


def action(id: str, **given: Any) -> Action:
    return Action(**{"id": id, "who": "anne", "role": Role.OPERATOR, "command": f"create {id}"} | given)


class NoticesContract(Contract):
    def test_a_new_target_starts_at_the_end_of_the_feed_and_goes_on_from_where_it_was(
        self, store: ServedStore
    ) -> None:
        submit(store)
        assert store.follow_target("ops") == store.feed_state().last_position == 1
        submit(store)
        store.number_events()
        assert store.follow_target("ops") == 1
        assert store.follow_target("other") == 2

    def test_notices_are_added_with_the_position_or_not_at_all(self, store: ServedStore) -> None:
        store.follow_target("ops")
        assert store.add_notices("ops", after=0, upto=3, notices=[notice("a"), notice("b")])
        assert not store.add_notices("ops", after=0, upto=3, notices=[notice("c")])
        assert not store.add_notices("nobody", after=0, upto=3, notices=[notice("c")])
        assert store.follow_target("ops") == 3
        assert store.add_notices("ops", after=3, upto=4, notices=[notice("b", name="other"), notice("d")])
        claimed = store.claim_notices("ops", limit=10, lease_seconds=30)
        assert [(one.id, one.name) for one in claimed] == [("a", "failed"), ("b", "failed"), ("d", "failed")]
        assert store.totals().notices_waiting == 3

    def test_of_two_notifiers_of_one_target_one_writes(
        self, store: ServedStore, rivals: Sequence[ServedStore]
    ) -> None:
        at = store.follow_target("ops")
        for number in range(at, at + ROUNDS):
            new = [notice(f"{number}")]
            outcomes = race(
                [
                    partial(rival.add_notices, "ops", after=number, upto=number + 1, notices=new)
                    for rival in rivals
                ]
            )
            assert outcomes.count(True) == 1 and outcomes.count(False) == len(rivals) - 1
        assert len(store.claim_notices("ops", limit=100, lease_seconds=30)) == ROUNDS

    def test_alarms_of_a_target_are_raised_and_cleared_with_what_it_is_told(self, store: ServedStore) -> None:
        for target in ("ops", "other"):
            store.follow_target(target)
            raised = [Alarm(subject="export a b", state="failed", process_id=P1)]
            store.add_notices(target, after=0, upto=1, alarms=raised)
        again = [Alarm(subject="export a b", state="unknown", process_id=P1)]
        store.add_notices("ops", after=1, upto=2, alarms=again)
        assert [one.state for one in store.alarms("ops")] == ["unknown"]
        store.add_notices("ops", after=2, upto=3, cleared=["export a b", "another"])
        assert store.alarms("ops") == []
        assert [one.state for one in store.alarms("other")] == ["failed"]

    def test_a_notice_is_hidden_while_it_is_sent_and_comes_back_until_it_ends(
        self, store: ServedStore, clock: FakeClock
    ) -> None:
        store.follow_target("ops")
        store.add_notices("ops", after=0, upto=1, notices=[notice("a"), notice("b"), notice("c")])
        assert [one.id for one in store.claim_notices("ops", limit=2, lease_seconds=30)] == ["a", "b"]
        assert [one.id for one in store.claim_notices("ops", limit=2, lease_seconds=30)] == ["c"]
        assert store.claim_notices("other", limit=2, lease_seconds=30) == []
        store.record_notices(["a"])
        store.record_notices(["b"], "refused", retry_seconds=60, ends=False)
        clock.advance(31)
        assert [one.id for one in store.claim_notices("ops", limit=9, lease_seconds=30)] == ["c"]
        clock.advance(31)
        (later, again) = store.claim_notices("ops", limit=9, lease_seconds=30)
        assert (later.id, later.attempts, later.error, again.id) == ("b", 1, "refused", "c")
        store.record_notices(["b", "c"], "gone", ends=True)
        store.record_notices(["b"], "", ends=True)
        assert [(one.id, one.error) for one in store.given_up(9)] == [("c", "gone"), ("b", "gone")]
        assert [one.id for one in store.given_up(1)] == ["c"]
        clock.advance(8 * 86_400)
        assert store.claim_notices("ops", limit=9, lease_seconds=30) == []
        assert store.totals().notices_waiting == 0
        assert store.forget_requests(hours=1, audit_days=1, limit=100) == 3
        assert store.add_notices("ops", after=1, upto=2, notices=[notice("a")])

    def test_claimers_at_once_never_get_the_same_notice_or_action(
        self, store: ServedStore, rivals: Sequence[ServedStore]
    ) -> None:
        store.follow_target("ops")
        store.add_notices("ops", after=0, upto=1, notices=[notice(str(number)) for number in range(8)])
        store.put_actions([action(str(number)) for number in range(8)])
        notices = race([partial(rival.claim_notices, "ops", limit=3, lease_seconds=30) for rival in rivals])
        actions = race([partial(rival.claim_actions, limit=3, lease_seconds=30) for rival in rivals])
        for claims in (winners(notices), winners(actions)):
            ids = [one.id for claim in claims for one in claim]
            assert len(claims) == len(rivals) and len(ids) == len(set(ids)) > 0

    def test_actions_are_accepted_in_order_and_once(self, store: ServedStore) -> None:
        first = store.put_actions([action("a"), action("b")])
        assert [(one.id, one.who, one.role) for one in first] == [
            ("a", "anne", Role.OPERATOR),
            ("b", "anne", Role.OPERATOR),
        ]
        again = store.put_actions([action("b", command="another"), action("c")])
        assert [(one.id, one.command) for one in again] == [("b", "create b"), ("c", "create c")]
        assert [one.id for one in store.actions(ActionQuery())] == ["c", "b", "a"]
        assert [one.id for one in store.actions(ActionQuery(limit=1, before=again[1].number))] == ["b"]
        assert [one.id for one in store.actions(ActionQuery(ids=("a", "nobody")))] == ["a"]

    def test_an_action_is_held_for_a_while_by_one_and_done_once(
        self, store: ServedStore, clock: FakeClock
    ) -> None:
        store.put_actions([action("a"), action("b")])
        assert [one.id for one in store.claim_actions(limit=9, lease_seconds=30, ids=["b"])] == ["b"]
        assert [one.id for one in store.claim_actions(limit=9, lease_seconds=30)] == ["a"]
        assert store.claim_actions(limit=9, lease_seconds=30) == []
        clock.advance(31)
        assert [one.id for one in store.claim_actions(limit=1, lease_seconds=30)] == ["a"]
        store.hold_actions(["b", "nobody"], 30)
        clock.advance(29)
        store.hold_actions(["a"], 30)
        clock.advance(2)
        assert [one.id for one in store.claim_actions(limit=9, lease_seconds=30)] == ["b"]
        row = submit(store)
        store.record_action("a", [row.id])
        store.record_action("a", [], "too late")
        store.record_action("b", [], "refused")
        store.hold_actions(["a", "b"], 30)
        done = {one.id: one for one in store.actions(ActionQuery())}
        assert (done["a"].processes, done["a"].error) == ((row.id,), "")
        assert (done["b"].processes, done["b"].error) == ((), "refused")
        assert done["a"].done_at is not None
        with pytest.raises(NotFoundError):
            store.record_action("nobody")
        clock.advance(60)
        assert store.claim_actions(limit=9, lease_seconds=30) == []
        clock.advance(8 * 86_400)
        assert store.forget_requests(hours=1, audit_days=1, limit=100) == 2
        assert store.actions(ActionQuery()) == []
