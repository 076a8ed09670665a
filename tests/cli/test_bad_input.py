"""Each mistake: a one-line error that names the thing, a hint, the exit code, and nothing left behind."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from calve.app.config.load import load_config
from calve.app.config.template import write
from calve.app.wiring import App
from calve.cli.ps import KINDS
from calve.clickhouse.embedded.source import EmbeddedSource
from calve.model.process import ProcessQuery
from calve.store import open_store
from support.calve_command import Run, call, in_this_process
from support.served import served_here

QUICK = {"CALVE_LIMITS__SOURCE_BUSY_SECONDS": "0.2"}
STATEMENTS = (
    "CREATE DATABASE db",
    "CREATE TABLE db.events (id UInt64, at Date) ENGINE = MergeTree PARTITION BY toYYYYMM(at) ORDER BY id",
    "INSERT INTO db.events VALUES (1, '2024-01-01'), (2, '2024-02-01')",
    "DELETE FROM db.events WHERE id = 2 SETTINGS mutations_sync = 2",
    "CREATE TABLE db.log (id UInt64) ENGINE = Log",
    "CREATE TABLE db.odd (id Int256, at Date) ENGINE = MergeTree PARTITION BY toYYYYMM(at) ORDER BY at",
    "INSERT INTO db.odd VALUES (1, '2024-01-01')",
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installation with a few tables. No command in this file may change it."""
    folder = tmp_path_factory.mktemp("home")
    write(folder)
    with EmbeddedSource("main", folder / "clickhouse", create=True).visit() as session:
        for statement in STATEMENTS:
            session.execute(statement)
    assert call("ps", cwd=folder).code == 0
    return folder


@pytest.fixture
def run(home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return in_this_process(home, capsys, monkeypatch)


@pytest.fixture(scope="module")
def url(home: Path) -> Iterator[str]:
    with served_here(home) as made:
        yield made


@pytest.fixture(params=["here", "served"])
def run_both(request: pytest.FixtureRequest, run: Run) -> Run:
    """The command by itself, and with CALVE_SERVER."""
    if request.param == "here":
        return run
    server = {"CALVE_SERVER": request.getfixturevalue("url")}
    return lambda *arguments: run(*arguments, env=server)


@pytest.fixture(autouse=True)
def nothing_is_left_behind(home: Path) -> Iterator[None]:
    yield
    assert not list(home.glob("clickhouse/shadow/*/*")), "a freeze is left"
    assert not list(home.glob("lake/warehouse/**/*.*")), "a file is left in the warehouse"
    with open_store(f"sqlite:///{home}/calve.db") as store:
        assert store.processes(ProcessQuery()) == [], "a process is left"


def export(*options: str, table: str = "db.events", to: str = "lake.ns.events") -> tuple[str, ...]:
    return ("export", table, "--to", to, *options)


def test_a_mistake_as_a_person_meets_it(home: Path) -> None:
    answer = call(*export("--partition", "202409"), cwd=home)
    answer.is_error(3, "202409", "202401")
    assert len(answer.err.splitlines()) == 2
    assert answer.out == ""


def test_no_such_table(run_both: Run) -> None:
    run_both(*export("--all", table="db.event")).is_error(3, "db.event", "events")
    run_both("partitions", "db.event").is_error(3, "db.event", "events")


def test_no_such_database(run_both: Run) -> None:
    run_both(*export("--all", table="dbb.events")).is_error(3, "dbb")


def test_no_such_partition(run_both: Run) -> None:
    run_both(*export("--partition", "202409")).is_error(3, "202409", "202401")


def test_no_such_part(run_both: Run) -> None:
    run_both(*export("--part", "202401_9_9_0")).is_error(3, "202401_9_9_0")


def test_an_empty_partition(run_both: Run) -> None:
    run_both(*export("--partition", "202402")).is_error(4, "202402", "calve partitions")


def test_a_table_without_parts(run_both: Run) -> None:
    run_both(*export("--all", table="db.log")).is_error(4, "Log")


def test_a_type_that_has_no_home_is_refused_before_any_work(run_both: Run) -> None:
    answer = run_both(*export("--all", table="db.odd"))
    assert answer.code in (2, 4)
    assert "Int256" in answer.err and "id" in answer.err
    assert [line for line in answer.err.splitlines() if line.startswith("  id: Int256")], (
        "a list, line by line"
    )
    assert "Traceback" not in answer.err


def test_a_catalog_that_is_not_configured(run_both: Run) -> None:
    run_both(*export("--all", to="lak.ns.events")).is_error(2, "'lak'", "[catalog.lak]")


def test_a_source_that_is_not_configured(run_both: Run) -> None:
    run_both(*export("--all", table="other:db.events")).is_error(2, "'other'", "[source.other]")


@pytest.mark.parametrize("to", ["events", "lake.events", "lake..events", "lake.ns."])
def test_a_destination_that_is_none(run_both: Run, to: str) -> None:
    run_both(*export("--all", to=to)).is_error(2, to, "catalog.namespace.table")


@pytest.mark.parametrize("table", ["", "a.b.c", "db.", "`db.events"])
def test_a_table_name_that_is_none(run_both: Run, table: str) -> None:
    run_both(*export("--all", table=table)).is_error(2, table, "db.table")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "no partitions are chosen"),
        (("--all", "--partition", "1"), "--partition and --all exclude each other"),
        (("--older-than", "90"), "invalid age '90'"),
        (("--all", "--cast", "id"), "invalid cast 'id'"),
        (("--all", "--mutations", "perhaps"), "perhaps"),
        (("--all", "--nonsense"), "--nonsense"),
    ],
)
def test_options_that_make_no_sense(run_both: Run, options: tuple[str, ...], words: str) -> None:
    run_both(*export(*options)).is_error(2, words)


@pytest.mark.parametrize("option", ["--exclude", "--cast"])
def test_a_column_that_the_table_does_not_have(run_both: Run, option: str) -> None:
    answer = run_both(*export("--all", option, "nope=long" if option == "--cast" else "nope"))
    answer.is_error(2, "db.events cannot be exported as it is", "its columns are")
    assert "  nope: there is no such" in answer.err
    assert {"id", "at"} <= set(answer.err.split("its columns are ")[1].replace(",", " ").split())


@pytest.mark.parametrize("command", ["health", "optimize", "history"])
def test_a_folder_of_plain_parquet_where_an_iceberg_table_is_wanted(run_both: Run, command: str) -> None:
    run_both(command, "./out/").is_error(2, "./out/", "catalog.namespace.table")
    answer = run_both(command, "events")
    answer.is_error(2, "invalid table 'events'", "catalog.namespace.table")
    assert "Parquet" not in answer.err


@pytest.mark.parametrize("words", [(), ("backup",)], ids=["calve", "backup"])
def test_a_command_that_is_left_out_is_answered_with_the_help(run_both: Run, words: tuple[str, ...]) -> None:
    answer = run_both(*words)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == run_both(*words, "--help").out
    asked = run_both("--json", *words)
    assert (asked.code, asked.json["error"]["code"]) == (2, "usage")


def test_a_kind_that_there_is_not(run_both: Run, home: Path) -> None:
    run_both("ps", "--kind", "exports").is_error(2, "exports", "calve ps --help")
    with closing(App(load_config(home / "calve.toml", environ={}))) as app:
        assert set(KINDS) == set(app.kinds)


def test_a_table_that_must_exist_and_does_not(run_both: Run) -> None:
    run_both(*export("--partition", "202401", "--no-create")).is_error(3, "ns.events", "--no-create")


def test_an_unknown_command(run: Run) -> None:
    run("exprot").is_error(2, "exprot", "calve --help")


def test_an_unknown_key_in_the_configuration(run: Run) -> None:
    run("ps", env={"CALVE_LIMITS__TASK_ATEMPTS": "3"}).is_error(2, "task_atempts", "task_attempts")


def test_a_typo_in_a_configuration_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "calve.toml").write_text('[stroe]\nurl = "sqlite:///x.db"\n')
    run("ps", "--config", str(tmp_path / "calve.toml")).is_error(2, "stroe", "store")
    assert [path.name for path in tmp_path.iterdir()] == ["calve.toml"]


def test_a_file_that_is_not_TOML(run: Run, tmp_path: Path) -> None:
    (tmp_path / "calve.toml").write_text("[store\n")
    run("ps", "--config", str(tmp_path)).is_error(2, "is not TOML")


def test_no_configuration_at_all(run: Run, tmp_path: Path) -> None:
    run("ps", cwd=tmp_path).is_error(2, "no calve.toml", "calve init")
    assert not list(tmp_path.iterdir())


def _without_write_access(tmp_path: Path) -> Path:
    """Root may write wherever permissions only forbid it, so for root it is a read-only file system."""
    if os.geteuid() == 0:
        return Path("/sys/kernel")
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o555)
    return folder


def test_a_folder_without_write_access(run: Run, tmp_path: Path) -> None:
    closed = _without_write_access(tmp_path)
    run("init", str(closed / "new")).is_error(2, str(closed), "calve init DIR")
    run("demo", "--dir", str(closed / "new")).is_error(2, str(closed), "--dir")


def test_a_store_in_a_folder_without_write_access(run: Run, tmp_path: Path) -> None:
    closed = _without_write_access(tmp_path)
    answer = run("ps", env={"CALVE_STORE__URL": f"sqlite:///{closed}/calve.db"})
    assert answer.code in (1, 2)
    assert answer.err.startswith("error: ")
    assert str(closed) in answer.err and "hint: " in answer.err and "Traceback" not in answer.err


def test_a_warehouse_without_write_access(run: Run, tmp_path: Path) -> None:
    closed = _without_write_access(tmp_path)
    env = {"CALVE_CATALOG__LAKE__WAREHOUSE": str(closed / "lake")}
    answer = run("doctor", "--no-spark", "--json", env=env)
    assert answer.code == 1
    (bad,) = [finding for finding in answer.json if not finding["ok"]]
    assert bad["part"] == "catalog:lake"
    assert bad["remedy"]


def test_a_source_folder_that_is_missing_and_one_that_is_none(run: Run, tmp_path: Path) -> None:
    missing = run(*export("--all"), env={"CALVE_SOURCE__MAIN__URL": f"chdb://{tmp_path}/gone"})
    missing.is_error(2, f"{tmp_path}/gone", "calve.toml")
    run(*export("--all"), env={"CALVE_SOURCE__MAIN__URL": f"chdb://{tmp_path}"}).is_error(2, str(tmp_path))
    assert not list(tmp_path.iterdir()), "looking at a folder must not make it a source"


def test_an_embedded_source_that_another_process_holds_open(home: Path) -> None:
    # Commands of their own: within one program visits wait for each other instead.
    with EmbeddedSource("main", home / "clickhouse").visit():
        held = call(*export("--partition", "202401"), cwd=home, env=QUICK)
        listed = call("partitions", "db.events", cwd=home, env=QUICK)
    held.is_error(4, "open in another process", "close it")
    listed.is_error(4, str(home / "clickhouse"))


def test_a_demo_never_touches_a_folder_that_is_not_a_demo_s(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    run("demo", "--dir", str(tmp_path)).is_error(4, "was not made by a demo", "--dir")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_an_error_with_debug_shows_where_it_came_from(run: Run) -> None:
    answer = run("partitions", "db.event", "--debug")
    assert "Traceback" in answer.err
    assert "error: " in answer.err


def test_L7_a_destination_of_the_wrong_kind_is_a_clear_error(run: Run) -> None:
    run(*export("--all", to="ftp://some/folder")).is_error(2, "ftp://some/folder", "s3://bucket/prefix/")
