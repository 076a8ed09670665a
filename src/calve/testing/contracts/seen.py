"""What pages show: how attempts ended and spent their time, outages, sightings, sessions."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from calve.control.registry import ServedStore
from calve.model.access import Role
from calve.model.change import Change, CleanUpIn, NewPin, TaskChange
from calve.model.errors import ErrorInfo, NotFoundError
from calve.model.process import Process
from calve.model.seen import AttemptCounts, Ending, Sighting, WebSession
from calve.model.states import ProcessState, TaskState
from calve.testing.clock import FakeClock
from calve.testing.contracts.contract import (
    ANNE,
    BERT,
    FAILURE,
    UNKNOWN,
    Contract,
    claim_one,
    claimed,
    done,
    finish_task,
    lease_of,
    move,
    publishing,
    running,
    start_task,
    submit,
)
from calve.testing.contracts.races import race

SLOW = ErrorInfo(code="s3_slow_down", message="slow down", retryable=True)
DAY_SECONDS = 86_400.0
PAIR = Sighting(
    subject="main:db.events -> lake.ns.events", what="pair", summary='{"exported": 3}', seen_by="me"
)


class SeenContract(Contract):
    def test_an_attempt_leaves_when_it_ran_how_it_ended_and_what_it_spent(
        self, store: ServedStore, clock: FakeClock
    ) -> None:
        row = start_task(store, running(store))
        began = store.now()
        clock.advance(30)
        spent = {"read": 1.25, "write": 2.0, "upload": 0.0004}
        finish_task(store, row, rows=7, bytes=2**40, spent=spent)
        (one,) = store.attempts(row.id)
        assert (one.number, one.attempt, one.ending, one.code, one.worker) == (1, 1, Ending.DONE, "", ANNE)
        assert (one.rows, one.bytes) == (7, 2**40)
        assert (one.read_ms, one.write_ms, one.upload_ms) == (1250, 2000, 0)
        assert abs(one.started_at - began) < timedelta(seconds=5)
        assert timedelta(seconds=29) < one.ended_at - one.started_at < timedelta(seconds=40)

    def test_every_way_an_attempt_ends_is_told_from_the_others(self, store: ServedStore) -> None:
        row = running(store, tasks=2)
        for attempt, free in ((1, False), (2, True)):
            row = start_task(store, row, attempt=attempt)
            row = store.apply(lease_of(row), Change(again(attempt, free=free)))
        row = start_task(store, row, attempt=3)
        failed = TaskChange(
            number=1, before=TaskState.RUNNING, after=TaskState.FAILED, attempt=3, error=FAILURE
        )
        row = store.apply(lease_of(row), Change(failed))
        row = start_task(store, row, number=2)
        move(store, row, ProcessState.FAILED)
        found = [(one.number, one.attempt, one.ending, one.code) for one in store.attempts(row.id)]
        assert found == [
            (1, 1, Ending.AGAIN, "s3_slow_down"),
            (1, 2, Ending.FREE, "s3_slow_down"),
            (1, 3, Ending.FAILED, "broken"),
            (2, 1, Ending.ENDED, ""),
        ]
        counts = store.attempt_counts(row.id)
        assert (counts.count, counts.failed) == (4, 3)
        assert counts.first_at == store.attempts(row.id)[0].started_at
        errors = store.failed_attempts(store.now() - timedelta(hours=1), 10)
        assert {code for _, code, _ in errors} == {"s3_slow_down", "broken"}
        assert sum(count for _, _, count in errors) == 3
        today = (store.now() - datetime(1970, 1, 1, tzinfo=UTC)).days
        assert {day for day, _, _ in errors} <= {today - 1, today}
        assert sum(count for _, _, count in store.failed_attempts(datetime(1970, 1, 1, tzinfo=UTC), 2)) == 2

    def test_whoever_recovers_an_attempt_is_not_said_to_have_run_it(
        self, store: ServedStore, clock: FakeClock
    ) -> None:
        row = start_task(store, running(store))
        clock.advance(3600)
        taken = claim_one(store, row.id, BERT)
        store.apply(lease_of(taken), Change(again(1)))
        (one,) = store.attempts(row.id)
        assert one.worker == ""

    def test_a_refused_change_leaves_no_attempt(self, store: ServedStore) -> None:
        row = start_task(store, running(store))
        with pytest.raises(Exception, match="attempt"):
            store.apply(lease_of(row), Change(done(attempt=2)))
        assert store.attempts(row.id) == []
        assert store.attempt_counts(row.id) == AttemptCounts()

    def test_attempts_are_read_in_pieces_and_as_a_sample(self, store: ServedStore, clock: FakeClock) -> None:
        row = running(store, tasks=9)
        for number in range(1, 10):
            row = start_task(store, row, number)
            clock.advance(100 if number == 4 else 1)
            row = finish_task(store, row, number)
        assert [one.number for one in store.attempts(row.id, limit=3)] == [1, 2, 3]
        assert [one.number for one in store.attempts(row.id, after=3, limit=3)] == [4, 5, 6]
        assert [one.number for one in store.attempts(row.id, every=4)] == [4, 8]
        assert store.slowest_attempts(row.id, 1)[0].number == 4

    def test_tasks_and_events_are_read_in_pages(self, store: ServedStore) -> None:
        row = start_task(store, running(store, tasks=5))
        row = finish_task(store, row)
        page = store.task_page(row.id, limit=2)
        assert [(task.number, task.state, task.receipt, task.spec) for task in page] == [
            (1, TaskState.DONE, "", ""),
            (2, TaskState.PENDING, "", ""),
        ]
        waiting = frozenset({TaskState.PENDING})
        assert [task.number for task in store.task_page(row.id, states=waiting, after=2)] == [3, 4, 5]
        assert store.task(row.id, 1).receipt == '{"receipt": 1}'
        with pytest.raises(NotFoundError):
            store.task(row.id, 77)
        newest = store.newest_events(row.id, limit=2)
        older = store.newest_events(row.id, before=newest[-1].number)
        assert [*newest, *older] == list(reversed(store.events(row.id)))
        assert store.plan_size(row.id) == len(store.plan(row.id) or "")

    # -- outages and ended work ---------------------------------------------------------------------

    def test_an_outage_lasts_from_the_first_trip_to_the_close(
        self, store: ServedStore, clock: FakeClock
    ) -> None:
        long_ago = store.now() - timedelta(days=1)
        store.trip("catalog:lake", "refused", 10)
        clock.advance(30)
        store.trip("catalog:lake", "timed out", 10)
        (down,) = store.outages(long_ago)
        assert (down.service, down.reason, down.closed_at) == ("catalog:lake", "refused", None)
        store.close_breaker("catalog:lake")
        store.close_breaker("catalog:lake")
        (over,) = store.outages(long_ago)
        assert over.closed_at is not None and over.opened_at == down.opened_at
        assert timedelta(seconds=29) < over.closed_at - over.opened_at < timedelta(seconds=40)
        clock.advance(600)
        assert store.outages(store.now() - timedelta(seconds=60)) == []

    def test_a_service_that_flaps_is_in_one_outage(self, store: ServedStore, clock: FakeClock) -> None:
        long_ago = store.now() - timedelta(days=1)
        for _ in range(3):
            store.trip("catalog:lake", "refused", 10)
            clock.advance(20)
            store.close_breaker("catalog:lake")
            clock.advance(20)
        (one,) = store.outages(long_ago)
        assert one.closed_at is not None
        clock.advance(3600)
        store.trip("catalog:lake", "again", 10)
        assert [(one.reason, one.closed_at is None) for one in store.outages(long_ago)] == [
            ("again", True),
            ("refused", False),
        ]

    def test_rivals_that_trip_at_once_open_one_outage(
        self, store: ServedStore, rivals: Sequence[ServedStore]
    ) -> None:
        race([partial(rival.trip, "lane", "down", 5) for rival in rivals])
        assert len(store.outages(store.now() - timedelta(hours=1))) == 1

    def test_what_ended_is_listed_by_its_end_and_added_up_by_day(
        self, store: ServedStore, clock: FakeClock
    ) -> None:
        since = store.now() - timedelta(hours=1)
        first = ended(store, rows=5)
        clock.advance(60)
        failed = move(store, running(store), ProcessState.FAILED)
        clock.advance(2 * DAY_SECONDS)
        last = ended(store, rows=7)
        running(store)
        assert [row.id for row in store.ended(since)] == [last.id, failed.id, first.id]
        assert [row.id for row in store.ended(since, limit=1)] == [last.id]
        assert [row.id for row in store.ended(since, failed=True)] == [failed.id]
        assert store.ended(store.now() + timedelta(hours=1)) == []
        ends = store.ends(since)
        assert [(one.process_id, one.state, one.finished_at) for one in ends] == [
            (row.id, row.state, row.finished_at) for row in store.ended(since)
        ]
        assert (ends[0].kind, ends[0].source, ends[0].destination, ends[0].partitions) == (
            last.kind,
            last.source,
            last.destination,
            last.partitions,
        )
        assert failed.error
        assert [(one.process_id, one.code) for one in store.ends(since, state=ProcessState.FAILED)] == [
            (failed.id, failed.error.code)
        ]
        assert [one.code for one in store.ends(since, state=ProcessState.COMPLETED)] == ["", ""]
        assert store.ends(since, limit=1) == ends[:1]
        assert store.ends(since, kind="export") == ends and store.ends(since, kind="backup") == []
        assert (
            store.ends(since, source=last.source) == ends and store.ends(since, source="main:db.other") == []
        )
        days = sorted(store.work_done(since, piece_seconds=86_400), key=lambda one: one.piece)
        assert sum(one.completed for one in days) == 2 and sum(one.failed for one in days) == 1
        assert sum(one.rows for one in days) == 12
        assert days[-1].piece - days[0].piece in (2, 3)  # midnight may lie in between
        assert {(one.kind, one.source, one.destination) for one in days} == {
            ("export", "main:db.events", "lake.ns.events")
        }

    def test_services_are_needed_until_the_last_process_that_needs_them_has_ended(
        self, store: ServedStore
    ) -> None:
        assert store.needed() == frozenset()
        row = publishing(store)
        submit(store, needs=("catalog:other", "source:main"))
        assert store.needed() == {frozenset(row.needs), frozenset(("catalog:other", "source:main"))}
        move(store, row, ProcessState.COMPLETED)
        assert store.needed() == {frozenset(("catalog:other", "source:main"))}

    def test_what_needs_a_person_is_found(self, store: ServedStore, clock: FakeClock) -> None:
        unknown = move(store, publishing(store), ProcessState.FAILED, CleanUpIn(60), error=UNKNOWN)
        failed = move(store, running(store), ProcessState.FAILED, CleanUpIn(60))
        assert [row.id for row in store.unknown_outcomes(10)] == [unknown.id]
        first, second = (submit(store, retry_of=failed.id) for _ in range(2))
        assert first.id != second.id
        assert store.retried([failed.id, unknown.id]) == {failed.id: second.id}
        held = claimed(store)
        pin = NewPin(name="held", source="main", detail="{}")
        store.apply(lease_of(held), Change(pin))
        assert store.old_pins(store.now() - timedelta(hours=6), 10) == []
        clock.advance(7 * 3600)
        assert [one.name for one in store.old_pins(store.now() - timedelta(hours=6), 10)] == ["held"]

    @pytest.mark.parametrize("name", ["2024-01", 'a"b', "100%", "a_b", "é", "\\"])
    def test_processes_are_found_by_the_beginning_of_their_id_and_by_a_partition(
        self, store: ServedStore, name: str
    ) -> None:
        one = submit(store, partitions=(name, "2024-02"))
        submit(store, partitions=(f"{name}x", "axb", "1000"))
        assert [row.id for row in store.with_partition(name, among=100, limit=10)] == [one.id]
        assert store.with_partition(name, among=1, limit=10) == []
        assert one.id in [row.id for row in store.ids_from(one.id[:3], 10)]
        assert [row.id for row in store.ids_from(one.id, 10)] == [one.id]
        assert store.ids_from("~", 10) == []

    # -- sightings and sessions ---------------------------------------------------------------------

    def test_a_sighting_replaces_the_last_and_its_body_is_read_in_pieces(self, store: ServedStore) -> None:
        store.put_sighting(PAIR, ["one", "two", "three"])
        store.put_sighting(PAIR, ["first", "second"])
        found = store.sighting(PAIR.subject, "pair")
        assert found is not None and found.seen_at is not None and found.seen_at == found.tried_at
        assert (found.summary, found.seen_by, found.pieces, found.error) == (PAIR.summary, "me", 2, "")
        assert store.sighting_body(PAIR.subject, "pair") == ["first"]
        assert store.sighting_body(PAIR.subject, "pair", first=1, limit=9) == ["second"]
        assert store.sighting("other", "pair") is None and store.sighting_body("other", "pair") == []

    def test_a_failed_look_keeps_what_was_found_before(self, store: ServedStore, clock: FakeClock) -> None:
        store.put_sighting(PAIR, ["body"])
        clock.advance(60)
        store.fail_look(PAIR.subject, "pair", "the catalog does not answer")
        found = store.sighting(PAIR.subject, "pair")
        assert found is not None and found.seen_at is not None and found.tried_at is not None
        assert found.tried_at - found.seen_at > timedelta(seconds=50)
        assert found.error == "the catalog does not answer"
        assert store.sighting_body(PAIR.subject, "pair") == ["body"]

    def test_one_of_several_looks_and_not_again_too_soon(
        self, store: ServedStore, rivals: Sequence[ServedStore], clock: FakeClock
    ) -> None:
        claim = [
            partial(rival.claim_look, "a", "health", again_seconds=900, lease_seconds=30) for rival in rivals
        ]
        assert race(claim).count(True) == 1
        clock.advance(31)  # it died while it looked
        assert claim[0]() and not claim[0]()
        store.put_sighting(Sighting(subject="a", what="health"))
        assert not claim[0]()
        clock.advance(901)
        assert claim[0]()
        store.fail_look("a", "health", "no answer")
        assert not claim[0]()

    def test_sightings_that_were_tried_since_are_listed(self, store: ServedStore, clock: FakeClock) -> None:
        store.put_sighting(Sighting(subject="a", what="pair"))
        store.put_sighting(Sighting(subject="a", what="health"))
        clock.advance(10)
        between = store.now()
        clock.advance(10)
        store.put_sighting(Sighting(subject="b", what="pair"), ["1", "2"])
        assert [one.subject for one in store.sightings("pair")] == ["a", "b"]
        assert [one.subject for one in store.sightings("pair", after=between)] == ["b"]
        assert store.sightings("pair", limit=1)[0].subject == "a"
        assert sorted(one.what for one in store.sightings("")) == ["health", "pair", "pair"]
        of = store.sightings_of("pair", ["b", "nobody", *(f"n{number}" for number in range(2000))])
        assert of == store.sightings("pair", after=between)
        assert store.sightings_of("pair", []) == []

    def test_a_session_lasts_its_time_or_until_it_is_forgotten(
        self, store: ServedStore, clock: FakeClock
    ) -> None:
        for name in ("one", "two"):
            store.put_session(session(name), seconds=3600)
            clock.advance(60)
        found = store.session("one")
        assert found is not None and found.role is Role.OPERATOR and found.token_hash == "ab"
        assert found.made_at is not None and found.expires_at == found.made_at + timedelta(hours=1)
        assert [one.hash for one in store.sessions()] == ["two", "one"]
        store.forget_session("one")
        assert store.session("one") is None and store.session("three") is None
        clock.advance(3600)
        assert store.session("two") is None and store.sessions() == []

    # -- forgetting ---------------------------------------------------------------------------------

    def test_attempts_go_with_the_history_a_piece_at_a_time(
        self, store: ServedStore, clock: FakeClock
    ) -> None:
        row = running(store, tasks=12)
        for number in range(1, 13):
            row = start_task(store, row, number)
            row = finish_task(store, row, number)
        row = move(store, row, ProcessState.CANCELLED)
        live = start_task(store, running(store))
        store.apply(lease_of(live), Change(again(1)))
        clock.advance(20 * DAY_SECONDS)
        after = store.forget_history(days=10, after=0, limit=5)
        for _ in range(20):
            if not after:
                break
            after = store.forget_history(days=10, after=after, limit=5)
        assert after == 0
        assert store.attempts(row.id) == [] and store.events(row.id) == []
        assert len(store.attempts(live.id)) == 1

    def test_old_outages_sightings_and_sessions_are_forgotten(
        self, store: ServedStore, clock: FakeClock
    ) -> None:
        long_ago = store.now() - timedelta(days=1)
        store.trip("lane", "down", 5)
        store.close_breaker("lane")
        store.put_sighting(PAIR, ["1", "2"])
        store.put_session(session("one"), seconds=60)
        clock.advance(31 * DAY_SECONDS)
        store.put_sighting(Sighting(subject="fresh", what="pair"))
        assert store.forget_requests(hours=24, audit_days=90, limit=100) > 0
        assert [one.subject for one in store.sightings("pair")] == ["fresh"]
        assert store.sighting_body(PAIR.subject, "pair", limit=9) == []
        assert len(store.outages(long_ago)) == 1
        clock.advance(60 * DAY_SECONDS)
        store.forget_requests(hours=24, audit_days=90, limit=100)
        assert store.outages(long_ago) == []


def again(attempt: int, *, free: bool = False) -> TaskChange:
    return TaskChange(
        number=1, before=TaskState.RUNNING, after=TaskState.PENDING, attempt=attempt, error=SLOW, free=free
    )


def session(name: str) -> WebSession:
    return WebSession(hash=name, token_id="t1", token_hash="ab", role=Role.OPERATOR)


def ended(store: ServedStore, *, rows: int) -> Process:
    row = start_task(store, running(store))
    row = finish_task(store, row, rows=rows)
    row = move(store, row, ProcessState.PUBLISHING)
    return move(store, row, ProcessState.COMPLETED)
