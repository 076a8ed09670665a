"""`calve doctor` as a probe: severities, one finding for one cause, an exit code that means something."""

import contextlib
import sqlite3
import stat
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from calve import __version__
from calve.app.config import load_config
from calve.app.config.template import render, write
from calve.app.doctor.examine import examine
from calve.app.doctor.finding import Finding, Severity
from calve.app.wiring import App
from calve.model.errors import ErrorInfo
from calve.model.process import NewProcess, Worker, WorkerId, new_process_id
from calve.store import open_store

sys.path.append(str(Path(__file__).parent.parent / "cli"))
from support.calve_command import Run, in_this_process

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)  # the store's clock is written in its place
WORKER = Worker(id=WorkerId("dead"), host="h", reach=(), slots=2, started_at=LONG_AGO, heartbeat_at=LONG_AGO)


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return in_this_process(tmp_path, capsys, monkeypatch)


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def test_a_fresh_folder_is_not_bad(run: Run, tmp_path: Path) -> None:
    assert run("init").code == 0
    answer = run("doctor", "--no-spark")
    assert answer.code == 0, answer.out
    assert "BAD" not in answer.out and "does not exist yet" in answer.out
    quiet = run("doctor", "--no-spark", "--quiet")
    assert all(line.startswith(("warn", "     hint:")) for line in quiet.out.splitlines())
    assert {one["severity"] for one in run("doctor", "--no-spark", "--json").json} == {"ok", "warning"}


def test_T10_a_backup_whose_manifest_cannot_be_read_is_named_with_a_remedy_that_works(
    run: Run, tmp_path: Path
) -> None:
    assert run("init").code == 0
    manifest = tmp_path / "backups" / "backups" / "night@1.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text('{"bad')
    answer = run("doctor", "--no-spark", "--json")
    assert answer.code == 1
    found = {one["part"]: one for one in answer.json}
    assert found["backups"]["words"] == "1 backup"
    assert "night@1.json is damaged" in found["backup:night"]["words"]
    assert "calve backup delete night" in found["backup:night"]["remedy"]
    assert run("backup", "delete", "night").code == 0
    assert run("doctor", "--no-spark").code == 0


def test_what_may_hold_a_secret_is_made_for_its_owner_and_said_where_it_is_not(
    run: Run, tmp_path: Path
) -> None:
    file, secret = write(tmp_path), tmp_path / "secret"
    run("ps")
    assert (mode(file), mode(tmp_path / "calve.db")) == (0o600, 0o600)
    secret.write_text("x")
    for one in (file, tmp_path / "calve.db", secret):
        one.chmod(0o644)
    answer = run(
        "doctor", "--no-spark", "--quiet", "--json", env={"CALVE_SOURCE__MAIN__PASSWORD_FILE": str(secret)}
    )
    assert answer.code == 0
    remedies = {one["remedy"] for one in answer.json if one["part"] == "files"}
    assert remedies == {f"chmod 600 {one}" for one in (file, tmp_path / "calve.db", secret)}


def test_T17_a_store_that_is_down_is_said_once(run: Run, tmp_path: Path) -> None:
    write(tmp_path)
    env = {"CALVE_STORE__URL": "postgresql://nobody@127.0.0.1:1/none"}
    answer = run("doctor", "--no-spark", "--json", env=env)
    assert answer.code == 1
    assert [one["part"] for one in answer.json if one["severity"] == "error"] == ["store"]


def test_T17_a_store_that_may_not_be_opened_is_said_once(run: Run, tmp_path: Path) -> None:
    """A newer Calve has opened it; the check of the source asks the store too."""
    write(tmp_path)
    (tmp_path / "clickhouse" / "metadata").mkdir(parents=True)
    run("ps")
    with contextlib.closing(sqlite3.connect(tmp_path / "calve.db")) as database, database:
        database.execute("UPDATE schema_version SET version = 99")
    answer = run("doctor", "--no-spark", "--json")
    assert answer.code == 1
    assert [one["part"] for one in answer.json if one["severity"] == "error"] == ["store"]


def findings(folder: Path) -> list[Finding]:
    app = App(load_config(folder / "calve.toml", environ={}))
    try:
        return list(examine(app, spark=False))
    finally:
        app.close()


def test_T17_workers_that_died_long_ago_and_errors_that_healed_are_history(tmp_path: Path) -> None:
    (tmp_path / "calve.toml").write_text(render())
    (tmp_path / "calve.toml").chmod(0o600)
    offset = timedelta(days=-3)
    url = f"sqlite:///{tmp_path}/calve.db"
    with open_store(url, clock_offset_seconds=offset.total_seconds) as store:
        error = ErrorInfo(code="unreachable", message="catalog lake does not answer")
        store.heartbeat(replace(WORKER, error=error))
        assert store.workers()[0].error == error
    assert not [one for one in findings(tmp_path) if one.part.startswith("worker:")]


def test_a_dead_worker_that_still_holds_work_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "calve.toml").write_text(render())
    with open_store(f"sqlite:///{tmp_path}/calve.db", clock_offset_seconds=lambda: -7200.0) as store:
        new = NewProcess(
            id=new_process_id(), kind="export", source="main:db.t", destination="lake.ns.t",
            lane="catalog:lake", needs=(), request="{}",
        )  # fmt: skip
        store.submit([new])
        store.heartbeat(WORKER)
        store.claim(WORKER.id, frozenset(), lease_seconds=60, limit=1)
    [finding] = [one for one in findings(tmp_path) if one.part == "worker:dead"]
    assert finding.severity is Severity.WARNING and finding.remedy == "calve worker"


def test_workers_of_other_versions_are_a_warning_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "calve.toml").write_text(render())
    with open_store(f"sqlite:///{tmp_path}/calve.db") as store:
        store.heartbeat(replace(WORKER, id=WorkerId("today"), version=__version__))
        warned = [
            one for one in findings(tmp_path) if one.part == "workers" and one.severity is Severity.WARNING
        ]
        assert warned == []
        store.heartbeat(replace(WORKER, id=WorkerId("first")))
        store.heartbeat(replace(WORKER, id=WorkerId("other"), version="0.3.9"))
    [finding] = [
        one for one in findings(tmp_path) if one.part == "workers" and one.severity is Severity.WARNING
    ]
    assert "2 of 3" in finding.words and "first, other" in finding.words and "0.3.9, unnamed" in finding.words
    assert "halts" in finding.words
