"""The questions of every tick and of `calve ps` are answered by an index, never by a scan of tasks."""

import itertools
from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from calve.model.process import BatchId, ProcessId, ProcessQuery, WorkerId
from calve.model.states import PROCESS_LIVE, PROCESS_TERMINAL, ProcessState, TaskState
from calve.store import SqlStore, open_store
from calve.store.attempts import (
    attempts_statement,
    ended_statement,
    ends_statement,
    failed_attempts_statement,
    needed_statement,
    newest_events_statement,
    sample_statement,
    slowest_statement,
    task_page_statement,
    work_done_statement,
)
from calve.store.feed import feed_statement, unnumbered_statement
from calve.store.reader import live_statement, processes_statement
from calve.store.registry import audited_about_statement
from calve.store.sightings import sightings_of_statement, sightings_statement
from calve.store.totals import (
    held_pins_statement,
    live_tasks_statement,
    unknown_statement,
    waiting_notices_statement,
)
from calve.testing.contracts.contract import REACH, claimed, move, new, running

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    with open_store(f"sqlite:///{tmp_path / 'calve.db'}") as store:
        store.submit([new() for _ in range(20)])
        move(store, running(store, tasks=50), ProcessState.CANCELLED)
        claimed(store)
        yield store


def plan_of(store: SqlStore, statement: Any) -> list[str]:
    """Each line of SQLite's own plan."""

    def explain(connection: Any) -> list[str]:
        text = statement.compile(connection, compile_kwargs={"literal_binds": True})
        return [row.detail for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}")]

    return store.database.read(explain)


def scans(plan: list[str]) -> list[str]:
    """Whole tables that are read from end to end; derived tables of few rows do not count."""
    return [
        line
        for line in plan
        if line.startswith("SCAN") and any(table in line for table in ("tasks", "processes", "pins", "locks"))
    ]


def test_ready_tasks_come_from_the_index_by_state(store: SqlStore) -> None:
    plan = plan_of(store, store.ready_tasks_statement(ProcessId("x"), 10))
    assert plan == ["SEARCH tasks USING INDEX ix_tasks_state (process_id=? AND state=?)"]


def test_who_asked_for_a_process_is_looked_for_in_its_own_time_only(store: SqlStore) -> None:
    plan = plan_of(store, audited_about_statement(ProcessId("x"), LONG_AGO, LONG_AGO, 10))
    assert plan[0] == "SEARCH audit USING INDEX ix_audit_at (at>? AND at<?)"


def test_the_living_come_from_their_partial_index_in_order(store: SqlStore) -> None:
    assert plan_of(store, live_statement(10)) == ["SCAN processes USING INDEX ix_processes_live"]
    assert plan_of(store, needed_statement())[0] == "SCAN processes USING INDEX ix_processes_live"


def test_choosing_what_to_claim_reads_only_the_living_and_what_is_due(store: SqlStore) -> None:
    needs = store.needs_statement()
    chosen = store.choose_statement(WorkerId("w"), sorted(REACH), frozenset({"lane"}), 10)
    for statement in (needs, chosen):
        lines = [line for line in plan_of(store, statement) if "processes" in line]
        assert lines
        for line in lines:
            assert any(f"ix_processes_{index}" in line for index in ("live", "cleanup"))
        assert not any("tasks" in line for line in plan_of(store, statement))


@pytest.mark.parametrize(
    "query",
    [
        ProcessQuery(),
        ProcessQuery(states=PROCESS_LIVE),
        ProcessQuery(states=PROCESS_TERMINAL),
        ProcessQuery(states=frozenset({ProcessState.FAILED})),
        ProcessQuery(kind="export"),
        ProcessQuery(batch=BatchId("batch-1")),
        ProcessQuery(destination="lake.ns.t"),
        ProcessQuery(source="main:db.t"),
        ProcessQuery(table="main:db.t"),
        ProcessQuery(table="main:db.t", states=PROCESS_LIVE, before=ProcessId("x")),
        ProcessQuery(before=ProcessId("x")),
        ProcessQuery(kind="export", before=ProcessId("x")),
        ProcessQuery(created_since=LONG_AGO, created_before=LONG_AGO),
        ProcessQuery(retry_of=ProcessId("x")),
    ],
    ids=lambda query: (
        ",".join(
            item.name
            for item in fields(query)
            if getattr(query, item.name) != getattr(ProcessQuery(), item.name)
        )
        or "all"
    ),
)
def test_ps_reads_newest_first_from_an_index_and_never_tasks(store: SqlStore, query: ProcessQuery) -> None:
    plan = plan_of(store, processes_statement(query))
    assert not any("tasks" in line for line in plan)
    whole = ProcessQuery(limit=query.limit)
    if query != whole:
        assert scans(plan) == []
    if len(query.states) <= 1 and not query.table and query.created_since is None:
        assert not any("TEMP B-TREE" in line for line in plan)


@pytest.mark.parametrize(
    ("field", "index"), [("source", "source"), ("destination", "destination"), ("batch", "batch")]
)
def test_a_list_of_one_table_or_batch_is_read_from_the_narrow_index(
    store: SqlStore, field: str, index: str
) -> None:
    narrow: Any = {field: "x", "kind": "export", "states": frozenset({ProcessState.FAILED})}
    assert plan_of(store, processes_statement(ProcessQuery(**narrow))) == [
        f"SEARCH processes USING INDEX ix_processes_{index} ({field}=?)"
    ]


@pytest.mark.parametrize(
    ("state", "index"), [(ProcessState.COMPLETED, "kind"), (ProcessState.FAILED, "state")]
)
def test_a_list_of_one_kind_and_state_is_read_from_the_narrower_index(
    store: SqlStore, state: ProcessState, index: str
) -> None:
    query = ProcessQuery(kind="restore", states=frozenset({state}))
    assert plan_of(store, processes_statement(query)) == [
        f"SEARCH processes USING INDEX ix_processes_{index} ({index}=?)"
    ]


@pytest.mark.parametrize(
    ("statement", "indexes"),
    [
        (feed_statement(7, 100), ["uq_events_position"]),
        (unnumbered_statement(100), ["ix_events_unnumbered"]),
        (live_tasks_statement(), ["ix_processes_live"]),
        (unknown_statement(), ["ix_processes_cleanup"]),
        (held_pins_statement(), ["ix_pins_state"]),
        (waiting_notices_statement(), ["ix_notices_waiting"]),
    ],
)
def test_the_feed_and_the_totals_read_only_what_they_need(
    store: SqlStore, statement: Any, indexes: list[str]
) -> None:
    plan = plan_of(store, statement)
    assert plan and all(any(index in line for index in indexes) for line in plan)


def test_a_scan_would_be_noticed(store: SqlStore) -> None:
    from calve.store.tables import tasks

    statement = tasks.select().where(tasks.c.receipt == "x")
    assert list(itertools.chain(scans(plan_of(store, statement)))) == ["SCAN tasks"]


A_PROCESS = ProcessId("x")


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        (attempts_statement(A_PROCESS, after=-1, limit=400), "PRIMARY KEY (process_id=?)"),
        (sample_statement(A_PROCESS, [0, 53], 4000), "PRIMARY KEY (process_id=? AND number=?)"),
        (slowest_statement(A_PROCESS, 10), "PRIMARY KEY (process_id=?)"),
        (task_page_statement(A_PROCESS, frozenset(), 7, 100), "(process_id=? AND number>?)"),
        (
            task_page_statement(A_PROCESS, frozenset({TaskState.FAILED, TaskState.RUNNING}), 7, 100),
            "process_id=? AND",
        ),
        (newest_events_statement(A_PROCESS, 7, 50), "ix_events_process_id (process_id=? AND number<?)"),
        (
            ended_statement(LONG_AGO, failed=True, limit=200),
            "ix_processes_failed (state=? AND finished_at>?)",
        ),
        (ended_statement(LONG_AGO, failed=False, limit=200), "ix_processes_finished (finished_at>?)"),
        (
            ends_statement(LONG_AGO, ProcessState.FAILED, 9),
            "ix_processes_failed (state=? AND finished_at>?)",
        ),
        (ends_statement(LONG_AGO, ProcessState.COMPLETED, 9), "ix_processes_finished (finished_at>?)"),
        (work_done_statement(LONG_AGO, 60), "ix_processes_finished (finished_at>?)"),
        (ends_statement(LONG_AGO, None, 9), "ix_processes_finished (finished_at>?)"),
        (
            ends_statement(LONG_AGO, ProcessState.COMPLETED, 9, "export", "x"),
            "ix_processes_source (source=?)",
        ),
        (sightings_statement("pair", LONG_AGO, 100), "ix_sightings_tried (tried_at>?)"),
        (
            sightings_of_statement("proof", ["a", "b"]),
            "sqlite_autoindex_sightings_1 (subject=? AND what=? AND piece=?)",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_pages_read_comes_from_an_index(store: SqlStore, statement: Any, index: str) -> None:
    plan = plan_of(store, statement)
    assert index in plan[0], plan
    assert not any(line.startswith("SCAN") for line in plan)


def test_errors_are_counted_from_the_index_of_what_failed(store: SqlStore) -> None:
    plan = [line for line in plan_of(store, failed_attempts_statement(LONG_AGO, 10)) if "attempts" in line]
    assert plan == ["SEARCH attempts USING INDEX ix_attempts_failed (ended_at>?)"]


@pytest.mark.parametrize(
    "statement",
    [
        processes_statement(ProcessQuery(states=PROCESS_LIVE, kind="export", source="x")),
        task_page_statement(A_PROCESS, frozenset(TaskState), 7, 100),
        ends_statement(LONG_AGO, ProcessState.COMPLETED, 9),
        work_done_statement(LONG_AGO, 60),
        held_pins_statement(),
    ],
)
def test_what_is_bound_is_of_a_plain_type(statement: Any) -> None:
    """Of another type SQLAlchemy asks its ORM; while a thread imported that, for a catalog, a page was a 500."""
    bound = statement.compile().params.values()
    flat = itertools.chain.from_iterable(value if isinstance(value, list) else [value] for value in bound)
    assert {type(value) for value in flat} <= {str, int}
