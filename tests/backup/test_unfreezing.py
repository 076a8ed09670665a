"""UNFREEZE where the source has it, the shadow folder where it does not, and never a freeze of others."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from ticked import Ticked

from calve.archive import backups
from calve.clickhouse.pins import freeze, shadow
from calve.clickhouse.server.session import Features, parse
from calve.clickhouse.server.source import ServerOptions, ServerSource
from calve.control.ports import TaskOrder
from calve.model.errors import PermanentError
from calve.model.states import PIN_HELD, ProcessState
from support.clickhouse_front import NO_USERS, FrontOptions, clickhouse_front
from support.clickhouse_server import clickhouse_server
from support.kept_source import KeptSource

pytestmark = pytest.mark.services
WITH_UUID = {**NO_USERS, "serverUUID()": "toUUID('11111111-2222-3333-4444-555555555555')"}


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server whose disk is seen."""

    source: ServerSource
    data: Path
    modern: bool = True

    def run(self, *statements: str) -> None:
        with self.source.visit() as session:
            for statement in statements:
                session.execute(statement)

    @property
    def frozen(self) -> list[str]:
        folder = self.data / "shadow"
        return sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []

    def files(self, name: str) -> list[Path]:
        folder = self.data / "shadow" / name.replace("-", "%2D")
        return [path for path in folder.rglob("*") if path.is_file()]


def _server(url: str, data: Path, **options: Any) -> Server:
    return Server(source=ServerSource("main", ServerOptions(url=url, disks={"default": str(data)}, **options)), data=data)  # fmt: skip


@pytest.fixture(scope="module", params=["system-unfreeze", "without-system-unfreeze", "18.16"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    if request.param == "18.16":
        with clickhouse_server(folder) as old:
            yield replace(_server(old.url, old.data, id="old"), modern=False)
        return
    settings = {"enable_system_unfreeze": "1"} if request.param == "system-unfreeze" else {}
    with clickhouse_front(folder, FrontOptions(stand_ins=WITH_UUID, server_settings=settings)) as front:
        yield _server(front.url, front.data)


@pytest.fixture
def ticked(server: Server, tmp_path: Path) -> Ticked:
    server.run(
        "CREATE DATABASE IF NOT EXISTS db",
        "CREATE TABLE IF NOT EXISTS db.t (id UInt64, s String) ENGINE = MergeTree PARTITION BY id % 2 ORDER BY id",
        "INSERT INTO db.t SELECT number, toString(number) FROM numbers(100)",
    )
    return Ticked(tmp_path, server.source)


def test_a_backup_of_a_server_leaves_no_freeze_and_no_foreign_one_is_touched(
    server: Server, ticked: Ticked
) -> None:
    server.run("ALTER TABLE db.t FREEZE PARTITION 0 WITH NAME 'nightly'")
    before = len(server.files("nightly"))
    row = ticked.settle(ticked.create("b"))
    assert row.state is ProcessState.COMPLETED, row.error
    assert server.frozen == ["nightly"] and len(server.files("nightly")) == before > 0
    assert not ticked.store.pins(states=PIN_HELD)
    shutil.rmtree(server.data / "shadow" / "nightly")


def test_what_was_backed_up_from_a_server_is_restored_to_it(server: Server, ticked: Ticked) -> None:
    with server.source.visit() as session:
        before = session.rows("SELECT * FROM db.t ORDER BY id, s")
    assert ticked.settle(ticked.create("b")).state is ProcessState.COMPLETED
    server.run("DROP TABLE db.t")
    restored = ticked.settle(ticked.restore("b"))
    if not server.modern:
        assert restored.error is not None and restored.error.code == "restore_old_server"
        return
    assert restored.state is ProcessState.COMPLETED, restored.error
    with server.source.visit() as session:
        assert session.rows("SELECT * FROM db.t ORDER BY id, s") == before


def test_what_was_backed_up_from_a_server_is_restored_to_an_embedded_source(
    server: Server, ticked: Ticked, tmp_path: Path
) -> None:
    with server.source.visit() as session:
        before = session.rows("SELECT * FROM db.t ORDER BY id, s")
    assert ticked.settle(ticked.create("b")).state is ProcessState.COMPLETED
    with KeptSource(tmp_path / "clickhouse") as embedded:
        ticked.ports.source_ = embedded
        restored = ticked.settle(ticked.restore("b"))
        assert restored.state is ProcessState.COMPLETED, restored.error
        assert embedded.select("SELECT * FROM db.t ORDER BY id, s") == before


@pytest.mark.parametrize("what", ["TABLE db.doomed", "DATABASE doomed"])
def test_L32_a_table_dropped_meanwhile_is_no_error_and_its_freeze_goes(
    server: Server, ticked: Ticked, what: str
) -> None:
    name = "db.doomed" if "TABLE" in what else "doomed.t"
    server.run(
        "CREATE DATABASE IF NOT EXISTS doomed",
        f"CREATE TABLE {name} (id UInt64) ENGINE = MergeTree ORDER BY id",
        f"INSERT INTO {name} VALUES (1), (2)",
    )

    def drop(order: TaskOrder) -> None:
        server.run(f"DROP {what}")

    ticked.runner.before = drop
    row = ticked.settle(ticked.create("b", name))
    assert row.state is ProcessState.COMPLETED, row.error
    assert server.frozen == [] and backups.find(ticked.location, "b").rows == 2


@pytest.mark.parametrize("server", ["system-unfreeze", "without-system-unfreeze"], indirect=True)
def test_where_the_source_unfreezes_nothing_has_to_be_removed_by_us(
    server: Server, ticked: Ticked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that may read the server's files and not remove them."""

    def denied(path: Path, *given: Any, **named: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", denied)
        row = ticked.settle(ticked.create("b", "db.t"))
    assert row.state is ProcessState.COMPLETED, row.error
    [pin] = [pin.name for pin in ticked.store.pins(row.id)]
    assert server.files(pin) == [] and not ticked.store.pins(states=PIN_HELD)
    with server.source.visit() as session:
        assert session.pin_names() == ()  # empty folders are no pin
    shutil.rmtree(server.data / "shadow" / pin.replace("-", "%2D"), ignore_errors=True)


def test_P20_an_empty_counter_of_a_running_server_is_repaired(server: Server, ticked: Ticked) -> None:
    counter = server.data / "shadow" / "increment.txt"
    counter.parent.mkdir(exist_ok=True)
    counter.write_text("")
    row = ticked.settle(ticked.create("b", "db.t"))
    assert row.state is ProcessState.COMPLETED, row.error
    assert counter.read_text().strip().isdigit()


def test_UNFREEZE_is_asked_for_by_version() -> None:
    known = {
        text: (Features(version=parse(text)).table_unfreeze, Features(version=parse(text)).system_unfreeze)
        for text in ("18.16.1", "21.3.20", "21.4.3", "22.5.1", "22.6.1", "26.9.2")
    }
    assert known == {
        "18.16.1": (False, False), "21.3.20": (False, False), "21.4.3": (True, False),
        "22.5.1": (True, False), "22.6.1": (True, True), "26.9.2": (True, True),
    }  # fmt: skip


def test_an_embedded_source_unfreezes_its_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with KeptSource(tmp_path / "clickhouse") as source, source.visit() as session:
        source.execute(
            "CREATE TABLE t (id UInt64) ENGINE = MergeTree ORDER BY id", "INSERT INTO t VALUES (1)"
        )
        table = session.describe("default", "t")
        freeze.freeze(session, table, ["all"], "calve-a-1")
        monkeypatch.setattr(shadow, "remove", lambda disks, name: None)
        freeze.release(session, "calve-a-1", table=("default", "t"))
        assert not shadow.holds([source.folder], "calve-a-1")


@pytest.mark.parametrize("name", ["nightly", "calve-a-1/../x", "", "calve-A-1"])
def test_no_name_but_ours_is_ever_unfrozen(tmp_path: Path, name: str) -> None:
    with KeptSource(tmp_path / "clickhouse") as source, source.visit() as session:
        source.execute(
            "CREATE TABLE t (id UInt64) ENGINE = MergeTree ORDER BY id",
            "INSERT INTO t VALUES (1)",
            "ALTER TABLE t FREEZE WITH NAME 'nightly'",
        )
        with pytest.raises(PermanentError, match="invalid pin name"):
            freeze.release(session, name, table=("default", "t"))
        assert source.frozen == ["nightly"]


def test_P20_a_counter_that_another_holds_is_left_alone(tmp_path: Path) -> None:
    import fcntl

    counter = tmp_path / "shadow" / "increment.txt"
    counter.parent.mkdir()
    counter.write_text("")
    with counter.open("r+") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert not shadow.mend_counter(tmp_path)
    assert shadow.mend_counter(tmp_path) and counter.read_text() == "0\n"
    (tmp_path / "shadow" / "7").mkdir()
    counter.write_text("")
    assert shadow.mend_counter(tmp_path) and counter.read_text() == "7\n"
    assert not shadow.mend_counter(tmp_path)
