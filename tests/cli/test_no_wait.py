"""`--no-wait` returns once the data is pinned: the source may change, whether a worker is there or not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from calve.app.wiring import App
from calve.control.ports import Runner
from calve.iceberg.catalogs.catalog import open_catalog
from calve.store import open_store
from support.calve_command import Run
from support.kept_source import KeptSource

pytestmark = pytest.mark.programs

EXPORT = ("export", "db.t", "--all", "--to", "lake.ns.t")
PARTITIONS = 5
CONFIG = """
[source.main]
url = "chdb://clickhouse"
[catalog.lake]
type = "sql"
uri = "sqlite:///catalog.db"
warehouse = "warehouse"
[limits]
tick_seconds = 0.05
processes_per_worker = 2
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runner: Runner) -> Iterator[KeptSource]:
    (tmp_path / "calve.toml").write_text(CONFIG)
    with KeptSource(tmp_path / "clickhouse") as kept:
        kept.execute(
            "CREATE DATABASE db",
            f"CREATE TABLE db.t (id UInt64) ENGINE = MergeTree PARTITION BY id % {PARTITIONS} ORDER BY id",
            "INSERT INTO db.t SELECT number FROM numbers(100)",
        )
        monkeypatch.setattr(App, "source", lambda app, name: kept)
        monkeypatch.setattr(App, "runner", runner)
        yield kept


def exported(folder: Path) -> list[int]:
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": (folder / "warehouse").as_uri(),
    }
    table = open_catalog("lake", properties).load_table(("ns", "t"))
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def test_without_a_worker_the_command_pins_and_leaves_the_rest(
    run: Run, tmp_path: Path, source: KeptSource
) -> None:
    answer = run(*EXPORT, "--no-wait")
    assert answer.code == 0, answer.err
    ids = answer.out.split()
    assert len(ids) == PARTITIONS  # more than a worker holds at once
    assert "follow with: calve wait batch-" in answer.err
    assert "no worker is running" in answer.err
    for process in run("ps", "--json").json:
        assert (process["state"], process["tasks"]["done"]) == ("RUNNING", 0)
    assert run("ps", "--workers", "--json").json == []

    source.execute(*(f"ALTER TABLE db.t DROP PARTITION {number}" for number in range(PARTITIONS)))
    assert run("worker", "--until-idle").code == 0
    assert {process["state"] for process in run("show", *ids, "--json").json} == {"COMPLETED"}
    assert exported(tmp_path) == list(range(100))
    assert source.frozen == []


@pytest.mark.parametrize("drop", ["ALTER TABLE db.t DROP PARTITION 1", "DROP TABLE db.t SYNC"])
def test_the_same_command_goes_on_with_what_is_pinned_though_the_source_has_dropped_it(
    run: Run, tmp_path: Path, source: KeptSource, drop: str
) -> None:
    command = ("export", "db.t", "--partition", "1", "--to", "lake.ns.t")
    [first] = run(*command, "--no-wait").out.split()
    source.execute(drop)
    another = run("export", "db.t", "--partition", "1", "--to", "lake.ns.t", "--codec", "gzip")
    assert another.code == 3 and f"calve wait {first}" in another.err
    answer = run(*command)
    assert answer.code == 0, answer.err
    assert f"joining process {first}" in answer.err
    assert exported(tmp_path) == list(range(1, 100, PARTITIONS))
    assert run(*command).code == 3


def test_queued_returns_at_once_and_pins_nothing(run: Run, source: KeptSource) -> None:
    answer = run(*EXPORT, "--no-wait=queued", "--json")
    assert answer.code == 0, answer.err
    assert {process["state"] for process in answer.json} == {"PENDING"}
    assert source.frozen == []


def test_what_others_left_to_a_worker_is_not_touched(run: Run, tmp_path: Path, source: KeptSource) -> None:
    first = run("export", "db.t", "--partition", "0", "--to", "lake.ns.other", "--no-wait=queued").out.split()
    run("export", "db.t", "--partition", "0", "--to", "lake.ns.t", "--no-wait")
    with open_store(f"sqlite:///{tmp_path}/calve.db") as store:
        [other] = [store.process(one) for one in store.find(first[0])]
        assert (other.fence, other.planned) == (0, False)
        assert {process.owner for process in store.live()} == {None}


def test_what_planning_refuses_is_said_and_the_exit_code_says_so(run: Run, source: KeptSource) -> None:
    left = run("export", "db.t", "--partition", "0", "--to", "lake.ns.t", "--no-wait=queued").out.strip()
    source.execute("ALTER TABLE db.t DROP PARTITION 0")
    assert run("worker", "--until-idle").code == 0
    answer = run("retry", left, "--no-wait", "--json")
    assert (answer.code, answer.json["state"], answer.json["error"]["code"]) == (1, "FAILED", "no_partition")
    assert "error: " in answer.err


def test_a_backup_too_is_pinned_and_its_table_may_go(run: Run, tmp_path: Path, source: KeptSource) -> None:
    answer = run("backup", "create", "b", "--tables", "db.t", "--no-wait", "--json")
    assert (answer.code, answer.json["state"]) == (0, "RUNNING"), answer.err
    source.execute("DROP TABLE db.t SYNC")
    assert run("worker", "--until-idle").code == 0
    assert run("backup", "verify", "b", "--read-data", "100%").code == 0
    assert source.frozen == []


def test_the_same_command_again_joins_what_no_wait_left(run: Run, tmp_path: Path, source: KeptSource) -> None:
    left = run(*EXPORT, "--no-wait").out.split()
    answer = run(*EXPORT)
    assert answer.code == 0, answer.err
    assert "joining processes" in answer.err
    assert sorted(line.split()[0] for line in answer.out.splitlines()) == sorted(left)
    assert exported(tmp_path) == list(range(100))


@pytest.mark.parametrize("place", ["before the ids", "after the ids"])
def test_no_wait_alone_takes_no_value(run: Run, source: KeptSource, place: str) -> None:
    table = ("db.t", "--all", "--to", "lake.ns.t")
    words = ("--no-wait", *table) if place == "before the ids" else (*table, "--no-wait")
    assert run("export", *words).code == 0
    run("export", *table, "--no-wait=later").is_error(2, "--no-wait", "")
