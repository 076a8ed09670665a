"""T16: `kill -9` of a command, then the same command: it joins, takes over once the lease is past, exits 0."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from calve.clickhouse.embedded.source import EmbeddedSource
from calve.iceberg.catalogs.catalog import open_catalog
from calve.model.process import ProcessQuery, new_process_id
from calve.model.states import ProcessState
from calve.store import open_store
from support.programs import ForkedProgram

pytestmark = pytest.mark.programs

EXPORT = ("export", "db.t", "--all", "--to", "lake.ns.t")
CONFIG = """
[source.main]
url = "chdb://clickhouse"
[catalog.lake]
type = "sql"
uri = "sqlite:///catalog.db"
warehouse = "warehouse"
[limits]
lease_seconds = 2
tick_seconds = 0.05
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "calve.toml").write_text(CONFIG)
    with EmbeddedSource("main", tmp_path / "clickhouse", create=True).visit() as session:
        session.execute("CREATE DATABASE db")
        session.execute("CREATE TABLE db.t (id UInt64) ENGINE = MergeTree PARTITION BY id % 2 ORDER BY id")
        session.execute("INSERT INTO db.t SELECT number FROM numbers(100)")
    return tmp_path


@contextmanager
def started(folder: Path, point: str, *arguments: str) -> Iterator[ForkedProgram]:
    command = ["killed_command:program", point, *arguments]
    program = ForkedProgram("calve", command, folder / f"{new_process_id()}.stderr", {}, folder)
    try:
        yield program
    finally:
        program.kill()


def killed(folder: Path, point: str, *arguments: str) -> None:
    with started(folder, point, *arguments) as program:
        program.wait_ready((folder / "hangs").exists)
    (folder / "hangs").unlink()


def ended(program: ForkedProgram) -> tuple[int, str, str]:
    out = program.read_all()
    return program.wait(120), out, program.output.read_text()


def again(folder: Path, *arguments: str) -> tuple[int, str, str]:
    with started(folder, "nowhere", *arguments) as program:
        return ended(program)


def rows(folder: Path) -> list[int]:
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": (folder / "warehouse").as_uri(),
    }
    table = open_catalog("lake", properties).load_table(("ns", "t"))
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def stored(folder: Path) -> list[Any]:
    with open_store(f"sqlite:///{folder}/calve.db") as store:
        return store.processes(ProcessQuery())


@pytest.mark.parametrize("point", ["submitted", "pinned", "published"])  # the others are below
def test_T16_wherever_it_was_killed_the_same_command_ends_it(folder: Path, point: str) -> None:
    killed(folder, point, *EXPORT)
    before = {one.id for one in stored(folder)}
    assert len(before) == 2
    code, _, said = again(folder, *EXPORT)
    assert code == 0, said
    joined = [one for one in before if f"{one}" in said.partition("joining")[2]]
    assert joined, said
    assert {one.id for one in stored(folder)} == before, "nothing was queued a second time"
    assert {one.state for one in stored(folder)} == {ProcessState.COMPLETED}
    assert rows(folder) == list(range(100))
    assert not list(folder.glob("clickhouse/shadow/*/*")), "a freeze is left"


def test_T16_killed_again_and_again_it_ends_once_it_is_left_alone(folder: Path) -> None:
    for point in ("submitted", "planned", "written", "published"):
        killed(folder, point, *EXPORT)
    code, _, said = again(folder, *EXPORT)
    assert code == 0, said
    assert len(stored(folder)) == 2
    assert rows(folder) == list(range(100))


def test_T16_killed_while_a_freeze_is_released_the_next_worker_releases_it_once_the_lease_is_past(
    folder: Path,
) -> None:
    killed(folder, "releasing", *EXPORT)
    assert list(folder.glob("clickhouse/shadow/*/*"))
    code, _, said = again(folder, "worker", "--until-idle")
    assert code == 0, said
    assert not list(folder.glob("clickhouse/shadow/*/*")), "a freeze is left"
    assert rows(folder) == list(range(100))


def test_T16_two_people_with_the_same_command_at_the_same_time_both_end_well(folder: Path) -> None:
    # Nobody dies here. Who joins waits two leases for the other's plan, also on a busy machine.
    (folder / "calve.toml").write_text(CONFIG.replace("lease_seconds = 2", "lease_seconds = 30"))
    with (
        started(folder, "nowhere", *EXPORT, "--json") as one,
        started(folder, "nowhere", *EXPORT, "--json") as two,
    ):
        answers = [ended(one), ended(two)]
    for code, out, said in answers:
        assert code == 0, said
        assert {item["state"] for item in json.loads(out)} == {"COMPLETED"}
    assert rows(folder) == list(range(100))


def test_T16_a_killed_command_does_not_let_another_request_in(folder: Path) -> None:
    killed(folder, "planned", *EXPORT)
    code, _, said = again(folder, "export", "db.t", "--partition", "0", "--to", "lake.ns.t")
    assert code == 4, said
    [hint] = [line for line in said.splitlines() if line.startswith("hint:")]
    assert "calve wait" in hint and "calve cancel" in hint
    code, _, said = again(folder, *EXPORT, "--force")
    assert code == 4, said
    code, _, said = again(folder, *EXPORT)
    assert code == 0, said
    assert rows(folder) == list(range(100))


def test_T16_after_a_cancel_nobody_carried_out_the_hint_s_command_does_and_then_it_is_exported(
    folder: Path,
) -> None:
    killed(folder, "planned", *EXPORT)
    [batch] = {one.batch for one in stored(folder)}
    again(folder, "cancel", batch, "--no-wait")
    code, _, said = again(folder, *EXPORT)
    assert code == 4 and "being cancelled" in said, said
    code, _, said = again(folder, "cancel", batch)
    assert code == 0, said
    code, _, said = again(folder, *EXPORT)
    assert code == 0, said
    assert rows(folder) == list(range(100))
