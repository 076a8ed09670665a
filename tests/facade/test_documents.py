"""What pages show: each document from the store alone, in few statements, whatever the size of the store."""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, insert, select, update

from calve.app.calve import Calve
from calve.app.config import load_config
from calve.app.desk import Desk
from calve.app.pages.sheet import BARS, BUCKETS, buckets
from calve.app.pages.sightings import keep
from calve.iceberg.health.findings import Part
from calve.iceberg.health.report import Health
from calve.model.access import Asked, Caller, Halt, Proof, Role
from calve.model.change import Change, CleanUpIn, NewEvent, NewPin, TaskChange
from calve.model.errors import ErrorInfo
from calve.model.process import ProcessId, Worker, WorkerId
from calve.model.seen import Attempt, Ending, Sighting
from calve.model.states import ProcessState, TaskState
from calve.model.tier import Hold
from calve.store import SqlStore
from calve.store.tables import attempts, processes, tasks
from calve.store.tables import workers as worker_rows
from calve.testing.contracts.contract import (
    ANNE,
    REACH,
    UNKNOWN,
    claimed,
    finish_task,
    lease_of,
    move,
    new,
    publishing,
    running,
    start_task,
    submit,
)

VIEWER = Caller(name="viewer", role=Role.VIEWER)
DENIED = ErrorInfo(
    code="access_denied", message="the bucket refused the write", hint="give the key PutObject"
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BIG = "big0000000000"
TASKS = 100_000
ALL_WORK = "processes.finished_at < ? GROUP BY"


def made(folder: Path) -> Calve:
    (folder / "calve.toml").write_text("")
    return Calve(load_config(folder / "calve.toml", environ={}))


@pytest.fixture
def calve(tmp_path: Path) -> Iterator[Calve]:
    with made(tmp_path) as opened:
        yield opened


@pytest.fixture
def store(calve: Calve) -> SqlStore:
    found = calve.registry
    assert isinstance(found, SqlStore)
    return found


def ask(calve: Calve, verb: str, **given: Any) -> Any:
    """As a viewer gets it, and JSON all through."""
    return json.loads(json.dumps(Desk(calve).perform(VIEWER, verb, given)))


def beat(store: SqlStore, worker: WorkerId = ANNE, version: str = "") -> None:
    from calve import __version__

    now = store.now()
    store.heartbeat(
        Worker(
            id=worker, host="h", reach=tuple(sorted(REACH)), slots=4, started_at=now, heartbeat_at=now,
            version=version or __version__,
        )
    )  # fmt: skip


def put_back(store: SqlStore, column: Any, hours: float) -> None:
    """As if it had been so long ago."""
    with store.database.engine.begin() as connection:
        connection.execute(update(column.table).values({column: column - int(hours * 3_600_000_000)}))
    store.ended_work = None  # what happened is not rewritten but here


@contextmanager
def counted(store: SqlStore) -> Iterator[list[str]]:
    said: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement != "BEGIN":
            said.append(statement)

    event.listen(store.database.engine, "before_cursor_execute", note)
    try:
        yield said
    finally:
        event.remove(store.database.engine, "before_cursor_execute", note)


def scans(store: SqlStore, statements: Iterable[str]) -> list[str]:
    """Reads of all rows of a table that grows."""
    newest = re.compile(
        r"FROM processes(\s+WHERE 1 = 1)? ORDER BY processes.seq DESC\s+LIMIT"
    )  # reads no more than it is told
    with store.database.engine.connect() as connection:
        # Their parameters do not matter to the plan: NULL.
        plans = [
            line[-1]
            for text in statements
            if not newest.search(text)
            for line in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", (None,) * text.count("?"))
        ]
    growing = re.compile(r"SCAN (processes|tasks|attempts|events|plans|pins|audit|sightings)\b(?!.* USING )")
    return [line for line in plans if growing.match(line)]


# -- attention ------------------------------------------------------------------------------------------


def test_a_new_store_needs_nothing_and_says_how_to_begin(calve: Calve) -> None:
    found = ask(calve, "attention")
    assert found["sentence"] == "Nothing needs attention, and no worker is running."
    assert found["cards"] == [] and len(found["first_steps"]) == 3
    assert found["now"] and found["cursor"] and found["version"]
    assert len(found["throughput"]["rows"]) == 96 and sum(found["throughput"]["rows"]) == 0


def test_equal_failures_are_one_card_until_they_are_dealt_with(calve: Calve, store: SqlStore) -> None:
    beat(store)
    failed = [
        move(store, running(store, partitions=(name,)), ProcessState.FAILED, error=DENIED)
        for name in ("202401", "202402", "202403")
    ]
    found = ask(calve, "attention")
    (card,) = found["cards"]
    assert (card["kind"], card["count"], card["code"]) == ("failed", 3, "access_denied")
    assert card["title"] == "3 exports of main:db.events failed: access_denied"
    assert card["why"] == "the bucket refused the write (give the key PutObject)"
    assert card["action"] == "retry" and set(card["arguments"]["ids"]) == {one.id for one in failed}
    assert card["command"].startswith("calve retry ")
    assert found["sentence"] == "3 failures wait for a retry, 1 worker is alive."
    submit(store, retry_of=failed[0].id)
    assert ask(calve, "attention")["cards"][0]["count"] == 2
    # Another process published what the second was to publish.
    later = publishing(store, partitions=("202402",))
    move(store, later, ProcessState.COMPLETED)
    assert ask(calve, "attention")["cards"][0]["ids"] == [failed[2].id]
    put_back(store, processes.c.finished_at, hours=15 * 24)
    assert [card for card in ask(calve, "attention")["cards"] if card["kind"] == "failed"] == []


def test_the_worst_comes_first(calve: Calve, store: SqlStore) -> None:
    beat(store)
    lost = move(store, publishing(store), ProcessState.FAILED, CleanUpIn(600), error=UNKNOWN)
    move(store, running(store), ProcessState.FAILED, error=DENIED)
    store.trip("catalog:lake", "refused", 5)
    waits = submit(store)
    asked = Asked(who="alice", verb="halt")
    store.put_halt(Halt(kind="backup", source="", who="alice", reason="migration"), asked)
    found = ask(calve, "attention")
    assert [card["kind"] for card in found["cards"]] == ["unknown", "failed", "down"]
    assert found["cards"][0]["ids"] == [lost.id] and "unknown" in found["cards"][0]["why"]
    assert found["cards"][2]["ids"] == [waits.id]
    assert [card["urgency"] for card in found["cards"]] == sorted(card["urgency"] for card in found["cards"])
    assert found["sentence"] == (
        "1 outcome is unknown, 1 failure waits for a retry, 1 service is down, 1 worker is alive."
    )


def test_workers_that_are_missing_or_silent_are_told(calve: Calve, store: SqlStore) -> None:
    held = claimed(store)
    beat(store)
    put_back(store, worker_rows.c.heartbeat_at, hours=1)
    found = ask(calve, "attention")
    assert [(card["kind"], card["ids"]) for card in found["cards"]] == [
        ("silent", [held.id]),
        ("no_worker", [held.id]),
    ]
    assert found["cards"][1]["title"] == "No worker is running, and 1 process waits"
    beat(store, WorkerId("bert-2"), version="0.0.9")
    assert [card["kind"] for card in ask(calve, "attention")["cards"]] == ["silent", "versions"]


def test_what_does_not_move_a_freeze_and_an_old_halt_are_told(calve: Calve, store: SqlStore) -> None:
    beat(store)
    stuck = running(store)
    assert ask(calve, "attention")["cards"] == []
    put_back(store, processes.c.created_at, hours=2)
    (card,) = ask(calve, "attention")["cards"]
    assert (card["kind"], card["ids"], card["action"]) == ("late", [stuck.id], "cancel")


def test_the_work_of_the_day_is_added_up(calve: Calve, store: SqlStore) -> None:
    row = start_task(store, running(store))
    row = finish_task(store, row, rows=70, bytes=700)
    move(store, move(store, row, ProcessState.PUBLISHING), ProcessState.COMPLETED)
    found = ask(calve, "attention")
    assert found["day"] == {"rows": 70, "bytes": 700, "completed": 1, "failed": 0}
    assert found["throughput"]["rows"][-1] + found["throughput"]["rows"][-2] == 70
    assert found["first_steps"] is None


# -- tables, processes, system, search ------------------------------------------------------------------


def test_pairs_have_what_the_store_and_the_last_look_know(calve: Calve, store: SqlStore) -> None:
    move(store, publishing(store), ProcessState.COMPLETED)
    move(store, running(store, source="main:db.other", destination="lake.ns.other"), ProcessState.FAILED)
    running(store)
    summary = {"counts": {"exported": 3, "changed": 0, "new": 1}, "hot": 5}
    pair = Sighting(subject="main:db.events -> lake.ns.events", what="pair", summary=json.dumps(summary))
    store.put_sighting(pair)
    store.put_sighting(Sighting(subject="lake.ns.events", what="health", summary=json.dumps({"bytes": 7})))
    found = ask(calve, "tables")
    one, other = sorted(found["rows"], key=lambda row: str(row["source"]))
    assert (one["source"], one["destination"], one["live"]) == ("main:db.events", "lake.ns.events", 1)
    assert one["counts"] == {"exported": 3, "changed": 0, "new": 1} and (one["hot"], one["cold"]) == (5, 7)
    assert one["last"]["state"] == "COMPLETED" and one["seen_at"] and len(one["days"]) == 30
    assert other["last"]["state"] == "FAILED" and other["counts"] is None and other["seen_at"] is None
    assert [row["source"] for row in ask(calve, "tables", q="OTHER")["rows"]] == ["main:db.other"]
    up = [row["source"] for row in ask(calve, "tables", sort="source")["rows"]]
    assert up == sorted(up)
    assert up == [
        row["source"] for row in reversed(ask(calve, "tables", sort="source", order="down")["rows"])
    ]
    assert found["total"] == 2 and found["pages"] == 1


def test_a_page_of_processes_says_why_each_stands_where_it_stands(calve: Calve, store: SqlStore) -> None:
    running(store)
    submit(store)
    found = ask(calve, "page", why=True, limit=1)
    (one,) = found["processes"]
    assert one["why"] == "No worker is running: start one with `calve worker`."
    assert found["next"] == one["id"] and found["counts_by_state"] == {"PENDING": 1, "RUNNING": 1}
    (rest,) = ask(calve, "page", why=True, after=one["id"])["processes"]
    assert rest["state"] == "RUNNING"
    assert "why" not in ask(calve, "page")["processes"][0]


def test_the_system_shows_who_works_what_is_down_and_which_errors_come(calve: Calve, store: SqlStore) -> None:
    beat(store)
    row = start_task(store, running(store))
    again = TaskChange(
        number=1, before=TaskState.RUNNING, after=TaskState.PENDING, attempt=1,
        error=ErrorInfo(code="s3_slow_down", message="slow", retryable=True),
    )  # fmt: skip
    row = store.apply(lease_of(row), Change(again))
    start_task(store, row, attempt=2)
    move(store, running(store), ProcessState.FAILED, error=DENIED)
    store.trip("catalog:lake", "refused", 5)
    findings = json.dumps([{"level": "ok", "message": "all is well"}])
    store.put_sighting(Sighting(subject="installation", what="doctor"), [findings])
    found = ask(calve, "system")
    (worker,) = found["workers"]
    assert (worker["id"], worker["state"], worker["used"]) == (ANNE, "working", 1)
    assert [lease["id"] for lease in worker["leases"]] == [row.id]
    assert {(one["code"], one["count"]) for one in found["errors"]} == {
        ("s3_slow_down", 1),
        ("access_denied", 1),
    }
    assert found["breakers"][0]["service"] == found["outages"][0]["service"] == "catalog:lake"
    store.claim_look("main:db.t -> lake.ns.t", "pair", again_seconds=0, lease_seconds=5)
    store.fail_look("main:db.t -> lake.ns.t", "pair", "main does not answer")
    (failing,) = ask(calve, "system")["lookout"]["failing"]
    assert (failing["subject"], failing["error"]) == ("main:db.t -> lake.ns.t", "main does not answer")
    assert found["errors_complete"] and found["doctor"]["findings"][0]["message"] == "all is well"


@pytest.mark.parametrize(
    ("text", "kind", "page"),
    [
        ("202401", "partition", "sheet"),
        ("db.ev", "table", "table"),
        ("access_d", "error", "sheet"),
        ("batch-abc", "batch", "page"),
    ],
)
def test_search_finds(calve: Calve, store: SqlStore, text: str, kind: str, page: str) -> None:
    row = running(store, partitions=("202401",), batch="batch-abc")
    move(store, row, ProcessState.FAILED, error=DENIED)
    hits = ask(calve, "search", q=text)["hits"]
    assert [(hit["kind"], hit["href"][0]) for hit in hits] == [(kind, page)]
    assert ask(calve, "search", q=row.id[:5])["hits"][0]["href"] == ["sheet", {"id": row.id}]


def test_search_finds_backups_by_any_part_of_their_name(calve: Calve) -> None:
    backups_seen(calve, backup_row("nightly-1116", EPOCH), backup_row("weekly", EPOCH))
    hits = ask(calve, "search", q="LY-11")["hits"]
    assert [(hit["kind"], hit["href"]) for hit in hits] == [("backup", ["backup", {"name": "nightly-1116"}])]


def test_search_says_where_it_looked_and_what_it_needs(calve: Calve) -> None:
    assert "beginning" in ask(calve, "search", q="100%_'")["note"]
    for text in ("x", "y" * 201):
        with pytest.raises(Exception, match="characters"):
            ask(calve, "search", q=text)


# -- one process ----------------------------------------------------------------------------------------


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


# -- however much there is ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calve]:
    """1,000 processes, and one with 100,000 tasks and 120,000 attempts."""
    with made(tmp_path_factory.mktemp("full")) as calve:
        store = calve.registry
        assert isinstance(store, SqlStore)
        row = running(store, tasks=1, id=ProcessId(BIG))
        move(store, row, ProcessState.FAILED, error=DENIED)
        for start in range(0, 1000, 250):
            numbers = range(start, start + 250)
            store.submit([new(source=f"main:db.t{n % 50}", partitions=(f"{n}",)) for n in numbers])
        with store.database.engine.begin() as connection:
            fill(connection, row.id)
        yield calve


def fill(connection: Any, process_id: ProcessId) -> None:
    task = dict(connection.execute(select(tasks).where(tasks.c.process_id == process_id)).mappings().one())
    task |= {"state": "DONE", "receipt": json.dumps({"files": "x" * 500}), "finished_at": 1, "attempt": 1}
    connection.execute(insert(tasks), [task | {"number": n} for n in range(2, TASKS + 1)])
    connection.execute(
        update(processes).where(processes.c.id == process_id).values(tasks_total=TASKS, tasks_done=TASKS - 1)
    )
    row = {
        "process_id": process_id, "ending": "done", "code": "", "worker": "w", "rows": 10, "bytes": 100,
        "read_ms": 200, "write_ms": 300, "upload_ms": 100,
    }  # fmt: skip
    found = []
    for n in range(1, TASKS + 1):
        start = n * 10_000
        if n % 5 == 0:
            failed = {"started_at": start, "ended_at": start + 500_000, "ending": "again", "code": "slow"}
            found.append(row | {"number": n, "attempt": 1} | failed)
        done = {"started_at": start + 600_000, "ended_at": start + 1_600_000 + (n == 777) * 9_000_000}
        found.append(row | {"number": n, "attempt": 2} | done)
    connection.execute(insert(attempts), found)


@pytest.mark.parametrize(
    ("verb", "given", "statements", "kilobytes"),
    [
        ("sheet", {"id": BIG}, 25, 150),
        ("page", {"why": True, "limit": 50}, 16, 150),
        ("attention", {}, 16, 100),
        ("tables", {}, 8, 100),
        ("table", {"source": "main:db.t1", "to": "lake.ns.t1"}, 20, 100),
        ("vault", {}, 16, 100),
        ("tiering", {}, 12, 100),
        ("system", {}, 16, 100),
        ("search", {"q": "db.t1"}, 10, 50),
    ],
)
def test_a_document_is_small_and_made_of_few_statements(
    full: Calve, verb: str, given: dict[str, Any], statements: int, kilobytes: int
) -> None:
    full.overview.counts()  # made beside requests
    store = full.registry
    assert isinstance(store, SqlStore)
    with counted(store) as said:
        document = ask(full, verb, **given)
    assert len(said) <= statements, "\n".join(said)
    assert not [text for text in said if not text.lstrip().startswith("SELECT")], "a document changes nothing"
    assert not scans(store, said)
    assert len(json.dumps(document)) < kilobytes * 1000


def test_all_work_is_read_once_and_then_what_is_new(calve: Calve, store: SqlStore) -> None:
    move(store, publishing(store, source="main:db.t1", destination="lake.ns.t1"), ProcessState.COMPLETED)
    overview = calve.overview
    with counted(store) as said:
        first = overview.renewed()
    assert len([text for text in said if ALL_WORK in text]) == 1
    with counted(store) as said:
        again = overview.renewed()
    assert not [text for text in said if ALL_WORK in text] and not scans(store, said)
    assert again.rows == first.rows and again.totals.tallies == first.totals.tallies
    before = {row["source"]: row for row in again.rows}["main:db.t1"]
    row = start_task(store, running(store, source="main:db.t1", destination="lake.ns.t1"))
    row = move(store, finish_task(store, row, bytes=77), ProcessState.PUBLISHING)
    done = move(store, row, ProcessState.COMPLETED)
    store.put_sighting(Sighting(subject="lake.ns.t1", what="health", summary='{"score": 7}'))
    after = {row["source"]: row for row in overview.renewed().rows}["main:db.t1"]
    assert after["last"]["id"] == done.id != before["last"]["id"] and after["score"] == 7
    assert (sum(before["days"]), sum(after["days"])) == (0, 77)


def test_of_very_many_attempts_a_sample_is_drawn_and_the_slowest_are_exact(full: Calve) -> None:
    found = ask(full, "sheet", id=BIG)["attempts"]
    assert (found["count"], found["failed"]) == (120_000, 20_000)
    assert found["bars"] is None and found["count"] > BARS
    drawn = found["buckets"]
    assert drawn["every"] == 101 and 1000 < drawn["sampled"] < 1500
    assert sum(drawn["rows"]) == pytest.approx(10 * 120_000, rel=0.1)
    assert found["slowest"][0]["number"] == 777


# -- what was seen outside ------------------------------------------------------------------------------


def listed(count: int, **states: int) -> list[dict[str, Any]]:
    """Partitions as the verb answers with them; the first ones stand as `states` says."""
    stands = [name for name, times in states.items() for _ in range(times)]
    return [
        {
            "id": f"2024{n:05}", "value": f"2024-{n:05}", "rows": 10, "bytes": 100, "parts": 1, "modified_at": None,
            "exported": stands[n] if n < len(stands) else "no", "process": None, "snapshot_id": None,
        }
        for n in range(count)
    ]  # fmt: skip


def looked(store: SqlStore, found: list[dict[str, Any]], table: str = "db.events") -> None:
    keep(
        store, "partitions", {"table": table, "to": "lake.ns.events"}, found,
        source=lambda text: f"main:{text}", destination=lambda text: text,
    )  # fmt: skip


def test_a_look_at_a_pair_is_kept_and_shown_with_its_age(calve: Calve, store: SqlStore) -> None:
    submit(store)
    before = ask(calve, "table", source="main:db.events", to="lake.ns.events")
    assert before["sentence"] == "Nobody has looked at this table yet."
    assert before["partitions"] == [] and before["counts"] is None and before["seen"]["at"] is None
    found = listed(450, unchanged=3, changed=2, missing=1)
    found[0]["process"] = move(store, publishing(store), ProcessState.COMPLETED).id
    store.record_proof(Proof(process_id=found[0]["process"], ok=True, depth="source"))
    looked(store, found)
    shown = ask(calve, "table", source="main:db.events", to="lake.ns.events")
    assert shown["sentence"] == (
        "5 of 450 partitions are exported, 2 of them changed since, 1 exported and gone from the destination."
    )
    assert shown["counts"] == {"exported": 3, "changed": 2, "new": 444, "missing": 1, "gone": 0}
    assert (len(shown["partitions"]), shown["pages"], shown["total"]) == (200, 3, 450)
    assert shown["partitions"][0]["value"] == "2024-00449" and shown["seen"]["at"]
    last = ask(calve, "table", source="main:db.events", to="lake.ns.events", page=3)["partitions"]
    assert [row["value"] for row in last][-1] == "2024-00000" and len(last) == 50
    assert last[-1]["verified"]["ok"] and last[-2]["verified"] is None
    changed = ask(calve, "table", source="main:db.events", to="lake.ns.events", exported="changed")
    assert [row["exported"] for row in changed["partitions"]] == ["changed", "changed"] and changed[
        "complete"
    ]
    (row,) = ask(calve, "tables")["rows"]
    assert (row["counts"]["changed"], row["hot"]) == (2, 45_000)


def test_what_happened_since_the_look_lies_over_it(calve: Calve, store: SqlStore) -> None:
    submit(store)
    looked(store, listed(3))
    done = move(store, publishing(store, partitions=("202400001",)), ProcessState.COMPLETED)
    live = start_task(store, running(store, tasks=2, partitions=("202400002",)))
    finish_task(store, live)
    rows = {
        row["id"]: row
        for row in ask(calve, "table", source="main:db.events", to="lake.ns.events")["partitions"]
    }
    assert rows["202400000"]["since_seen"] is None and rows["202400000"]["live"] is None
    assert rows["202400001"]["since_seen"] == done.id
    assert rows["202400002"]["live"] == {"id": live.id, "state": "RUNNING", "share": 0.5}


def test_a_page_of_a_table_with_very_many_partitions_reads_one_piece(calve: Calve, store: SqlStore) -> None:
    submit(store)
    looked(store, listed(30_000))
    with counted(store) as said:
        found = ask(calve, "table", source="main:db.events", to="lake.ns.events", page=100)
    assert len(said) <= 16 and len(found["partitions"]) == 200
    some = ask(calve, "table", source="main:db.events", to="lake.ns.events", exported="no")
    assert not some["complete"] and some["total"] == 20_000
    looked(store, listed(60_000))
    summary = ask(calve, "table", source="main:db.events", to="lake.ns.events")
    assert (summary["total"], summary["partitions"], summary["complete"]) == (60_000, [], False)


def test_the_health_of_a_destination_is_kept(calve: Calve, store: SqlStore) -> None:
    submit(store)
    values: dict[str, Any] = {item.name: 0 for item in fields(Health)}
    values |= {"score": 71, "parts": (Part(name="small files", weight=3, good=0.5),), "sizes": ()}
    found = Health(**values).to_json()
    named = {"source": lambda text: text, "destination": lambda text: text}
    keep(store, "health", {"table": "lake.ns.events"}, found, **named)
    keep(store, "health", {"table": "lake.ns.unknown"}, found, **named)
    shown = ask(calve, "table", source="main:db.events", to="lake.ns.events")["health"]
    assert shown["score"] == 71 and shown["parts"][0] == {"name": "small files", "weight": 3, "good": 0.5}
    assert ask(calve, "tables")["rows"][0]["score"] == 71
    assert [one.subject for one in store.sightings("health")] == ["lake.ns.events"]


def test_whoever_reads_cannot_fill_the_store_with_sightings(calve: Calve, store: SqlStore) -> None:
    looked(store, listed(3), table="db.unknown")
    assert store.sightings("") == []


def test_an_answer_that_cannot_be_kept_is_answered_all_the_same(
    calve: Calve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(calve, "doctor", lambda **_: [{"unlike": "a finding"}])
    operator = Caller(name="a", role=Role.OPERATOR)
    assert Desk(calve).perform(operator, "doctor", {}) == [{"unlike": "a finding"}]
    assert "is not kept for pages" in caplog.text
    assert ask(calve, "system")["doctor"] is None


def test_what_doctor_finds_through_a_server_is_kept(calve: Calve, store: SqlStore) -> None:
    found = Desk(calve).perform(Caller(name="a", role=Role.OPERATOR), "doctor", {"spark": False})
    assert ask(calve, "system")["doctor"]["findings"] == json.loads(json.dumps(found))


# -- what looks found, backups, expectations ------------------------------------------------------------


def backup_row(name: str, at: datetime, **given: Any) -> dict[str, Any]:
    return {
        "name": name, "created_at": at.isoformat(), "source": "main", "process": "47mrp8hi9gdvf", "tables": 1,
        "parts": 2, "rows": 10, "bytes": 100, "own_bytes": 30, "moved_bytes": 100, "skipped": [], "error": None,
        "rbac": False, "left_out": [], "contents": {"db.events": ["202401", "202402"]},
    } | given  # fmt: skip


def kept(calve: Calve, verb: str, given: dict[str, Any], answer: Any) -> None:
    keep(calve.registry, verb, given, answer, source=lambda text: text, destination=lambda text: text)


def backups_seen(calve: Calve, *rows: dict[str, Any]) -> None:
    answer = {"location": calve.config.backup_url, "backups": list(rows), "stored_bytes": 170}
    kept(calve, "backup_list", {"contents": True}, answer)


def partition(id: str, exported: str, process: str | None = None) -> dict[str, Any]:
    return {
        "id": id, "value": id, "rows": 5, "bytes": 50, "parts": 1, "modified_at": None,
        "exported": exported, "process": process, "snapshot_id": None,
    }  # fmt: skip


def test_a_table_has_its_backups_its_snapshots_and_what_is_gone(calve: Calve, store: SqlStore) -> None:
    row = move(store, publishing(store, partitions=("202401",)), ProcessState.COMPLETED)
    now = store.now()
    backups_seen(
        calve,
        backup_row("older", now - timedelta(days=2)),
        backup_row("newest", now - timedelta(days=1), contents={"db.events": ["202402"]}),
        backup_row("foreign", now, source="other"),
        {"name": "damaged", "error": "unreadable", "hint": "look"},
    )
    found = [
        partition("202401", "unchanged", row.id),
        partition("202402", "no"),
        partition("202312", "gone", row.id),
    ]
    kept(calve, "partitions", {"table": "main:db.events", "to": "lake.ns.events"}, found)
    line = {
        "id": "7",
        "at": "2026-01-01T00:00:00+00:00",
        "operation": "append",
        "rows": 5,
        "files": 1,
        "process": row.id,
    }
    health = {
        "score": 90, "files": 1, "rows": 5, "bytes": 50, "sizes": [], "snapshots": 1, "partitions_due": 0, "parts": [],
        "location": "s3://bucket/ns/it's", "latest_snapshots": [line],
    }  # fmt: skip
    kept(calve, "health", {"table": "lake.ns.events"}, health)
    page = ask(calve, "table", source="main:db.events", to="lake.ns.events")
    rows = {one["id"]: one for one in page["partitions"]}
    assert rows["202401"]["backup"]["name"] == "older" and rows["202402"]["backup"]["name"] == "newest"
    assert rows["202312"]["dropped"] and not rows["202401"]["dropped"] and rows["202312"]["backup"] is None
    assert page["sentence"] == "1 of 2 partitions is exported, 1 exported and gone from the source."
    assert page["snapshots"] == [line] and page["counts"]["gone"] == 1
    said = {one["engine"]: one["text"] for one in page["read"]}
    assert said["ClickHouse"] == "SELECT * FROM icebergS3('https://bucket.s3.amazonaws.com/ns/it\\'s')"
    assert said["Spark"] == "SELECT * FROM lake.ns.events"
    assert [
        one["id"]
        for one in ask(calve, "table", source="main:db.events", to="lake.ns.events", exported="gone")[
            "partitions"
        ]
    ] == ["202312"]
    (pair,) = ask(calve, "tables")["rows"]
    assert (pair["last"]["id"], pair["cold"], pair["hot"]) == (row.id, 50, 150)
    assert pair["backup"]["name"] == "newest" and pair["backup"]["proven_at"] is None


def test_a_list_of_backups_without_their_tables_does_not_hide_what_a_look_has_seen(
    calve: Calve, store: SqlStore
) -> None:
    """`calve --server … backup list` asks for names and sizes only."""
    seen = backup_row("nightly", store.now())
    backups_seen(calve, seen)
    thin = {name: value for name, value in seen.items() if name != "contents"}
    backups_seen(calve, {**thin, "own_bytes": 7})
    [row] = ask(calve, "vault", name="nightly")["backups"]
    assert (row["contents"], row["frees"]) == (seen["contents"], 7), "what is new in it is kept"
    looked_at = store.sightings("backups")[0].tried_at
    backups_seen(calve, thin, {**thin, "name": "since", "process": "p2"})
    assert store.sightings("backups")[0].tried_at == looked_at, "the next look is not put off"


def test_what_holds_a_partition_is_said(calve: Calve, store: SqlStore) -> None:
    row = claimed(store, partitions=("202401",))
    pin = NewPin(name="calve-1", source="main", detail="")
    row = store.apply(lease_of(row), Change(pin, expect_version=row.version))
    kept(
        calve, "partitions", {"table": "main:db.events", "to": "lake.ns.events"}, [partition("202401", "no")]
    )
    (one,) = ask(calve, "table", source="main:db.events", to="lake.ns.events")["partitions"]
    assert one["held"] == [f"frozen by {row.id}"] and one["live"]["id"] == row.id
    asked = Asked(who="anne", verb="hold_add")
    for number, partition_id in enumerate(("202401", "202402", "")):
        held = Hold(
            id=f"hold-{number}", name="main:db.events", partition=partition_id, who="anne", reason="x"
        )
        store.add_hold(held, asked)
    (one,) = ask(calve, "table", source="main:db.events", to="lake.ns.events")["partitions"]
    assert one["held"] == ["held by anne: x", "held by anne: x", f"frozen by {row.id}"]


def test_backups_say_what_they_share_and_what_proved_them(calve: Calve, store: SqlStore) -> None:
    now, location = store.now(), calve.config.backup_url
    done = move(
        store,
        publishing(store, kind="backup", source="main:db.*", destination=f"{location}/nightly"),
        ProcessState.COMPLETED,
    )
    backups_seen(
        calve,
        backup_row("nightly", now - timedelta(days=1), process=done.id),
        backup_row("restored", now - timedelta(days=1)),
        backup_row("verified", now - timedelta(days=1)),
        backup_row("made-anew", now + timedelta(days=1)),
        {"name": "damaged", "error": "unreadable", "hint": "look"},
    )
    store.record_proof(Proof(process_id=done.id, ok=False, depth="5% of the data"))
    move(
        store,
        publishing(store, kind="restore", source=f"{location}/restored", destination="main:db2.events"),
        ProcessState.COMPLETED,
    )
    for name in ("verified", "made-anew"):
        kept(
            calve,
            "backup_verify",
            {"name": name},
            {"name": name, "whole": True, "bytes": 100, "read_bytes": 5, "flaws": []},
        )
    found = ask(calve, "vault")
    proven = {
        one["name"]: one["proven"] and (one["proven"]["how"], one["proven"]["ok"]) for one in found["backups"]
    }
    assert proven == {
        "nightly": ("5% of the data", False), "restored": ("restored", True), "verified": ("5% of the data", True),
        "made-anew": None, "damaged": None,
    }  # fmt: skip
    nightly = next(one for one in found["backups"] if one["name"] == "nightly")
    assert (nightly["shares"], nightly["frees"], nightly["not_seen"]) == (70, 30, False)
    assert "contents" not in nightly and found["stored_bytes"] == 170
    assert len(found["calendar"]) == 91 and found["calendar"][-1]["proven"] == 2
    assert found["calendar"][-2]["made"] == 3 and len(found["restores"]) == 1
    (one,) = ask(calve, "vault", name="verified")["backups"]
    assert one["contents"] == {"db.events": ["202401", "202402"]}
    assert ask(calve, "vault", name="verified")["restores"] == []
    with pytest.raises(Exception, match="no backup missing was seen"):
        ask(calve, "vault", name="missing")


def test_a_backup_that_was_made_since_the_last_look_is_there(calve: Calve, store: SqlStore) -> None:
    backups_seen(calve)
    location = calve.config.backup_url
    done = move(
        store,
        publishing(store, kind="backup", source="main:db.*", destination=f"{location}/tonight"),
        ProcessState.COMPLETED,
    )
    running(store, kind="restore", source=f"{location}/tonight", destination="main:db.*")
    found = ask(calve, "vault")
    (one,) = found["backups"]
    assert (one["name"], one["process"], one["not_seen"], one["frees"]) == ("tonight", done.id, True, None)
    assert [live["kind"] for live in found["live"]] == ["restore"]


EXPECTED = """
[expect.events]
table = "main:db.e*"
within = "26h"
proven_within = "7d"
[expect.nightly]
kind = "backup"
table = "main:db.*"
"""


def test_what_is_expected_and_did_not_happen_is_told(tmp_path: Path) -> None:
    (tmp_path / "calve.toml").write_text(EXPECTED)
    with Calve(load_config(tmp_path / "calve.toml", environ={})) as calve:
        store = calve.registry
        assert isinstance(store, SqlStore)
        beat(store)
        kinds = [(card["kind"], card["title"]) for card in ask(calve, "attention")["cards"]]
        assert kinds == [
            ("overdue", "main:db.e* was never exported"),
            ("overdue", "main:db.* was never backed up"),
        ]
        move(store, publishing(store), ProcessState.COMPLETED)
        move(
            store,
            publishing(store, kind="backup", source="main:db.*", destination="/b/nightly"),
            ProcessState.COMPLETED,
        )
        calve.overview.renewed()
        found = ask(calve, "attention")
        (card,) = found["cards"]
        assert (card["kind"], card["title"]) == ("unproven", "No export of main:db.events was proven lately")
        assert card["command"].startswith("calve verify ") and found["expectations"] == 2
        assert found["sentence"] == "1 table is unproven, 1 worker is alive."
        put_back(store, processes.c.finished_at, hours=27)
        calve.overview.renewed()
        cards = ask(calve, "attention")["cards"]
        assert [card["title"] for card in cards] == [
            "main:db.events was not exported for more than 26 hours",
            "main:db.* was not backed up for more than 26 hours",
        ]
        assert cards[0]["why"] == "nothing is queued" and cards[0]["href"][0] == "table"
        assert cards[1]["command"] == "calve backup create --tables 'db.*' NAME"


def test_an_expectation_that_just_came_true_is_not_told(tmp_path: Path) -> None:
    (tmp_path / "calve.toml").write_text('[expect.events]\ntable = "main:db.events"\n')
    with Calve(load_config(tmp_path / "calve.toml", environ={})) as calve:
        store = calve.registry
        assert isinstance(store, SqlStore)
        beat(store)
        assert len(ask(calve, "attention")["cards"]) == 1
        move(store, publishing(store), ProcessState.COMPLETED)
        # The counts in memory do not have it yet.
        assert ask(calve, "attention")["cards"] == []
