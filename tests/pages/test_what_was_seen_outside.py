"""Pages show the last looks outside with their age, and what the store knows since lies over it."""

import json
from dataclasses import fields
from typing import Any

import pytest
from page_scene import (
    ask,
    counted,
    listed,
    looked,
)

from calve.app.calve import Calve
from calve.app.desk import Desk
from calve.app.pages.sightings import keep
from calve.iceberg.health.findings import Part
from calve.iceberg.health.report import Health
from calve.model.access import Caller, Proof, Role
from calve.model.states import ProcessState
from calve.store import SqlStore
from calve.testing.contracts.contract import (
    finish_task,
    move,
    publishing,
    running,
    start_task,
    submit,
)


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
