"""`calve health` and `calve optimize` as a person runs them."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from calve.cli.main import run
from calve.iceberg.catalogs.catalog import open_catalog
from support.lake import IDENTIFIER, arrow, make_table, sqlite_properties

CONFIG = """
[catalog.lake]
type = "sql"
uri = "sqlite:///catalog.db"
warehouse = "warehouse"

[spark]
master = "local[2]"
"""


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """A table of thirteen small files, and the working folder of a person who looks at it."""
    (tmp_path / "calve.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    opened = open_catalog("lake", sqlite_properties(tmp_path))
    table = make_table(opened)
    for number in range(13):
        table.append(arrow(range(number * 10, number * 10 + 10), 1))
    return opened


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any, str]:
    code = run([*arguments, "--json"])
    captured = capsys.readouterr()
    return code, json.loads(captured.out), captured.err


def test_health_shows_a_score_and_a_command_for_each_finding(
    catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["health", "lake.ns.events"]) == 0
    shown = capsys.readouterr().out
    assert "of 100" in shown and "calve optimize lake.ns.events" in shown and "month=1" in shown
    code, found, _ = answer(capsys, "health", "lake.ns.events", "--orphans")
    assert (code, found["files"], found["most_in_need"][0]["level"]) == (0, 13, "minor")
    assert found["orphans"]["files"] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["health", "lake.ns.nothing"], 3, "no_such_table"),
        (["health", "elsewhere.ns.t"], 2, "catalog_not_configured"),
        (["optimize", "lake.ns.nothing"], 3, "no_such_table"),
        (["optimize", "lake.ns.events", "--sort", "colour"], 2, "no_such_column"),
        (["optimize", "lake.ns.events", "--sort", "id sideways"], 2, "sort_unreadable"),
        (["optimize", "lake.ns.events", "--sort", "table"], 2, "no_sort_order"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_queued(
    catalog: Catalog, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, words: str
) -> None:
    got, document, said = answer(capsys, *arguments)
    assert (got, document["error"]["code"]) == (code, words)
    assert "hint:" in said


def test_a_dry_run_prints_the_plan_and_changes_nothing(
    catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    before = catalog.load_table(IDENTIFIER).metadata_location
    code, found, _ = answer(capsys, "optimize", "lake.ns.events", "--dry-run")
    assert code == 0
    assert [(task["level"], task["files"], task["partitions"]) for task in found["tasks"]] == [
        ("minor", 13, ["month=1"])
    ]
    assert catalog.load_table(IDENTIFIER).metadata_location == before
    assert answer(capsys, "ps", "--all")[1] == []


def test_T16_no_wait_queues_the_same_again_joins_and_another_is_refused_while_the_first_is_live(
    catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    code, process, _ = answer(capsys, "optimize", "lake.ns.events", "--no-wait")
    assert (code, process["state"], process["kind"]) == (0, "PENDING", "optimize")
    code, joined, _ = answer(capsys, "optimize", "lake.ns.events", "--no-wait")
    assert (code, joined["id"]) == (0, process["id"])
    code, refused, _ = answer(capsys, "optimize", "lake.ns.events", "--full", "--no-wait")
    assert (code, refused["error"]["code"]) == (4, "locked")
    assert process["id"] in refused["error"]["message"]


def test_a_table_without_a_snapshot_is_left_alone(
    catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    catalog.create_table(("ns", "fresh"), catalog.load_table(IDENTIFIER).schema())
    code, found, _ = answer(capsys, "optimize", "lake.ns.fresh", "--dry-run")
    assert (code, found["tasks"], found["nothing"]) == (
        0, [], "nothing to do: table lake.ns.fresh has no snapshot yet",
    )  # fmt: skip
