"""Accepting: all or none, one holder of a lock, retries that adopt."""

import pytest

from calve.control.ports import Store
from calve.model.change import Change, CleanUpIn, LeftoversTo, Met, MoveTo, Unlock
from calve.model.errors import ErrorInfo, LockedError, NotFoundError, Outcome, RefusedError
from calve.model.process import Lock, Process, ProcessId, ProcessQuery
from calve.model.reach import piece_of
from calve.model.states import Leftovers, ProcessState
from calve.testing.clock import FakeClock
from calve.testing.contracts.contract import (
    BERT,
    LEASE_SECONDS,
    REACH,
    UNKNOWN,
    Contract,
    claim_one,
    claimed,
    lease_of,
    move,
    new,
    running,
    submit,
)

WHOLE = "a" * 32


class SubmissionsContract(Contract):
    def test_a_submission_becomes_a_pending_row_with_its_deadline_and_event(self, store: Store) -> None:
        item = new(
            partitions=("202401", "a/../\x00\n"),
            locks=(Lock(name="k1", partition="202401"),),
            deadline_seconds=60,
            priority=3,
        )
        (row,) = store.submit([item])
        assert row == store.process(item.id)
        assert (row.state, row.version, row.priority) == (ProcessState.PENDING, 1, 3)
        assert row.partitions == item.partitions
        assert row.locks == item.locks
        assert (row.deadline_at - row.created_at).total_seconds() == 60
        assert [event.name for event in store.events(item.id)] == ["submitted"]

    def test_submitting_the_same_id_again_returns_the_row_and_changes_nothing(self, store: Store) -> None:
        item = new(lock="k1")
        first = store.submit([item])
        store.request_cancel(item.id)
        again = store.submit([item])
        assert again[0].id == first[0].id
        assert again[0].cancel_requested
        assert len(store.processes(ProcessQuery())) == 1

    def test_a_lock_that_a_live_process_holds_refuses_the_whole_submission(self, store: Store) -> None:
        holder = submit(store, lock="k1")
        with pytest.raises(LockedError, match=holder.id) as refused:
            store.submit([new(), new(lock="k1"), new()])
        assert (refused.value.code, refused.value.holder) == ("locked", holder.id)
        assert f"calve wait {holder.id}" in refused.value.hint
        assert [row.id for row in store.processes(ProcessQuery())] == [holder.id]

    def test_two_processes_of_one_submission_cannot_share_a_lock(self, store: Store) -> None:
        with pytest.raises(LockedError):
            store.submit([new(lock="k1"), new(lock="k1")])
        assert store.processes(ProcessQuery()) == []

    def test_pieces_of_one_thing_are_held_side_by_side_unless_they_overlap(self, store: Store) -> None:
        first, second = submit(store, lock=piece_of(WHOLE, 1, 1)), submit(store, lock=piece_of(WHOLE, 2, 9))
        submit(store, lock=piece_of("b" * 32, 1, 9))
        for lock, holder in (
            (piece_of(WHOLE, 1, 1), first),
            (piece_of(WHOLE, 0, 1), first),
            (piece_of(WHOLE, 9, 12), second),
            (piece_of(WHOLE, 3, 4), second),
        ):
            with pytest.raises(RefusedError, match=holder.id):
                submit(store, lock=lock)
        submit(store, lock=piece_of(WHOLE, 10, 12))

    def test_D8_the_whole_meets_each_of_its_pieces_and_each_piece_the_whole(self, store: Store) -> None:
        held = claimed(store, lock=piece_of(WHOLE, 5, 5))
        with pytest.raises(RefusedError, match=held.id):
            submit(store, lock=WHOLE)
        store.apply(lease_of(held), Change(MoveTo(ProcessState.CANCELLED), expect_version=held.version))
        whole = submit(store, lock=WHOLE)
        with pytest.raises(RefusedError, match=whole.id):
            submit(store, lock=piece_of(WHOLE, 5, 5))

    def test_pieces_that_overlap_within_one_submission_are_refused_unless_one_process_has_both(
        self, store: Store
    ) -> None:
        with pytest.raises(RefusedError):
            store.submit([new(lock=piece_of(WHOLE, 1, 3)), new(lock=piece_of(WHOLE, 3, 4))])
        assert store.processes(ProcessQuery()) == []
        both = (Lock(name=piece_of(WHOLE, 1, 3)), Lock(name=piece_of(WHOLE, 3, 4)))
        store.submit([new(locks=both)])

    def test_the_end_of_a_process_frees_its_locks(self, store: Store) -> None:
        held = claimed(store, lock="k1")
        holder = store.holder("k1")
        assert holder is not None
        assert holder.id == held.id
        move(store, held, ProcessState.CANCELLED)
        assert store.holder("k1") is None
        assert submit(store, lock="k1").state is ProcessState.PENDING

    def test_an_unknown_outcome_keeps_the_lock_until_it_is_resolved(self, store: Store) -> None:
        ended = move(store, claimed(store, lock="k1"), ProcessState.FAILED, CleanUpIn(0), error=UNKNOWN)
        holder = store.holder("k1")
        assert holder is not None
        assert holder.id == ended.id
        with pytest.raises(RefusedError):
            submit(store, lock="k1")
        resolved = ErrorInfo(code="lost", message="it never landed", outcome=Outcome.NOT_APPLIED)
        store.apply(lease_of(claim_one(store, ended.id)), Change(Met(resolved), Unlock()))
        assert store.holder("k1") is None
        submit(store, lock="k1")

    def test_a_survived_unknown_error_does_not_keep_the_lock_of_a_later_cancel(self, store: Store) -> None:
        row = claimed(store, lock="k1")
        row = store.apply(lease_of(row), Change(Met(UNKNOWN)))
        ended = move(store, row, ProcessState.CANCELLED)
        assert ended.error is None
        assert store.holder("k1") is None

    def test_a_retry_needs_an_old_process_that_has_ended(self, store: Store) -> None:
        live = submit(store)
        with pytest.raises(RefusedError) as refused:
            submit(store, retry_of=live.id)
        assert refused.value.code == "not_ended"
        with pytest.raises(NotFoundError):
            submit(store, retry_of=ProcessId("nobody"))

    def test_D3_a_retry_adopts_what_is_kept_and_only_the_first_does(
        self, store: Store, clock: FakeClock
    ) -> None:
        old = self._kept(store)
        first = submit(store, retry_of=old.id)
        second = submit(store, retry_of=old.id)
        assert (first.adopted, second.adopted) == (True, False)
        after = store.process(old.id)
        assert (after.leftovers, after.cleanup_at) == (Leftovers.ADOPTED, None)
        assert after.version > old.version
        clock.advance(100_000)
        assert old.id not in {row.id for row in self._claim_all(store)}

    def test_D3_what_is_being_undone_is_not_adopted(self, store: Store, clock: FakeClock) -> None:
        old = self._kept(store)
        clock.advance(61)
        held = claim_one(store, old.id)
        store.apply(lease_of(held), Change(LeftoversTo(Leftovers.UNDOING), expect_version=held.version))
        assert submit(store, retry_of=old.id).adopted is False
        assert store.process(old.id).leftovers is Leftovers.UNDOING

    def test_a_retry_that_ends_before_it_planned_hands_the_files_back(self, store: Store) -> None:
        old = self._kept(store)
        retry = claim_one(store, submit(store, retry_of=old.id).id)
        move(store, retry, ProcessState.CANCELLED)
        after = store.process(old.id)
        assert after.leftovers is Leftovers.KEPT
        assert after.cleanup_at is not None
        assert claim_one(store, old.id).id == old.id

    def test_a_retry_that_failed_after_planning_keeps_what_it_relies_on(self, store: Store) -> None:
        old = self._kept(store)
        retry = running(store, retry_of=old.id)
        move(store, retry, ProcessState.FAILED)
        assert store.process(old.id).leftovers is Leftovers.ADOPTED

    def test_a_cancel_is_asked_for_once_and_never_of_the_dead(self, store: Store) -> None:
        row = submit(store)
        asked = store.request_cancel(row.id)
        assert asked.cancel_requested
        assert asked.version == row.version + 1
        assert store.request_cancel(row.id) == asked
        ended = move(store, claimed(store), ProcessState.CANCELLED)
        assert store.request_cancel(ended.id) == ended
        with pytest.raises(NotFoundError):
            store.request_cancel(ProcessId("nobody"))

    def _kept(self, store: Store) -> Process:
        row = running(store)
        return move(store, row, ProcessState.FAILED, LeftoversTo(Leftovers.KEPT), CleanUpIn(60))

    def _claim_all(self, store: Store) -> list[Process]:
        return store.claim(BERT, REACH, lease_seconds=LEASE_SECONDS, limit=100)
