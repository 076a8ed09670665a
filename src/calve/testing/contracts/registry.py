"""Who asked: keys that are used once, the audit, tokens, halts, proofs, servers, totals, and how they are forgotten."""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from calve.control.registry import ServedStore
from calve.model.access import AccessToken, Asked, AuditOutcome, Halt, Proof, Replayed, Role, Server
from calve.model.change import Change, CleanUpIn, NewPin
from calve.model.errors import LockedError, NotFoundError, RefusedError
from calve.model.process import ProcessId, ProcessQuery
from calve.model.states import ProcessState
from calve.testing.clock import FakeClock
from calve.testing.contracts.contract import (
    UNKNOWN,
    Contract,
    claim_one,
    claimed,
    in_state,
    lease_of,
    move,
    new,
    running,
    start_task,
    submit,
)
from calve.testing.contracts.races import ROUNDS, losers, race, winners

ANNE = Asked(who="anne", verb="export", key="k1", hash="h1", subject="main:db.events")


def asked(**given: Any) -> Asked:
    return Asked(**{"who": "anne", "verb": "export", "subject": "main:db.events"} | given)


def token(name: str = "nightly", **given: Any) -> AccessToken:
    defaults = {"id": f"id-{name}", "role": Role.OPERATOR, "hash": "ab12", "created_by": "local"}
    return AccessToken(**{"name": name} | defaults | given)


def said(store: ServedStore) -> list[tuple[str, str, AuditOutcome]]:
    return [(entry.who, entry.verb, entry.outcome) for entry in store.audited(None, 100)]


class RegistryContract(Contract):
    def test_a_key_is_used_once_and_the_same_request_gets_the_first_one_back(
        self, store: ServedStore
    ) -> None:
        live = submit(store)
        item = new(lock="l")
        store.submit([item], joined=[live.id], asked=ANNE)
        with pytest.raises(Replayed) as again:
            store.submit([new(lock="l")], asked=ANNE)
        assert again.value.request == store.request("anne", "k1")
        assert again.value.request.processes == (live.id, item.id)
        assert again.value.request.verb == "export"
        assert len(store.processes(ProcessQuery())) == 2
        assert len(store.audited(None, 10)) == 1

    def test_a_process_has_the_key_it_was_submitted_with_and_not_that_of_who_joined_it(
        self, store: ServedStore, clock: FakeClock
    ) -> None:
        alone = submit(store)
        clock.advance(1.0)
        mine, other = new(lock="l"), new(lock="m")
        store.submit([mine], joined=[alone.id], asked=ANNE)
        clock.advance(1.0)
        store.submit([other], joined=[mine.id], asked=asked(key="k2", hash="h2"))
        assert store.keys([alone.id, mine.id, other.id, ProcessId("none")]) == {mine.id: "k1", other.id: "k2"}
        assert store.keys([]) == {}

    def test_a_key_of_another_request_is_refused_and_of_another_caller_is_another_key(
        self, store: ServedStore
    ) -> None:
        store.submit([new()], asked=ANNE)
        with pytest.raises(RefusedError) as refused:
            store.submit([new()], asked=asked(key="k1", hash="h2"))
        assert refused.value.code == "key_reused"
        store.submit([new()], asked=asked(who="bert", key="k1", hash="h2"))
        assert len(store.processes(ProcessQuery())) == 2

    def test_a_request_that_only_joined_is_remembered_and_without_a_key_nothing_is_written(
        self, store: ServedStore
    ) -> None:
        live = submit(store)
        assert store.submit([], joined=[live.id], asked=ANNE) == []
        with pytest.raises(Replayed) as again:
            store.submit([], asked=ANNE)
        assert again.value.request.processes == (live.id,)
        assert store.submit([], joined=[live.id], asked=asked()) == []
        assert store.audited(None, 10) == []

    def test_a_submission_that_is_refused_uses_no_key_and_is_not_in_the_audit(
        self, store: ServedStore
    ) -> None:
        submit(store, lock="l")
        with pytest.raises(LockedError):
            store.submit([new(), new(lock="l")], asked=ANNE)
        assert store.request("anne", "k1") is None
        assert store.audited(None, 10) == []
        store.submit([new()], asked=ANNE)

    def test_of_the_same_request_sent_by_all_at_once_one_is_accepted_and_the_rest_hear_of_it(
        self, store: ServedStore, rivals: Sequence[ServedStore]
    ) -> None:
        for number in range(ROUNDS):
            who = asked(key=f"k{number}", hash="h")
            outcomes = race([partial(rival.submit, [new(lock=f"l{number}")], asked=who) for rival in rivals])
            (accepted,) = winners(outcomes)
            for error in losers(outcomes):
                assert isinstance(error, Replayed)
                assert error.request.processes == tuple(row.id for row in accepted)
        assert len(store.processes(ProcessQuery())) == len(store.audited(None, 100)) == ROUNDS

    def test_the_first_answer_is_kept_unless_it_is_huge(self, store: ServedStore) -> None:
        store.answer_request("anne", "k1", "nobody asked")
        store.submit([new()], asked=ANNE)
        store.answer_request("anne", "k1", "x" * (256 * 1024 + 1))
        assert store.request("anne", "k1").answer is None  # type: ignore[union-attr]
        store.answer_request("anne", "k1", '{"first": "ä"}')
        store.answer_request("anne", "k1", '{"second": 2}')
        assert store.request("anne", "k1").answer == '{"first": "ä"}'  # type: ignore[union-attr]

    def test_every_change_says_in_the_audit_who_asked_for_it_and_of_what(self, store: ServedStore) -> None:
        row = store.submit([new()], asked=asked())[0]
        store.request_cancel(row.id, asked=asked(who="bert", verb="cancel"))
        store.request_cancel(row.id, asked=asked(who="carl", verb="cancel"))
        store.audit(asked(verb="backup_delete"), AuditOutcome.ASKED)
        store.audit(asked(verb="backup_delete"), AuditOutcome.FAILED, "no answer")
        assert said(store) == [
            ("anne", "backup_delete", AuditOutcome.FAILED),
            ("anne", "backup_delete", AuditOutcome.ASKED),
            ("bert", "cancel", AuditOutcome.DONE),
            ("anne", "export", AuditOutcome.DONE),
        ]
        entries = store.audited(None, 100)
        assert [entry.processes for entry in entries] == [(), (), (row.id,), (row.id,)]
        assert (entries[0].detail, entries[3].subject) == ("no answer", "main:db.events")
        assert store.audited(entries[1].number, 1) == [entries[2]]

    def test_what_was_asked_about_one_process_is_found_by_its_time(self, store: ServedStore) -> None:
        row, other = (store.submit([new()], asked=asked())[0] for _ in range(2))
        store.request_cancel(row.id, asked=asked(who="bert", verb="cancel"))
        before, after = row.created_at - timedelta(seconds=5), store.now() + timedelta(seconds=5)
        found = store.audited_about(row.id, before, after, 10)
        assert [(one.who, one.verb) for one in found] == [("anne", "export"), ("bert", "cancel")]
        assert [one.who for one in store.audited_about(row.id, before, after, 1)] == ["anne"]
        assert [one.processes for one in store.audited_about(other.id, before, after, 10)] == [(other.id,)]
        assert store.audited_about(row.id, after, after, 10) == []

    def test_a_token_is_found_by_its_id_until_and_after_it_is_revoked(self, store: ServedStore) -> None:
        by = asked(verb="token_new")
        store.put_token(token(), by)
        store.put_token(token("other", expires_at=store.now() + timedelta(days=1)), by)
        assert [one.name for one in store.tokens()] == ["nightly", "other"]
        found = store.token("id-nightly")
        assert found is not None and found.valid(store.now())
        assert (found.role, found.hash, found.created_by) == (Role.OPERATOR, "ab12", "local")
        revoked = store.revoke_token("id-nightly", by)
        assert revoked == store.token("id-nightly") == store.revoke_token("id-nightly", by)
        assert not revoked.valid(store.now())
        assert store.token("nobody") is None
        with pytest.raises(NotFoundError):
            store.revoke_token("nobody", by)
        assert len(said(store)) == 3

    def test_a_token_that_expired_is_not_valid(self, store: ServedStore, clock: FakeClock) -> None:
        store.put_token(token(expires_at=store.now() + timedelta(hours=1)), asked())
        found = store.token("id-nightly")
        assert found is not None and found.valid(store.now())
        clock.advance(3601)
        assert not found.valid(store.now())

    def test_a_name_is_given_to_one_token_for_ever(self, store: ServedStore) -> None:
        store.put_token(token(), asked())
        store.revoke_token("id-nightly", asked())
        for taken in (token(id="another"), token("another", id="id-nightly")):
            with pytest.raises(RefusedError) as refused:
                store.put_token(taken, asked())
            assert refused.value.code == "token_exists"
        assert len(store.tokens()) == 1

    def test_a_halt_stands_as_it_was_first_made_until_it_is_lifted(
        self, store: ServedStore, clock: FakeClock
    ) -> None:
        halt = Halt(kind="export", source="", who="anne", reason="upgrade")
        first = store.put_halt(halt, asked(verb="halt"))
        clock.advance(60)
        assert store.put_halt(Halt(kind="export", source="", who="bert"), asked(who="bert")) == first
        store.put_halt(Halt(kind="backup", source="main:db.t", who="anne"), asked(verb="halt"))
        assert [(one.kind, one.source, one.reason) for one in store.halts()] == [
            ("backup", "main:db.t", ""),
            ("export", "", "upgrade"),
        ]
        assert store.lift_halt("export", "main:db.t", asked()) is False
        assert store.lift_halt("export", "", asked(verb="lift")) is True
        assert [one.kind for one in store.halts()] == ["backup"]
        assert [verb for _, verb, _ in said(store)] == ["lift", "halt", "halt"]

    def test_proofs_of_a_process_are_kept_newest_first(self, store: ServedStore, clock: FakeClock) -> None:
        row, other = submit(store), submit(store)
        store.record_proof(Proof(process_id=row.id, ok=False, depth="rows", detail="one is missing"))
        clock.advance(1)
        store.record_proof(Proof(process_id=row.id, ok=True, depth="values"))
        store.record_proof(Proof(process_id=other.id, ok=True, depth="rows"))
        assert [(one.ok, one.depth, one.detail) for one in store.proofs([row.id])] == [
            (True, "values", ""),
            (False, "rows", "one is missing"),
        ]
        assert len(store.proofs([row.id, other.id])) == 3

    def test_a_server_is_seen_until_it_is_forgotten(self, store: ServedStore, clock: FakeClock) -> None:
        server = Server(id="s1", host="h", url="http://h:8180", version="0.2.0")
        store.beat_server(server)
        clock.advance(60)
        store.beat_server(server)
        (seen,) = store.servers()
        assert (seen.url, seen.version) == (server.url, server.version)
        assert seen.started_at is not None and seen.heartbeat_at is not None
        assert (seen.heartbeat_at - seen.started_at).total_seconds() == pytest.approx(60, abs=30)
        store.forget_server("s1")
        store.forget_server("s1")
        assert store.servers() == []

    def test_totals_count_what_there_is(self, store: ServedStore, clock: FakeClock) -> None:
        empty = store.totals()
        assert (empty.tallies, empty.latest, empty.oldest_pin_at) == ((), (), None)
        row = start_task(store, running(store, tasks=3))
        store.apply(lease_of(row), Change(NewPin(name="p", source="main", detail="{}")))
        clock.advance(60)
        done = in_state(store, ProcessState.COMPLETED)
        store.record_proof(Proof(process_id=done.id, ok=True, depth="rows"))
        move(store, claimed(store, source="main:db.t"), ProcessState.FAILED, CleanUpIn(60), error=UNKNOWN)
        totals = store.totals()
        assert [(one.kind, one.state, one.count) for one in totals.tallies] == [
            ("export", ProcessState.COMPLETED, 1),
            ("export", ProcessState.FAILED, 1),
            ("export", ProcessState.RUNNING, 1),
        ]
        assert (totals.tasks_running, totals.tasks_waiting, totals.unknown_outcomes) == (1, 2, 1)
        assert totals.pins_held == 1 and totals.oldest_pin_at is not None
        latest = {one.source: one for one in totals.latest}
        assert latest["main:db.events"].completed_at == done.finished_at
        assert latest["main:db.events"].proven_at is not None
        assert latest["main:db.t"].failed_at is not None and latest["main:db.t"].completed_at is None

    def test_totals_stay_right_as_work_grows_old(self, store: ServedStore, clock: FakeClock) -> None:
        """What ended long ago is not read again."""
        for ends, hours in enumerate((0.0, 0.6, 0.6, 0.9, 1.0, 3.0, 26.0), start=1):
            clock.advance(hours * 3600 + 1)
            done, live = in_state(store, ProcessState.COMPLETED), submit(store)
            totals = store.totals()
            counts = {one.state: one.count for one in totals.tallies}
            assert (counts[ProcessState.COMPLETED], counts[ProcessState.PENDING]) == (ends, 1)
            assert totals.latest[0].completed_at == done.finished_at
            move(store, claim_one(store, live.id), ProcessState.CANCELLED)
            counts = {one.state: one.count for one in store.totals().tallies}
            assert counts == {ProcessState.COMPLETED: ends, ProcessState.CANCELLED: ends}

    def test_what_is_old_is_forgotten_a_piece_at_a_time_and_nothing_else(
        self, store: ServedStore, clock: FakeClock
    ) -> None:
        for number in range(5):
            store.submit([new()], asked=asked(key=f"k{number}"))
        store.put_token(token(), asked())
        store.beat_server(Server(id="s", host="h", url="u", version="v"))
        assert store.forget_requests(hours=48, audit_days=365, limit=3) == 0
        clock.advance(49 * 3600)
        store.submit([new()], asked=asked(key="young"))
        assert store.forget_requests(hours=48, audit_days=365, limit=3) == 3
        assert store.forget_requests(hours=48, audit_days=365, limit=3) == 2
        assert store.forget_requests(hours=48, audit_days=365, limit=3) == 0
        assert store.request("anne", "k0") is None and store.request("anne", "young") is not None
        assert store.servers() == []
        assert len(store.audited(None, 100)) == 7
        store.submit([new()], asked=asked(key="k0", hash="another"))
        clock.advance(366 * 86_400)
        while store.forget_requests(hours=48, audit_days=365, limit=3):
            pass
        assert store.audited(None, 100) == []
        assert len(store.tokens()) == 1
