"""Each document is made of few statements, whatever the size of the store."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from page_scene import (
    ALL_WORK,
    BIG,
    DENIED,
    TASKS,
    ask,
    counted,
    made,
    scans,
)
from sqlalchemy import insert, select, update

from calve.app.calve import Calve
from calve.app.pages.sheet import BARS
from calve.model.process import ProcessId
from calve.model.seen import Sighting
from calve.model.states import ProcessState
from calve.store import SqlStore
from calve.store.tables import attempts, processes, tasks
from calve.testing.contracts.contract import (
    finish_task,
    move,
    new,
    publishing,
    running,
    start_task,
)


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
