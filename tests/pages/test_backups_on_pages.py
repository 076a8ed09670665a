"""Backups as pages show them: as they were last seen, and what proved them."""

from datetime import timedelta

import pytest
from page_scene import ask, backup_row, backups_seen, kept, partition

from calve.app.calve import Calve
from calve.model.access import Asked, Proof
from calve.model.change import Change, NewPin
from calve.model.states import ProcessState
from calve.model.tier import Hold
from calve.store import SqlStore
from calve.testing.contracts.contract import (
    claimed,
    lease_of,
    move,
    publishing,
    running,
)


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
