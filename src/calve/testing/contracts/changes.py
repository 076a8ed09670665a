"""Changes: whole or not at all, guarded, counted, recorded."""

from itertools import product

import pytest

from calve.control.ports import Store
from calve.model.apply import ALL_DONE
from calve.model.change import (
    Budget,
    Change,
    ClearWait,
    CountAttempt,
    LeftoversTo,
    Met,
    MoveTo,
    NewEvent,
    NewPin,
    PinChange,
    PublishNote,
    RefundAttempt,
    Result,
    TaskChange,
    WaitFor,
    WritePlan,
)
from calve.model.errors import ConflictError, FenceLostError, NotFoundError, PermanentError
from calve.model.process import Lease, NewTask, Process, ProcessId, TaskCounts
from calve.model.states import (
    LEFTOVERS_TRANSITIONS,
    PROCESS_TERMINAL,
    PROCESS_TRANSITIONS,
    TASK_TRANSITIONS,
    Leftovers,
    PinState,
    ProcessState,
    TaskState,
    may_move,
)
from calve.testing.clock import FakeClock
from calve.testing.contracts.contract import (
    ANNE,
    FAILURE,
    Contract,
    claim_one,
    claimed,
    done,
    finish_task,
    in_state,
    lease_of,
    move,
    running,
    start_task,
    submit,
)

BIG = 2**31 + 7


class ChangesContract(Contract):
    @pytest.mark.parametrize(("before", "after"), list(product(ProcessState, ProcessState)))
    def test_a_process_moves_exactly_as_the_table_says(
        self, store: Store, before: ProcessState, after: ProcessState
    ) -> None:
        row = in_state(store, before)
        if may_move(PROCESS_TRANSITIONS, before, after):
            row = self._ready_for(store, row.id, before, after)
            plan = [WritePlan("{}")] if after is ProcessState.RUNNING else []
            assert move(store, row, after, *plan).state is after
            return
        with pytest.raises(PermanentError) as refused:
            move(store, row, after)
        assert refused.value.code == "illegal_transition"
        assert store.process(row.id) == row

    def _ready_for(
        self, store: Store, process_id: ProcessId, before: ProcessState, after: ProcessState
    ) -> Process:
        row = store.process(process_id)
        if before is ProcessState.RUNNING and after in ALL_DONE:
            row = start_task(store, row)
            row = finish_task(store, row)
        return row

    @pytest.mark.parametrize(("before", "after"), list(product(TaskState, TaskState)))
    def test_a_task_moves_exactly_as_the_table_says(
        self, store: Store, before: TaskState, after: TaskState
    ) -> None:
        row = running(store, tasks=2)
        attempt = 0
        if before is not TaskState.PENDING:
            row, attempt = start_task(store, row), 1
        if before not in (TaskState.PENDING, TaskState.RUNNING):
            first = TaskChange(number=1, before=TaskState.RUNNING, after=before, attempt=1, receipt="r")
            row = store.apply(lease_of(row), Change(first))
        starts = after is TaskState.RUNNING
        change = TaskChange(
            number=1, before=before, after=after, attempt=attempt + 1 if starts else attempt, receipt="r"
        )
        if may_move(TASK_TRANSITIONS, before, after):
            store.apply(lease_of(row), Change(change))
            assert store.tasks(row.id)[0].state is after
            return
        with pytest.raises(PermanentError) as refused:
            store.apply(lease_of(row), Change(change))
        assert refused.value.code == "illegal_transition"
        assert store.tasks(row.id)[0].state is before
        assert store.process(row.id) == row

    @pytest.mark.parametrize(("before", "after"), list(product(Leftovers, Leftovers)))
    def test_leftovers_move_exactly_as_the_table_says(
        self, store: Store, before: Leftovers, after: Leftovers
    ) -> None:
        row = running(store)
        ways = {
            Leftovers.NONE: (),
            Leftovers.KEPT: (Leftovers.KEPT,),
            Leftovers.ADOPTED: (Leftovers.KEPT, Leftovers.ADOPTED),
            Leftovers.UNDOING: (Leftovers.KEPT, Leftovers.UNDOING),
            Leftovers.GONE: (Leftovers.KEPT, Leftovers.UNDOING, Leftovers.GONE),
        }
        for step in ways[before]:
            row = store.apply(lease_of(row), Change(LeftoversTo(step), expect_version=row.version))
        change = Change(LeftoversTo(after), expect_version=row.version)
        if may_move(LEFTOVERS_TRANSITIONS, before, after):
            assert store.apply(lease_of(row), change).leftovers is after
            return
        with pytest.raises(PermanentError) as refused:
            store.apply(lease_of(row), change)
        assert refused.value.code == "illegal_transition"
        assert store.process(row.id) == row

    def test_a_change_made_on_an_older_version_conflicts_and_changes_nothing(self, store: Store) -> None:
        row = claimed(store)
        store.request_cancel(row.id)
        with pytest.raises(ConflictError):
            move(store, row, ProcessState.CANCELLED, WritePlan("{}"), pin("p"))
        after = store.process(row.id)
        assert after.state is ProcessState.PENDING
        assert store.pins(row.id) == []
        assert store.plan(row.id) is None

    def test_a_change_of_state_must_say_the_version_it_was_read_at(self, store: Store) -> None:
        row = claimed(store)
        for change in (Change(MoveTo(ProcessState.CANCELLED)), Change(LeftoversTo(Leftovers.KEPT))):
            with pytest.raises(PermanentError) as refused:
                store.apply(lease_of(row), change)
            assert refused.value.code == "illegal_change"

    def test_an_unknown_process_is_not_found(self, store: Store) -> None:
        with pytest.raises(NotFoundError):
            store.apply(Lease(process_id=ProcessId("nobody"), worker=ANNE, fence=1), Change())

    def test_the_plan_is_written_once(self, store: Store) -> None:
        row = running(store)
        assert store.plan(row.id) == '{"plan": 1}'
        assert row.planned
        with pytest.raises(ConflictError):
            store.apply(lease_of(row), Change(WritePlan("another")))
        assert store.plan(row.id) == '{"plan": 1}'

    def test_nothing_runs_without_a_plan_and_nothing_publishes_before_all_is_done(self, store: Store) -> None:
        with pytest.raises(PermanentError, match="without a plan"):
            move(store, claimed(store), ProcessState.RUNNING)
        row = start_task(store, running(store, tasks=2))
        row = finish_task(store, row)
        with pytest.raises(PermanentError, match="1 of 2"):
            move(store, row, ProcessState.PUBLISHING)
        assert store.process(row.id).state is ProcessState.RUNNING

    def test_a_failure_must_say_why(self, store: Store) -> None:
        row = claimed(store)
        with pytest.raises(PermanentError) as refused:
            move(store, row, ProcessState.FAILED, error=None)
        assert refused.value.code == "illegal_change"

    def test_a_task_is_counted_on_its_process_in_the_same_change(self, store: Store) -> None:
        row = running(store, tasks=3)
        assert row.tasks == TaskCounts(total=3)
        row = start_task(store, row, 1)
        row = start_task(store, row, 2)
        assert row.tasks == TaskCounts(total=3, running=2)
        row = finish_task(store, row, 1, rows=10, files=2, bytes=300)
        row = finish_task(store, row, 2, rows=1, files=1, bytes=1)
        assert row.tasks == TaskCounts(total=3, done=2)
        assert (row.rows, row.files, row.bytes) == (11, 3, 301)
        assert row == store.process(row.id)

    def test_a_started_task_knows_its_attempt_fence_and_time(self, store: Store) -> None:
        row = start_task(store, running(store))
        (task,) = store.tasks(row.id)
        assert (task.state, task.attempt, task.fence) == (TaskState.RUNNING, 1, row.fence)
        assert task.started_at is not None
        row = finish_task(store, row)
        (task,) = store.tasks(row.id)
        assert (task.state, task.receipt) == (TaskState.DONE, '{"receipt": 1}')
        assert task.finished_at is not None

    def test_a_failed_attempt_waits_and_the_next_one_has_another_number(
        self, store: Store, clock: FakeClock
    ) -> None:
        row = start_task(store, running(store, tasks=2))
        back = TaskChange(
            number=1,
            before=TaskState.RUNNING,
            after=TaskState.PENDING,
            attempt=1,
            error=FAILURE,
            wait_seconds=20,
            free=True,
        )
        row = store.apply(lease_of(row), Change(back))
        assert row.tasks.running == 0
        assert [task.number for task in store.ready_tasks(row.id, 10)] == [2]
        waiting = store.tasks(row.id)[0]
        assert (waiting.error, waiting.attempt, waiting.free_attempts) == (FAILURE, 1, 1)
        assert store.next_task_at(row.id) == waiting.not_before
        clock.advance(21)
        assert [task.number for task in store.ready_tasks(row.id, 10)] == [1, 2]
        assert [task.number for task in store.ready_tasks(row.id, 1)] == [1]
        assert store.next_task_at(row.id) is None
        with pytest.raises(ConflictError):
            start_task(store, row, attempt=1)
        row = start_task(store, row, attempt=2)
        assert store.tasks(row.id)[0].attempt == 2

    def test_D4_a_completion_of_an_older_attempt_is_refused(self, store: Store) -> None:
        row = start_task(store, running(store))
        back = TaskChange(number=1, before=TaskState.RUNNING, after=TaskState.PENDING, attempt=1)
        row = store.apply(lease_of(row), Change(back))
        row = start_task(store, row, attempt=2)
        with pytest.raises(ConflictError, match="attempt"):
            finish_task(store, row, attempt=1, receipt="zombie")
        (task,) = store.tasks(row.id)
        assert (task.state, task.receipt) == (TaskState.RUNNING, "")
        assert store.process(row.id).tasks.done == 0

    def test_L35_a_second_completion_of_one_attempt_is_refused_and_not_counted(self, store: Store) -> None:
        row = finish_task(store, start_task(store, running(store)), rows=5)
        with pytest.raises(ConflictError):
            finish_task(store, row, rows=5)
        assert (store.process(row.id).tasks.done, store.process(row.id).rows) == (1, 5)

    def test_one_bad_task_of_many_undoes_the_whole_change(self, store: Store) -> None:
        row = start_task(store, running(store, tasks=2))
        with pytest.raises(ConflictError):
            store.apply(lease_of(row), Change(done(1), done(2), note("x")))
        assert store.process(row.id) == row
        assert [task.state for task in store.tasks(row.id)] == [TaskState.RUNNING, TaskState.PENDING]
        assert "x" not in [event.name for event in store.events(row.id)]

    def test_a_task_is_done_only_with_its_receipt(self, store: Store) -> None:
        row = start_task(store, running(store))
        with pytest.raises(PermanentError) as refused:
            finish_task(store, row, receipt="")
        assert refused.value.code == "illegal_change"

    def test_an_adopted_receipt_makes_a_task_done_at_once(self, store: Store) -> None:
        row = claimed(store)
        tasks = (
            NewTask(number=1, spec="{}", adopted_receipt="r", rows=7, files=1, bytes=70),
            NewTask(number=2, spec="{}", rows=100),
        )
        row = store.apply(lease_of(row), Change(WritePlan("{}"), *tasks))
        assert row.tasks == TaskCounts(total=2, done=1)
        assert (row.rows, row.files, row.bytes) == (7, 1, 70)
        assert [task.number for task in store.ready_tasks(row.id, 5)] == [2]
        (adopted,) = store.tasks(row.id, frozenset({TaskState.DONE}))
        assert (adopted.number, adopted.receipt) == (1, "r")

    def test_D1_attempts_of_a_forgotten_plan_use_no_budget_and_their_numbers_do_not_come_again(
        self, store: Store
    ) -> None:
        row = claimed(store)
        new = NewTask(number=1, spec="{}", attempts_before=3)
        row = store.apply(lease_of(row), Change(WritePlan("{}"), new))
        [task] = store.ready_tasks(row.id, 5)
        assert (task.state, task.attempt, task.free_attempts) == (TaskState.PENDING, 3, 3)

    def test_a_task_number_is_given_once(self, store: Store) -> None:
        row = running(store, tasks=2)
        with pytest.raises(ConflictError):
            store.apply(lease_of(row), Change(NewTask(number=2, spec="{}")))
        with pytest.raises(PermanentError):
            twice = (NewTask(number=3, spec="{}"), NewTask(number=3, spec="{}"))
            store.apply(lease_of(row), Change(*twice))
        assert store.process(row.id).tasks.total == 2

    @pytest.mark.parametrize("end", sorted(PROCESS_TERMINAL - {ProcessState.COMPLETED}))
    def test_L24_tasks_and_pins_end_with_their_process(self, store: Store, end: ProcessState) -> None:
        row = running(store, tasks=3)
        row = store.apply(lease_of(row), Change(pin("p1"), pin("p2")))
        row = store.apply(lease_of(row), Change(PinChange(name="p1", after=PinState.TAKEN)))
        row = finish_task(store, start_task(store, row))
        row = start_task(store, row, 2)
        row = move(store, row, end)
        assert (row.state, row.owner, row.lease_until, row.not_before) == (end, None, None, None)
        assert row.finished_at is not None
        assert row.tasks == TaskCounts(total=3, done=1)
        states = [task.state for task in store.tasks(row.id)]
        assert states == [TaskState.DONE, TaskState.CANCELLED, TaskState.CANCELLED]
        assert {item.state for item in store.pins(row.id)} == {PinState.RELEASING}
        assert row == store.process(row.id)

    def test_L24_a_last_task_and_the_end_of_its_process_are_one_change(self, store: Store) -> None:
        row = start_task(store, running(store))
        failed = TaskChange(
            number=1, before=TaskState.RUNNING, after=TaskState.FAILED, attempt=1, error=FAILURE
        )
        row = move(store, row, ProcessState.FAILED, failed)
        assert row.tasks == TaskCounts(total=1, failed=1)
        assert row.error == FAILURE
        assert store.tasks(row.id)[0].error == FAILURE

    def test_L18_an_ended_process_gets_nothing_new(self, store: Store) -> None:
        row = in_state(store, ProcessState.CANCELLED)
        for change in (
            Change(WritePlan("{}")),
            Change(NewTask(number=9, spec="{}")),
            Change(pin("late")),
        ):
            with pytest.raises(PermanentError):
                store.apply(lease_of(row), change)
        assert store.process(row.id) == row

    def test_L15_counters_hold_more_than_2_to_the_31(self, store: Store) -> None:
        row = start_task(store, running(store))
        row = finish_task(store, row, rows=BIG, files=BIG, bytes=BIG * BIG // 4)
        row = store.process(row.id)
        assert (row.rows, row.files, row.bytes) == (BIG, BIG, BIG * BIG // 4)
        row = move(store, row, ProcessState.PUBLISHING)
        result = Result(rows=BIG + 1, files=2, bytes=BIG + 3, snapshot_id=str(2**63 - 1), detail='{"d": 1}')
        move(store, row, ProcessState.COMPLETED, result)
        row = store.process(row.id)
        assert (row.rows, row.files, row.bytes) == (BIG + 1, 2, BIG + 3)
        assert (row.snapshot_id, row.result) == (str(2**63 - 1), '{"d": 1}')

    def test_attempts_are_counted_and_refunded(self, store: Store) -> None:
        row = claimed(store)
        counted = Change(
            CountAttempt(Budget.PLAN),
            CountAttempt(Budget.PUBLISH),
            CountAttempt(Budget.FENCE),
            CountAttempt(Budget.CLEANUP),
        )
        row = store.apply(lease_of(row), counted)
        row = store.apply(lease_of(row), counted)
        counts = (row.plan_attempts, row.publish_attempts, row.fence_attempts, row.cleanup_attempts)
        assert counts == (2, 2, 2, 2)
        row = store.apply(lease_of(row), Change(RefundAttempt(Budget.PLAN), RefundAttempt(Budget.PUBLISH)))
        assert (row.plan_attempts, row.publish_attempts) == (1, 1)
        assert row == store.process(row.id)

    def test_a_publish_is_noted_before_it_is_sent(self, store: Store) -> None:
        row = claimed(store)
        row = store.apply(lease_of(row), Change(PublishNote('{"snapshot": 1}')))
        row = store.apply(lease_of(row), Change(CountAttempt(Budget.PUBLISH)))
        row = store.process(row.id)
        assert (row.publish_sent, row.publish_note) == (True, '{"snapshot": 1}')

    def test_a_wait_is_set_and_cleared(self, store: Store) -> None:
        row = claimed(store)
        row = store.apply(lease_of(row), Change(Met(FAILURE), WaitFor(5)))
        assert row.not_before is not None
        assert row.error == FAILURE
        assert row == store.process(row.id)
        row = store.apply(lease_of(row), Change())
        assert row.not_before is not None
        assert store.apply(lease_of(row), Change(ClearWait())).not_before is None

    def test_a_completed_process_shows_no_error_it_survived(self, store: Store) -> None:
        row = in_state(store, ProcessState.PUBLISHING)
        row = store.apply(lease_of(row), Change(Met(FAILURE)))
        assert move(store, row, ProcessState.COMPLETED).error is None

    def test_events_come_with_the_change_and_in_order(self, store: Store) -> None:
        row = claimed(store)
        store.apply(lease_of(row), Change(note("one"), note("two", "a \x00 \udcff b")))
        store.apply(lease_of(row), Change(note("three")))
        events = store.events(row.id)
        assert [event.name for event in events][-3:] == ["one", "two", "three"]
        assert [event.number for event in events] == sorted({event.number for event in events})
        assert [event.name for event in store.events(row.id, after=events[-2].number)] == ["three"]
        assert len(store.events(row.id, limit=2)) == 2

    def test_a_change_of_state_never_goes_unrecorded(self, store: Store) -> None:
        row = move(store, claimed(store), ProcessState.CANCELLED)
        assert store.events(row.id)[-1].name == "cancelled"

    def test_every_change_raises_the_version_by_one(self, store: Store) -> None:
        row = claimed(store)
        for _ in range(3):
            after = store.apply(lease_of(row), Change(note("x")))
            assert after.version == row.version + 1
            row = after

    def test_a_pin_is_journaled_taken_and_named_once(self, store: Store) -> None:
        row = claimed(store)
        other = claimed(store)
        store.apply(lease_of(row), Change(pin("p")))
        (held,) = store.pins(row.id)
        assert (held.state, held.source, held.detail) == (PinState.JOURNALED, "main", "{}")
        for holder in (row, other):
            with pytest.raises(ConflictError):
                store.apply(lease_of(holder), Change(pin("p")))
        taken = PinChange(name="p", after=PinState.TAKEN, detail='{"parts": 3}')
        with pytest.raises(ConflictError):
            store.apply(lease_of(other), Change(taken))
        store.apply(lease_of(row), Change(taken))
        (held,) = store.pins(row.id)
        assert (held.state, held.detail) == (PinState.TAKEN, '{"parts": 3}')
        with pytest.raises(ConflictError):  # never taken twice under one name (D5)
            store.apply(lease_of(row), Change(taken))
        with pytest.raises(PermanentError):
            store.apply(lease_of(row), Change(PinChange(name="p", after=PinState.JOURNALED)))

    def test_a_claim_after_the_end_gives_a_lease_that_writes(self, store: Store) -> None:
        row = in_state(store, ProcessState.FAILED)
        row = store.apply(lease_of(row), Change(LeftoversTo(Leftovers.KEPT), expect_version=row.version))
        assert row.state is ProcessState.FAILED
        assert row.owner is not None
        assert claim_one(store, row.id).fence == row.fence

    def test_a_process_nobody_claimed_takes_no_change(self, store: Store) -> None:
        row = submit(store)
        with pytest.raises(FenceLostError, match="no worker"):
            store.apply(Lease(process_id=row.id, worker=ANNE, fence=0), Change())


def pin(name: str) -> NewPin:
    return NewPin(name=name, source="main", detail="{}")


def note(name: str, message: str = "") -> NewEvent:
    return NewEvent(name=name, message=message)
