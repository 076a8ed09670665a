"""Reading back: what a person or a tick asks for."""

from dataclasses import replace

import pytest

from calve.control.ports import Store
from calve.model.errors import NotFoundError, UsageError
from calve.model.process import BatchId, Granted, ProcessId, ProcessQuery, Worker, WorkerId
from calve.model.states import PROCESS_LIVE, PROCESS_TERMINAL, ProcessState, TaskState
from calve.testing.clock import FakeClock
from calve.testing.contracts.contract import (
    ANNE,
    BERT,
    FAILURE,
    Contract,
    claimed,
    finish_task,
    move,
    publishing,
    running,
    start_task,
    submit,
)


class ReadsContract(Contract):
    def test_a_person_finds_a_process_by_id_prefix_or_batch(self, store: Store) -> None:
        batch = BatchId("batch-abc")
        first = submit(store, id=ProcessId("abcd"), batch=batch).id
        second = submit(store, id=ProcessId("abce"), batch=batch).id
        whole = submit(store, id=ProcessId("abc")).id
        assert store.find("abcd") == (first,)
        assert store.find("abc") == (whole,)
        assert store.find("batch-abc") == (first, second)
        assert submit(store, id=ProcessId("xyz")).id in store.find("x")
        with pytest.raises(UsageError, match="abcd"):
            store.find("ab")
        for unknown in ("nobody", "", "abc%", "ABC", "z\x00"):
            with pytest.raises(NotFoundError):
                store.find(unknown)

    def test_many_processes_are_read_by_one_question_and_unknown_ones_left_out(self, store: Store) -> None:
        ids = [submit(store).id for _ in range(3)]
        asked = [ids[2], ProcessId("nobody"), ids[0], ids[0], ProcessId("z\x00")]
        assert sorted(row.id for row in store.known(asked)) == sorted([ids[0], ids[2]])
        assert store.known([]) == []
        many = [ProcessId(f"nobody{number}") for number in range(2_000)]
        assert [row.id for row in store.known([*many, ids[1]])] == [ids[1]]
        assert store.known(ids[:1]) == [store.process(ids[0])]

    def test_the_load_of_a_worker_is_what_its_processes_have_yet_to_run(self, store: Store) -> None:
        assert store.load() == {}
        planned = start_task(store, running(store, tasks=3))
        finish_task(store, start_task(store, planned, 2), 2)
        publishing(store)
        move(store, claimed(store, BERT), ProcessState.CANCELLED)
        assert store.load() == {ANNE: 2}
        claimed(store, BERT)
        submit(store)  # nobody's
        assert store.load() == {ANNE: 2, BERT: 1}

    def test_processes_are_listed_newest_first_and_filtered(self, store: Store) -> None:
        ended = move(store, claimed(store), ProcessState.CANCELLED).id
        retry = submit(store, kind="backup", destination="backups/", retry_of=ended).id
        batched = submit(store, batch=BatchId("batch-1")).id
        active = running(store).id

        def ids(**query: object) -> list[ProcessId]:
            return [row.id for row in store.processes(ProcessQuery(**query))]  # type: ignore[arg-type]

        assert ids() == [active, batched, retry, ended]
        assert ids(limit=2) == [active, batched]
        assert ids(states=PROCESS_TERMINAL) == [ended]
        assert ids(states=PROCESS_LIVE) == [active, batched, retry]
        assert ids(states=PROCESS_LIVE, limit=2) == [active, batched]
        assert ids(states=frozenset(ProcessState)) == [active, batched, retry, ended]
        assert ids(states=frozenset({ProcessState.RUNNING})) == [active]
        assert ids(kind="backup") == [retry]
        assert ids(batch=BatchId("batch-1")) == [batched]
        assert ids(destination="backups/") == [retry]
        assert ids(retry_of=ended) == [retry]
        assert ids(kind="export", states=PROCESS_LIVE, destination="backups/") == []

    def test_the_living_come_by_priority_then_age(self, store: Store) -> None:
        ids = [submit(store, priority=priority).id for priority in (0, 7, 0)]
        move(store, claimed(store, priority=99), ProcessState.CANCELLED)
        assert [row.id for row in store.live()] == [ids[1], ids[0], ids[2]]
        assert [row.id for row in store.live(limit=1)] == [ids[1]]

    def test_pages_of_a_list_follow_each_other_whatever_is_submitted_between_them(self, store: Store) -> None:
        ids = [submit(store).id for _ in range(5)]
        for states in (
            frozenset(),
            frozenset(ProcessState),
            frozenset({ProcessState.PENDING, ProcessState.FAILED}),
        ):
            first = store.processes(ProcessQuery(limit=2, states=states))
            submit(store)
            second = store.processes(ProcessQuery(limit=3, states=states, before=first[-1].id))
            assert [row.id for row in second] == [
                row.id
                for row in store.processes(ProcessQuery(states=states))
                if row.id not in {one.id for one in first}
            ][1:4]
        last = store.processes(ProcessQuery(before=ids[1]))
        assert [row.id for row in last] == ids[:1]
        assert store.processes(ProcessQuery(before=ids[0])) == []
        with pytest.raises(NotFoundError):
            store.processes(ProcessQuery(before=ProcessId("nobody")))

    def test_processes_are_found_by_a_table_at_either_end_and_by_when_they_were_made(
        self, store: Store, clock: FakeClock
    ) -> None:
        here = submit(store, source="main:db.t", destination="lake.ns.a")
        clock.advance(60)
        there = submit(store, source="main:db.u", destination="main:db.t")
        both = submit(store, source="main:db.t", destination="main:db.t")
        submit(store)
        query = ProcessQuery(table="main:db.t")
        assert [row.id for row in store.processes(query)] == [both.id, there.id, here.id]
        assert [row.id for row in store.processes(replace(query, limit=1, before=both.id))] == [there.id]
        pending = replace(query, states=frozenset({ProcessState.PENDING, ProcessState.FAILED}))
        assert [row.id for row in store.processes(pending)] == [both.id, there.id, here.id]
        earlier = ProcessQuery(created_before=there.created_at)
        assert [row.id for row in store.processes(earlier)] == [here.id]
        window = replace(earlier, created_since=here.created_at, table="lake.ns.a")
        assert [row.id for row in store.processes(window)] == [here.id]

    def test_tasks_are_listed_by_number_and_state(self, store: Store) -> None:
        row = start_task(store, running(store, tasks=12), 2)
        assert [task.number for task in store.tasks(row.id)] == list(range(1, 13))
        assert [task.number for task in store.tasks(row.id, frozenset({TaskState.RUNNING}))] == [2]
        pending = frozenset({TaskState.PENDING, TaskState.RUNNING})
        assert [task.number for task in store.tasks(row.id, pending, limit=3)] == [1, 2, 3]
        assert [task.number for task in store.tasks(row.id, limit=2, first=4)] == [4, 5]
        assert [task.number for task in store.tasks(row.id, pending, first=11)] == [11, 12]
        assert store.tasks(row.id)[1].spec == '{"n": 2}'

    def test_the_last_event_moves_with_every_submission_and_request(self, store: Store) -> None:
        seen = [store.last_event()]
        row = submit(store)
        seen.append(store.last_event())
        store.request_cancel(row.id)
        seen.append(store.last_event())
        assert seen == sorted(set(seen))
        assert seen[-1] == store.events(row.id)[-1].number

    def test_what_nobody_wrote_is_empty_or_not_found(self, store: Store) -> None:
        nobody = ProcessId("nobody")
        with pytest.raises(NotFoundError):
            store.process(nobody)
        assert store.plan(nobody) is None
        assert store.tasks(nobody) == []
        assert store.pins(nobody) == []
        assert store.events(nobody) == []
        assert store.next_task_at(nobody) is None
        assert store.holder("nothing") is None

    def test_a_worker_is_seen_by_its_heartbeat_until_it_is_forgotten(
        self, store: Store, clock: FakeClock
    ) -> None:
        long_ago = store.now().replace(year=1999)  # a worker's own clock counts for nothing (D11)
        worker = Worker(
            id=WorkerId("w1"),
            host="host",
            reach=("source:main",),
            slots=4,
            started_at=long_ago,
            heartbeat_at=long_ago,
            error=FAILURE,
            version="0.2.0",
            granted=Granted(executors=2, at_once=8),
        )
        store.heartbeat(worker)
        (first,) = store.workers()
        assert first.started_at == first.heartbeat_at
        assert abs((first.started_at - store.now()).total_seconds()) < 3600
        assert (first.reach, first.slots, first.error) == (("source:main",), 4, FAILURE)
        assert (first.version, first.granted) == ("0.2.0", worker.granted)
        clock.advance(60)
        store.heartbeat(worker)
        (later,) = store.workers()
        assert later.started_at == first.started_at
        assert later.heartbeat_at > first.heartbeat_at
        store.forget_worker(worker.id)
        store.forget_worker(worker.id)
        assert store.workers() == []

    def test_a_breaker_opens_once_is_probed_by_one_and_closes(self, store: Store, clock: FakeClock) -> None:
        assert store.claim_probe("lane", 5) is False
        store.trip("lane", "refused", 10)
        (opened,) = store.breakers()
        clock.advance(5)
        store.trip("lane", "timed out", 10)
        (pushed,) = store.breakers()
        assert (pushed.opened_at, pushed.reason) == (opened.opened_at, "timed out")
        assert pushed.probe_at > opened.probe_at
        assert store.claim_probe("lane", 10) is False
        clock.advance(11)
        assert store.claim_probe("lane", 10) is True
        assert store.claim_probe("lane", 10) is False
        assert store.breakers()[0].probes == 1
        store.close_breaker("lane")
        store.close_breaker("lane")
        assert store.breakers() == []
