"""What becomes of events: who is told what, once, and what of it is never said."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from calve.control.registry import ServedStore
from calve.model.access import Notice
from calve.model.change import RESOLVED, Change, CleanUpIn, Met, NewEvent
from calve.model.errors import ErrorInfo, Outcome
from calve.model.process import BatchId, Process
from calve.model.states import PROCESS_TERMINAL, ProcessState
from calve.notify.delivery import Delivered, Delivery, calls
from calve.notify.notices import END_EVENTS, WantedNotice
from calve.notify.notifier import LEAST_ATTEMPTS, MOST_AGE, MOST_ATTEMPTS, Notifier, _is_spent, backoff
from calve.notify.targets import Ping, Target, Webhook
from calve.testing.clock import FakeClock
from calve.testing.contracts.contract import (
    FAILURE,
    claim_one,
    claimed,
    lease_of,
    move,
    new,
    running,
    start_task,
)
from calve.testing.memory_store import MemoryStore
from calve.testing.scene import Scene

UNKNOWN = ErrorInfo(code="commit", message="no answer", outcome=Outcome.UNKNOWN)


class Told:
    """A target that takes everything, and what it was told."""

    def __init__(
        self, store: ServedStore, target: Target, wants: Callable[[], Sequence[WantedNotice]] = tuple
    ) -> None:
        self.calls: list[Delivery] = []
        self.notifier = Notifier(store, target, wants=wants, send=self._take)
        self.notifier.tick()

    def _take(self, call: Delivery, _seconds: float) -> Delivered:
        self.calls.append(call)
        return Delivered(status=200)

    @property
    def events(self) -> list[str]:
        """Since it was asked last."""
        while self.notifier.tick():
            pass
        found, self.calls[:] = [call.event for call in self.calls], []
        return found


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> MemoryStore:
    return MemoryStore(clock)


def webhook(**given: Any) -> Webhook:
    return Webhook(**{"name": "ops", "url": "http://h/hook"} | given)


def ended(store: MemoryStore, state: ProcessState, error: ErrorInfo = FAILURE, **given: Any) -> Process:
    looked_up = (CleanUpIn(0),) if error is UNKNOWN else ()
    return move(store, claimed(store, **given), state, *looked_up, error=error)


def done(store: MemoryStore, **given: Any) -> Process:
    return ended(store, ProcessState.COMPLETED, **given)


def failed(store: MemoryStore, **given: Any) -> Process:
    return ended(store, ProcessState.FAILED, **given)


def resolve(store: MemoryStore, process: Process, outcome: Outcome) -> None:
    held = claim_one(store, process.id)
    error = ErrorInfo(code="commit", message="no answer", outcome=outcome)
    store.apply(lease_of(held), Change(Met(error), NewEvent(name=RESOLVED, message="looked up")))


def test_a_target_hears_of_ends_and_only_of_what_it_asked_for(store: MemoryStore) -> None:
    told, quiet = Told(store, webhook()), Told(store, webhook(name="quiet", on=["failed"]))
    done(store)
    failed(store)
    ended(store, ProcessState.CANCELLED)
    assert told.events == ["done", "failed"]
    assert quiet.events == ["failed"]
    assert told.events == []


def test_recovered_is_said_only_after_a_failure_of_the_same_work(store: MemoryStore) -> None:
    told = Told(store, webhook(on=["failed", "recovered"]))
    done(store)
    assert told.events == []
    failed(store, partitions=("1",))
    done(store, partitions=("2",))
    done(store, partitions=("1",), destination="lake.ns.other")
    assert told.events == ["failed"]
    done(store, partitions=("1",))
    done(store, partitions=("1",))
    assert told.events == ["recovered"]


def test_a_failure_and_its_end_on_one_page_leave_no_alarm(store: MemoryStore) -> None:
    told = Told(store, webhook(on=["recovered"]))
    failed(store)
    done(store)
    failed(store)
    assert told.events == ["recovered"]
    assert [alarm.state for alarm in store.alarms("notify.ops")] == ["failed"]
    done(store)
    assert told.events == ["recovered"]
    assert store.alarms("notify.ops") == []


def test_tonight_s_backup_ends_the_alarm_of_last_night_s(store: MemoryStore) -> None:
    told = Told(store, webhook())
    failed(store, kind="backup", source="main:db.*", destination="s3://b/monday")
    done(store, kind="backup", source="main:db.*", destination="s3://b/tuesday")
    assert told.events == ["failed", "done", "recovered"]


@pytest.mark.parametrize(
    ("outcome", "said"), [(Outcome.APPLIED, "recovered"), (Outcome.NOT_APPLIED, "failed")]
)
def test_an_unknown_outcome_is_told_and_what_it_turns_out_to_be(
    store: MemoryStore, outcome: Outcome, said: str
) -> None:
    told = Told(store, webhook())
    process = failed(store, error=UNKNOWN)
    assert told.events == ["unknown"]
    resolve(store, process, outcome)
    assert told.events == [said]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"kinds": ["backup"]}, []),
        ({"kinds": ["backup", "export"]}, ["done"]),
        ({"tables": ["db.*"]}, ["done"]),
        ({"tables": ["main:db.events"]}, ["done"]),
        ({"tables": ["lake.ns.*"]}, ["done"]),
        ({"tables": ["db.event"]}, []),
    ],
)
def test_kinds_and_tables_choose(store: MemoryStore, given: dict[str, Any], expected: list[str]) -> None:
    told = Told(store, webhook(**given))
    done(store)
    assert told.events == expected


def test_stuck_is_said_once_by_however_many_notifiers(store: MemoryStore, clock: FakeClock) -> None:
    told = [Told(store, webhook(on=["stuck"])) for _ in range(2)]
    claimed(store)  # an owner that does nothing
    clock.advance(60)
    for one in told:
        assert one.events == []
    clock.advance(59 * 60)
    assert told[0].events == []
    clock.advance(2 * 60)
    said = [one.events for one in told]
    clock.advance(3600)
    said += [one.events for one in (*told, Told(store, webhook(on=["stuck"])))]
    assert [event for events in said for event in events] == ["stuck"]


def test_what_a_person_must_do_is_said_once_by_however_many_notifiers(
    store: MemoryStore, clock: FakeClock
) -> None:
    wants = [_want("first"), _want("other", source="main:logs.lines", kind="backup")]
    told = [Told(store, webhook(on=["wanted"]), lambda: wants) for _ in range(2)]
    ours = Told(store, webhook(name="ours", on=["wanted"], tables=["db.*"]), lambda: wants)
    backups = Told(store, webhook(name="backups", on=["wanted"], kinds=["backup"]), lambda: wants)
    quiet = Told(store, webhook(name="quiet", on=["failed"]), lambda: wants)
    clock.advance(360)
    assert sorted(len(one.events) for one in told) == [0, 2]
    [call] = ours.calls
    assert json.loads(call.body)["wanted"]["code"] == "approval"
    assert [len(one.events) for one in (ours, backups, quiet)] == [1, 1, 0]
    wants.append(_want("first again"))
    assert ours.events == []  # not yet
    clock.advance(360)
    assert (len(ours.events), len(ours.events)) == (1, 0)


def _want(key: str, *, source: str = "main:db.events", kind: str = "release") -> WantedNotice:
    since = datetime(2026, 1, 1, tzinfo=UTC)
    return WantedNotice(
        key=key, kind=kind, code="approval", message="something waits", hint="calve policy approve", source=source,
        since=since,
    )  # fmt: skip


def test_what_nobody_began_is_stuck_since_it_was_submitted(store: MemoryStore, clock: FakeClock) -> None:
    Told(store, webhook(on=["stuck"]))
    store.submit([new()])
    clock.advance(61 * 60)
    late = Told(store, webhook(on=["stuck"]))  # has seen nothing of it before
    while late.notifier.tick():
        pass
    (call,) = late.calls
    assert call.event == "stuck"
    assert "No worker is running" in json.loads(call.body)["message"]


def test_what_moves_and_what_works_is_not_stuck(store: MemoryStore, clock: FakeClock) -> None:
    told = Told(store, webhook(on=["stuck"]))
    process = running(store, tasks=3)
    for number in (1, 2):
        assert told.events == []
        clock.advance(40 * 60)
        process = start_task(store, claim_one(store, process.id), number)
    assert told.events == []


def test_a_message_says_what_happened_and_how_to_look(store: MemoryStore) -> None:
    told = Told(store, webhook())
    process = failed(store, partitions=tuple(str(n) for n in range(100)))
    while told.notifier.tick():
        pass
    (call,) = told.calls
    body = json.loads(call.body)
    assert body["id"] == call.id == f"{store.feed_state().store_id}-3-notify.ops-failed"
    assert body["event"] == "failed"
    assert body["process"]["id"] == process.id
    assert (len(body["process"]["partitions"]), body["process"]["partition_count"]) == (20, 100)
    assert body["error"]["code"] == store.process(process.id).error.code  # type: ignore[union-attr]
    assert "export of main:db.events, 100 partitions, to lake.ns.events failed: " in body["message"]


def test_slack_gets_its_form_and_nobody_is_called_by_a_name(store: MemoryStore) -> None:
    told = Told(store, webhook(form="slack"))
    failed(store, source="main:db.<!channel>&co")
    while told.notifier.tick():
        pass
    text = json.loads(told.calls[0].body)["text"]
    assert "main:db.&lt;!channel&gt;&amp;co" in text
    assert list(json.loads(told.calls[0].body)) == ["text"]


def test_many_are_told_in_one_message(store: MemoryStore) -> None:
    told = Told(store, webhook())
    processes = [failed(store, destination=f"lake.ns.t{n}") for n in range(21)]
    while told.notifier.tick():
        pass
    (digest,) = told.calls
    body = json.loads(digest.body)
    assert (body["event"], body["counts"], body["message"]) == (
        "digest",
        {"failed": 21},
        "21 notices: 21 failed",
    )
    assert [one["process"] for one in body["notices"]] == [process.id for process in processes]
    assert len({one["id"] for one in body["notices"]}) == 21
    assert store.totals().notices_waiting == 0


def test_a_ping_hears_of_a_start_and_of_its_end(store: MemoryStore) -> None:
    told = Told(store, Ping(name="n", start="http://h/start", success="http://h/ok", fail="http://h/fail"))
    done(store)
    failed(store)
    ended(store, ProcessState.CANCELLED)
    assert told.events == ["start", "success", "start", "fail", "start", "fail"]


def test_a_ping_calls_only_the_urls_that_it_has_for_the_work_that_it_is_about(store: MemoryStore) -> None:
    told = Told(store, Ping(name="n", kind="backup", table="db.*", success="http://h/ok"))
    done(store)
    done(store, kind="backup", source="main:other.t", destination="b")
    failed(store, kind="backup", source="main:db.t", destination="b")
    done(store, kind="backup", source="main:db.t", destination="b")
    while told.notifier.tick():
        pass
    assert [(call.method, call.url, call.body) for call in told.calls] == [("GET", "http://h/ok", b"")]


@pytest.mark.parametrize("last", [ProcessState.COMPLETED, ProcessState.FAILED])
def test_a_batch_is_one_start_and_one_end(store: MemoryStore, last: ProcessState) -> None:
    told = Told(store, Ping(name="n", start="http://h/start", success="http://h/ok", fail="http://h/fail"))
    rows = store.submit([new(batch=BatchId("b1")) for _ in range(3)])
    assert told.events == ["start"]
    held = [claim_one(store, row.id) for row in rows[:1]]
    held += [store.process(row.id) for row in rows[1:]]
    ends = [ProcessState.FAILED, ProcessState.COMPLETED, ProcessState.FAILED]
    if last is ProcessState.COMPLETED:
        ends = [ProcessState.COMPLETED] * 3
    said = []
    for process, state in zip(held, ends, strict=True):
        move(store, process, state)
        said += told.events
    assert said == (["success"] if last is ProcessState.COMPLETED else ["fail"])


def test_of_many_pings_that_waited_the_newest_is_sent(store: MemoryStore) -> None:
    told = Told(store, Ping(name="n", success="http://h/ok", fail="http://h/fail"))
    for _ in range(21):
        done(store)
    failed(store)
    assert told.events == ["fail"]
    assert store.totals().notices_waiting == 0


def test_a_new_target_is_not_told_of_the_past(store: MemoryStore) -> None:
    failed(store)
    assert Told(store, webhook()).events == []


def test_every_process_that_ends_writes_one_of_the_events_that_notices_know() -> None:
    clock = FakeClock()
    scene = Scene(store=MemoryStore(clock), clock=clock)
    well = scene.submit(tasks=2)
    bad = scene.submit(tasks=1)
    scene.runner.script[bad, 0] = [ErrorInfo(code="denied", message="wrong credentials")] * 9
    cancelled = scene.submit(tasks=1)
    scene.store.request_cancel(cancelled)
    scene.run(scene.worker())
    for process_id in (well, bad, cancelled):
        assert scene.state(process_id) in PROCESS_TERMINAL
        assert len(END_EVENTS & set(scene.events(process_id))) == 1, scene.events(process_id)


def test_two_notifiers_of_one_target_add_each_notice_once(store: MemoryStore) -> None:
    first, second = Told(store, webhook()), Told(store, webhook())
    for _ in range(5):
        failed(store)
    first.notifier.tick()
    second.notifier.tick()
    ids = [call.id for call in (*first.calls, *second.calls)]
    assert len(ids) == len(set(ids)) == 5


def test_a_digest_of_the_same_notices_has_the_same_id() -> None:
    body = json.dumps({"id": "i", "event": "failed", "at": "", "message": "m", "process": {"id": "p"}})
    notices = [
        Notice(id=str(n), target="notify.ops", name="failed", process_id=new().id, body=body)
        for n in range(30)
    ]
    (first,), (second,) = calls(webhook(), notices), calls(webhook(), notices)
    (other,) = calls(webhook(), notices[1:])
    assert first.id == second.id != other.id


def test_notices_wait_a_day_at_most_and_are_tried_a_few_times_even_then() -> None:
    made = FakeClock().now()

    def spent(attempts: int, age: timedelta) -> bool:
        notice = Notice(
            id="a", target="t", name="failed", process_id=new().id, body="", made_at=made, attempts=attempts
        )
        return _is_spent(notice, made + age)

    assert not spent(MOST_ATTEMPTS - 2, timedelta(0))
    assert spent(MOST_ATTEMPTS - 1, timedelta(0))
    assert not spent(LEAST_ATTEMPTS - 2, MOST_AGE * 3)
    assert spent(LEAST_ATTEMPTS - 1, MOST_AGE)
    assert [backoff(n) for n in (0, 1, 2, 9, 400)] == [10.0, 20.0, 40.0, 1800.0, 1800.0]
