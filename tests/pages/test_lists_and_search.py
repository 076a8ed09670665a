"""Lists of tables, processes and the system, and search: from the store alone."""

import json

import pytest
from page_scene import (
    DENIED,
    EPOCH,
    ask,
    backup_row,
    backups_seen,
    beat,
)

from calve.app.calve import Calve
from calve.model.change import Change, TaskChange
from calve.model.errors import ErrorInfo
from calve.model.seen import Sighting
from calve.model.states import ProcessState, TaskState
from calve.store import SqlStore
from calve.testing.contracts.contract import (
    ANNE,
    lease_of,
    move,
    publishing,
    running,
    start_task,
    submit,
)


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
