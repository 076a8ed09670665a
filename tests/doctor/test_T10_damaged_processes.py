"""T10: a process whose row cannot be read is listed, shown and reported once, with a remedy that works."""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from calve.model.process import Lock, NewProcess, ProcessId, new_process_id
from calve.store import open_store

sys.path.append(str(Path(__file__).parent.parent / "cli"))
from support.calve_command import Run, in_this_process


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return in_this_process(tmp_path, capsys, monkeypatch)


def submitted(folder: Path, table: str) -> ProcessId:
    process_id = new_process_id()
    with open_store(f"sqlite:///{folder / 'calve.db'}") as store:
        new = NewProcess(
            id=process_id,
            kind="export",
            source=f"main:db.{table}",
            destination=f"lake.ns.{table}",
            lane="catalog:lake",
            needs=("source:main", "catalog:lake"),
            request="{}",
            partitions=("202401",),
            locks=(Lock(name=table),),
        )
        store.submit([new])
    return process_id


@pytest.mark.parametrize("column", ["needs", "partitions", "locks", "error"])
def test_T10_a_damaged_process_is_listed_shown_and_reported_with_a_remedy_that_works(
    run: Run, tmp_path: Path, column: str
) -> None:
    assert run("init").code == 0
    damaged, whole = submitted(tmp_path, "events"), submitted(tmp_path, "other")
    with closing(sqlite3.connect(tmp_path / "calve.db", isolation_level=None)) as database:
        database.execute(f"UPDATE processes SET {column} = '{{' WHERE id = ?", (damaged,))
        listed = run("ps", "--json").json
        assert {one["id"]: one.get("damaged", "") != "" for one in listed} == {damaged: True, whole: False}
        assert "DAMAGED" in run("ps").out
        assert f"`{column}` cannot be read" in run("show", damaged).out
        assert "Nobody works on it" in run("why", damaged).out
        answer = run("doctor", "--no-spark", "--json")
        assert answer.code == 1
        [finding] = [one for one in answer.json if one["part"] == f"process:{damaged}"]
        assert f"`{column}`" in finding["words"]
        waited = run("wait", damaged)
        assert waited.code == 1 and "set aside" in waited.err
        # The remedy ends in a statement.
        database.execute("UPDATE" + finding["remedy"].partition("UPDATE")[2])
    assert not any("damaged" in one for one in run("ps", "--json").json)
    assert not [
        one for one in run("doctor", "--no-spark", "--json").json if one["part"].startswith("process:")
    ]


@pytest.mark.parametrize(("state", "said"), [("COMPLETED", "It completed"), ("FAILED", "is unknown")])
def test_T10_an_error_that_cannot_be_read_is_repaired_as_the_state_needs_it(
    run: Run, tmp_path: Path, state: str, said: str
) -> None:
    assert run("init").code == 0
    damaged = submitted(tmp_path, "events")
    with closing(sqlite3.connect(tmp_path / "calve.db", isolation_level=None)) as database:
        database.execute(
            "UPDATE processes SET state = ?, finished_at = created_at, publish_sent = 1, error = '{' WHERE id = ?",
            (state, damaged),
        )
        answer = run("doctor", "--no-spark", "--json")
        [finding] = [one for one in answer.json if one["part"] == f"process:{damaged}"]
        database.execute("UPDATE" + finding["remedy"].partition("UPDATE")[2])
    assert said in run("why", damaged).out
