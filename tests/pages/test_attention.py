"""What a person must do something about, from the store alone."""

from pathlib import Path

from page_scene import DENIED, ask, beat, put_back

from calve.app.calve import Calve
from calve.app.config import load_config
from calve.model.access import Asked, Halt
from calve.model.change import CleanUpIn
from calve.model.process import WorkerId
from calve.model.states import ProcessState
from calve.store import SqlStore
from calve.store.tables import processes
from calve.store.tables import workers as worker_rows
from calve.testing.contracts.contract import (
    UNKNOWN,
    claimed,
    finish_task,
    move,
    publishing,
    running,
    start_task,
    submit,
)


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
