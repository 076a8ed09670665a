"""Killed, failed or cancelled, the same command goes on where it stopped, and nothing is left over."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from backup_place import DirectRunner
from ticked import Ticked

from calve.app.wiring import App
from calve.archive import backups
from calve.backup.verification import verify
from calve.cli.main import run
from calve.clickhouse.embedded.source import EmbeddedSource
from calve.control.ports import TaskOrder
from calve.model import reach
from calve.model.errors import CalveError, LockedError, RefusedError
from calve.model.states import Leftovers, ProcessState
from support.kept_source import KeptSource


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptSource]:
    with KeptSource(tmp_path_factory.mktemp("source") / "clickhouse") as source:
        source.execute("CREATE DATABASE db")
        for table in ("a", "b"):
            source.execute(
                f"CREATE TABLE db.{table} (id UInt64, s String) ENGINE = MergeTree ORDER BY id",
                f"INSERT INTO db.{table} SELECT number, randomPrintableASCII(100) FROM numbers(200)",
            )
        yield source


@pytest.fixture
def ticked(source: KeptSource, tmp_path: Path) -> Ticked:
    return Ticked(tmp_path / "backups", source)


def fail_at_the_second(ticked: Ticked) -> None:
    def fail(order: TaskOrder) -> None:
        if order.number == 1:
            payload = order.payload.replace(ticked.location.url, "file:///dev/null/nowhere")
            object.__setattr__(order, "payload", payload)

    ticked.runner.before = fail


def test_a_retry_stores_only_what_the_first_run_did_not(ticked: Ticked) -> None:
    fail_at_the_second(ticked)
    first = ticked.create("b")
    assert ticked.settle(first, ticks=200).state is ProcessState.FAILED
    assert backups.listed(ticked.location) == []
    ticked.runner.before = lambda order: None
    second = ticked.create("b")
    assert ticked.row(second).retry_of == first
    assert ticked.settle(second).state is ProcessState.COMPLETED
    manifest = backups.find(ticked.location, "b")
    assert 0 < manifest.moved_bytes < manifest.bytes
    ticked.clock.advance(3601)  # an attempt that lost could write until then
    for _ in range(5):
        ticked.settle(second)
    assert ticked.row(first).leftovers is Leftovers.GONE
    assert verify(ticked.location, manifest, read_share=1.0).whole


def test_what_a_failed_backup_stored_is_removed_after_its_time(ticked: Ticked) -> None:
    fail_at_the_second(ticked)
    process_id = ticked.create("b")
    worker = ticked.worker()
    assert ticked.settle(process_id, worker, ticks=200).state is ProcessState.FAILED
    assert ticked.location.storage.list(f"{ticked.location.url}/parts")
    ticked.clock.advance(25 * 3600)
    for _ in range(3):
        worker.tick()
    assert ticked.row(process_id).leftovers is Leftovers.GONE
    assert ticked.location.storage.list(f"{ticked.location.url}/parts") == []
    assert ticked.location.storage.list(ticked.location.all_under_way) == []


def test_the_same_command_follows_what_is_under_way_and_another_is_refused(ticked: Ticked) -> None:
    first = ticked.create("b", "db.a")
    assert ticked.create("b", "db.a") == first
    with pytest.raises(LockedError, match=first) as refused:
        ticked.create("b", "db.b")
    assert f"calve cancel {first}" in refused.value.hint


def test_a_name_that_is_taken_is_refused_before_anything_is_queued(ticked: Ticked) -> None:
    ticked.settle(ticked.create("b", "db.a"))
    with pytest.raises(RefusedError, match="a backup b in"):
        ticked.create("b", "db.a")
    assert ticked.store.live() == []


def test_a_cancel_ends_it_and_leaves_neither_freeze_nor_backup(ticked: Ticked, source: KeptSource) -> None:
    process_id = ticked.create("b")
    worker = ticked.worker()
    worker.tick()
    ticked.store.request_cancel(process_id)
    assert ticked.settle(process_id, worker).state is ProcessState.CANCELLED
    assert source.frozen == []
    assert backups.listed(ticked.location) == []


def test_P15_a_location_that_was_emptied_meanwhile_ends_it(ticked: Ticked) -> None:
    import shutil

    process_id = ticked.create("b")

    def emptied(order: TaskOrder) -> None:
        if order.number == 1:
            shutil.rmtree(ticked.ports.folder)
            ticked.location.made_identity()

    ticked.runner.before = emptied
    row = ticked.settle(process_id)
    assert row.state is ProcessState.FAILED and row.error is not None
    assert row.error.code == "location_changed"
    assert backups.listed(ticked.location) == []


def test_a_probe_asks_the_very_service_that_was_down(ticked: Ticked, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, process = ticked.kinds["backup"], ticked.store.process(ticked.create("b"))
    kind.probe(reach.backup(ticked.location.url), process)
    assert ticked.location.storage.list(ticked.location.url) == []
    monkeypatch.setattr(ticked.ports, "url", "file:///dev/null/nowhere")
    with pytest.raises(CalveError):
        kind.probe(reach.backup("file:///dev/null/nowhere"), process)
    kind.probe(reach.source("main"), process)  # the location is down, and this is not about it


def test_partitions_alone_are_backed_up_where_they_are_named(ticked: Ticked, source: KeptSource) -> None:
    source.execute(
        "CREATE TABLE db.parted (d Date, id UInt64) ENGINE = MergeTree PARTITION BY toYYYYMM(d) ORDER BY id",
        "INSERT INTO db.parted SELECT toDate('2024-01-01') + number, number FROM numbers(60)",
    )
    ticked.settle(ticked.create("b", "db.parted", partitions=("202402",)))
    manifest = backups.find(ticked.location, "b")
    assert {part.partition_id for table in manifest.tables for part in table.parts} == {"202402"}
    assert manifest.rows == 29
    source.execute("DROP TABLE db.parted SYNC")


def test_L30_after_kill_9_the_same_command_releases_the_freezes_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "calve.toml").write_text(
        '[source.main]\nurl = "chdb://clickhouse"\n[limits]\nlease_seconds = 1\ntick_seconds = 0.05\n'
    )
    folder = tmp_path / "clickhouse"
    with EmbeddedSource("main", folder, create=True).visit() as session:
        session.execute("CREATE DATABASE db")
        session.execute("CREATE TABLE db.t (id UInt64) ENGINE = MergeTree ORDER BY id")
        session.execute("INSERT INTO db.t SELECT number FROM numbers(100)")
        session.execute("ALTER TABLE db.t FREEZE WITH NAME 'foreign'")
    command = ["backup", "create", "b", "--tables", "db.*"]
    with killed(tmp_path, command):
        frozen = [entry.name for entry in (folder / "shadow").iterdir() if entry.is_dir()]
        assert len(frozen) == 2
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(App, "runner", property(lambda app: DirectRunner()))
    assert run(command) == 0
    assert [entry.name for entry in (folder / "shadow").iterdir() if entry.is_dir()] == ["foreign"]
    assert run(["backup", "verify", "b", "--read-data", "100%"]) == 0

    # T16: a restore likewise, and every row is there once.
    command = ["backup", "restore", "b", "--as", "db2"]
    with killed(tmp_path, command):
        pass
    assert run([*command, "--existing", "append"]) == 4  # another request
    capsys.readouterr()
    assert run(command) == 0
    assert "joining process" in capsys.readouterr().err
    with EmbeddedSource("main", folder).visit() as session:
        assert session.rows("SELECT count() AS n, uniq(id) AS ids FROM db2.t") == [{"n": 100, "ids": 100}]


@contextmanager
def killed(folder: Path, command: Sequence[str]) -> Iterator[None]:
    """The command in a program of its own, killed at the end of the block, while it does its first task."""
    here = Path(__file__).parent
    with subprocess.Popen(
        [sys.executable, here / "killed_create.py", *command],
        cwd=folder, stderr=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": f"{here}:{here.parent}"},
    ) as child:  # fmt: skip
        while not (folder / "hangs").exists():
            assert child.poll() is None
            time.sleep(0.05)
        yield
        child.send_signal(signal.SIGKILL)
    (folder / "hangs").unlink()


def test_a_frozen_part_that_somebody_changed_is_not_stored_as_the_planned_one(ticked: Ticked) -> None:
    process_id = ticked.create("b", "db.a")
    ticked.runner.before = _add_a_file
    row = ticked.settle(process_id)
    assert row.state is ProcessState.FAILED and row.error is not None
    assert row.error.code == "part_changed"


def _add_a_file(order: TaskOrder) -> None:
    """Somebody writes into the freeze itself."""
    import json

    for upload in json.loads(order.payload)["uploads"]:
        (Path(upload["path"]) / "stranger.txt").write_text("x")
