"""The page of one process."""

import json
from datetime import timedelta
from typing import Any

import pytest
from page_scene import (
    EPOCH,
    ask,
    beat,
)

from calve.app.calve import Calve
from calve.app.desk import Desk
from calve.app.pages.sheet import BUCKETS, buckets
from calve.model.access import Asked, Caller, Role
from calve.model.change import Change, NewEvent
from calve.model.process import ProcessId
from calve.model.seen import Attempt, Ending
from calve.model.states import ProcessState
from calve.store import SqlStore
from calve.testing.contracts.contract import (
    finish_task,
    lease_of,
    move,
    new,
    running,
    start_task,
    submit,
)


def test_a_sheet_has_a_process_with_all_that_belongs_to_it(calve: Calve, store: SqlStore) -> None:
    beat(store)
    row = start_task(store, running(store, tasks=3, batch="batch-x1"))
    row = finish_task(store, row, rows=5, spent={"read": 0.25, "write": 0.5})
    store.apply(lease_of(row), Change(NewEvent(name="said", message="<b>hello</b>")))
    start_task(store, row, number=2)
    found = ask(calve, "sheet", id=row.id[:6])
    assert found["process"]["id"] == row.id and found["process"]["state"] == "RUNNING"
    assert found["why"] == "1 of its 3 tasks are running, 1 are done."
    (bar,) = found["attempts"]["bars"]
    assert (bar["number"], bar["ending"], bar["spent"]) == (1, "done", {"read": 0.25, "write": 0.5})
    assert found["attempts"]["buckets"] is None and found["attempts"]["count"] == 1
    assert [task["number"] for task in found["running"]] == [2]
    assert [task["state"] for task in found["tasks"]] == ["DONE", "RUNNING", "PENDING"]
    assert "receipt" not in found["tasks"][0]
    assert found["events"][0]["message"] == "<b>hello</b>"
    assert [one["name"] for one in found["milestones"]] == ["submitted", "leased", "running"]
    assert found["batch"] == {"id": "batch-x1", "counts": {"RUNNING": 1}, "more": False}
    assert (found["plan"]["bytes"], found["plan"]["document"]) == (11, {"plan": 1})
    assert found["commands"]["cancel"] == f"calve cancel {row.id}"
    assert not found["forgotten"] and found["transitions"]["RUNNING"]
    assert [task["number"] for task in ask(calve, "sheet", id=row.id, states=["pending"])["tasks"]] == [3]
    assert [task["number"] for task in ask(calve, "sheet", id=row.id, after=1)["tasks"]] == [2, 3]


def test_a_sheet_shows_what_came_before_and_after_and_what_was_down(calve: Calve, store: SqlStore) -> None:
    old = running(store)
    store.trip("catalog:lake", "refused", 5)
    store.close_breaker("catalog:lake")
    store.trip("source:elsewhere", "refused", 5)
    old = move(store, old, ProcessState.FAILED)
    retry = submit(store, retry_of=old.id)
    found = ask(calve, "sheet", id=old.id)
    assert (found["successor"], found["predecessor"]) == (retry.id, None)
    assert ask(calve, "sheet", id=retry.id)["predecessor"] == old.id
    assert [one["service"] for one in found["outages"]] == ["catalog:lake"]
    assert ask(calve, "sheet", id=retry.id)["waits"][0]["for"] == "a worker"


def test_a_sheet_says_which_tasks_wait_and_what_for(calve: Calve, store: SqlStore) -> None:
    beat(store)
    row = start_task(store, running(store, tasks=12))
    found = ask(calve, "sheet", id=row.id)["waiting"]
    assert (found["count"], found["for"]) == (11, "a free slot")
    assert [one["number"] for one in found["tasks"]] == list(range(2, 10)), "the first of them"
    (service, *_) = row.needs
    store.trip(service, "no answer", 60)
    assert ask(calve, "sheet", id=row.id)["waiting"]["for"] == f"{service}, which is down"
    move(store, row, ProcessState.FAILED)
    assert ask(calve, "sheet", id=row.id)["waiting"]["count"] == 0


def test_a_sheet_has_the_hash_of_the_plan_and_of_what_was_agreed_to(calve: Calve, store: SqlStore) -> None:
    plan = ask(calve, "sheet", id=running(store, request=json.dumps({"plan_hash": "p1-abc"})).id)["plan"]
    assert (plan["agreed"], len(plan["sha256"])) == ("p1-abc", 64)
    assert ask(calve, "sheet", id=running(store).id)["plan"]["agreed"] == ""
    assert ask(calve, "sheet", id=submit(store).id)["plan"]["sha256"] is None, "it has no plan yet"


def test_the_audit_of_a_process_says_who_asked_for_it_and_who_cancelled_it(
    calve: Calve, store: SqlStore
) -> None:
    asked = Asked(who="anne", verb="export", subject="main:db.events")
    row, _ = (store.submit([new()], asked=asked)[0] for _ in range(2))
    store.request_cancel(row.id, asked=Asked(who="bert", verb="cancel"))
    found = Desk(calve).perform(Caller(name="o", role=Role.OPERATOR), "audit", {"process": row.id})
    assert [(one["who"], one["verb"]) for one in found["entries"]] == [("anne", "export"), ("bert", "cancel")]


def attempt(number: int, start: float, end: float, **given: Any) -> Attempt:
    defaults: dict[str, Any] = {"ending": Ending.DONE, "attempt": 1, "process_id": ProcessId("p")}
    at = {"started_at": EPOCH + timedelta(seconds=start), "ended_at": EPOCH + timedelta(seconds=end)}
    return Attempt(number=number, **defaults | at | given)


def test_phases_add_up_over_time_to_what_was_spent() -> None:
    sample = [
        attempt(0, 0, 10, read_ms=2000, write_ms=3000, upload_ms=1000, rows=100),
        attempt(7, 5, 240, read_ms=100_000, write_ms=None, upload_ms=50_000, rows=50, bytes=8),
        attempt(14, 20, 30, code="slow", ending=Ending.AGAIN),
        attempt(21, 240, 240, read_ms=0),
    ]
    found = buckets(sample, EPOCH, 240.0, every=7)
    step = found["step_seconds"]
    total = {name: sum(found[name]) * step / 7 for name in ("waiting", "read", "write", "upload", "worked")}
    assert total == pytest.approx(
        {"waiting": 4 + 85, "read": 102, "write": 3, "upload": 51, "worked": 10}, abs=0.5
    )
    assert sum(found["rows"]) == pytest.approx(7 * 150, rel=0.01)
    assert sum(found["failed"]) == 7 and len(found["read"]) == BUCKETS
    assert (
        found["waiting"][0] == 7 and found["read"][5] == 7
    )  # the first: four seconds of waiting, then reading
