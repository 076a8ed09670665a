"""`--dry-run` prints what a real run does, and does none of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from calve.app.exports import preview_json
from calve.app.wiring import App
from calve.cli.main import run
from calve.destination.plan import ExportPlan
from calve.model.errors import RefusedError, UsageError
from calve.model.process import ProcessQuery
from calve.model.states import ProcessState
from support.place import Place


def preview(place: Place, table: str, to: str, **asked: Any) -> dict[str, Any]:
    with place.app() as app:
        return preview_json(place.check(app, table, to, **asked))


def test_the_plan_that_is_shown_is_the_plan_that_is_performed(place: Place) -> None:
    asked: dict[str, Any] = {"partitions": ("202401", "202403"), "casts": {"wide": "string"}}
    shown = preview(place, "db.events", "lake.ns.planned", **asked)
    assert (shown["rows"], shown["parts"], shown["creates_table"]) == (800, 4, True)
    with place.app() as app:
        assert app.store.processes(ProcessQuery()) == [], "a dry run queues nothing"
    assert place.frozen == [] and not (place.folder / "lake" / "warehouse").exists()
    place.settings["CALVE_LIMITS__COMMITS_PER_EXPORT"] = "1"
    asked.pop("partitions")
    [process] = place.export("db.events", "202401", "202403", to="lake.ns.planned", **asked)
    assert process.state is ProcessState.COMPLETED, process.error
    with place.app() as app:
        plan = ExportPlan.from_json(app.store.plan(process.id) or "")
    assert shown["tasks"] == [
        {
            "partition": plan.parts[task[0].part].partition_id,
            "parts": len(task),
            "rows": sum(piece.end - piece.start for piece in task),
        }
        for task in plan.tasks
    ]
    assert [(one["name"], one["type"], one["required"]) for one in shown["columns"]] == [
        (column.name, column.type, column.required) for column in plan.columns
    ]
    spec = [(field.name, field.transform) for field in plan.destination.spec]
    assert (
        [(one["name"], one["transform"]) for one in shown["partition_spec"]]
        == spec
        == [("day_month", "month")]
    )
    assert shown["notes"] == list(plan.notes)


def test_an_existing_table_is_shown_as_it_is_with_what_is_refused_skipped_and_added(place: Place) -> None:
    place.execute(
        "CREATE TABLE db.evolving (id UInt32, day Date) ENGINE = MergeTree PARTITION BY toYYYYMM(day) ORDER BY id",
        "INSERT INTO db.evolving VALUES (1, '2024-01-01')",
        "INSERT INTO db.evolving VALUES (2, '2024-02-01')",
    )
    to = "lake.ns.evolving"
    [process] = place.export("db.evolving", "202401", to=to, partition_by="bucket(4, id)")
    assert process.state is ProcessState.COMPLETED, process.error
    place.execute("ALTER TABLE db.evolving ADD COLUMN extra Array(String)")
    with pytest.raises(UsageError, match="the table has no column extra") as caught:
        preview(place, "db.evolving", to)
    assert "--evolve" in caught.value.hint
    with pytest.raises(RefusedError, match="not partitioned by"):
        preview(place, "db.evolving", to, evolve=True, partition_by="day")
    shown = preview(place, "db.evolving", to, evolve=True)
    assert [(one["column"], one["transform"]) for one in shown["partition_spec"]] == [("id", "bucket[4]")]
    assert [one["name"] for one in shown["columns"] if one["added"]] == ["extra"]
    assert [one["id"] for one in shown["partitions"]] == ["202402"]
    assert "already exported" in shown["unchanged"][0]
    [process] = place.export("db.evolving", "202402", to=to, evolve=True)
    assert process.state is ProcessState.COMPLETED, process.error
    assert place.read(to).sort_by("id").to_pylist()[1]["extra"] == []
    place.execute("INSERT INTO db.evolving VALUES (3, '2024-01-02', [])")
    assert "has changed since" in preview(place, "db.evolving", to, evolve=True)["changed"][0]


def test_a_huge_part_is_shown_split_into_ranges(place: Place) -> None:
    place.execute(
        "CREATE TABLE db.huge (id UInt64, s FixedString(64)) ENGINE = MergeTree ORDER BY id",
        "INSERT INTO db.huge SELECT number, randomFixedString(64) FROM numbers(100000)",
    )
    place.settings["CALVE_LIMITS__TASK_BYTES_MB"] = "2"
    try:
        shown = preview(place, "db.huge", "lake.ns.huge")
    finally:
        del place.settings["CALVE_LIMITS__TASK_BYTES_MB"]
    tasks = shown["tasks"]
    assert len(tasks) > 2 and {task["part"] for task in tasks} == {"all_1_1_0"}
    assert [task["to_row"] for task in tasks[:-1]] == [task["from_row"] for task in tasks[1:]]
    assert sum(task["rows"] for task in tasks) == shown["rows"] == 100_000


def command(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str
) -> tuple[int, str, str]:
    monkeypatch.chdir(place.folder)
    capsys.readouterr()
    monkeypatch.setattr(App, "source", lambda app, name: place.source)  # which the test holds open
    code = run(list(words))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_commands_print_them_for_people_and_programs(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (
        "export",
        "db.events",
        "--partition",
        "202402",
        "--to",
        "lake.ns.shown",
        "--cast",
        "wide=decimal(20,0)",
    )
    code, out, _ = command(place, capsys, monkeypatch, *words, "--dry-run")
    assert code == 0
    for text in ("400 rows", "2 parts in 1 task", "month of day as day_month", "Int128", "decimal(20, 0)",
                 "fails on values that no decimal(20, 0) can hold", "fails on bytes that are not UTF-8"):  # fmt: skip
        assert text in out, out
    code, out, _ = command(place, capsys, monkeypatch, *words, "--dry-run", "--json")
    assert code == 0 and json.loads(out)["rows"] == 400
    code, _, err = command(place, capsys, monkeypatch, *words[:6], "--dry-run")
    assert code == 2 and "wide: Int128" in err and "--cast wide=" in err
    code, _, err = command(place, capsys, monkeypatch, *words, "--where", "nosuch = 1", "--dry-run")
    assert code == 2 and "nosuch" in err
    assert not Path(place.folder / "lake" / "warehouse" / "ns" / "shown").exists()


def test_the_parts_of_a_table_are_listed_as_part_names_them(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = command(place, capsys, monkeypatch, "partitions", "db.events", "--parts", "--json")
    assert code == 0
    listed = json.loads(out)
    known = place.select(
        "SELECT name, rows FROM system.parts WHERE active AND table = 'events' ORDER BY partition_id, min_block_number"
    )
    assert [{"name": one["name"], "rows": one["rows"]} for one in listed] == known
    code, out, _ = command(place, capsys, monkeypatch, "partitions", "db.events", "--parts")
    assert code == 0 and out.startswith("PART") and known[0]["name"] in out
