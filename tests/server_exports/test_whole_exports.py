"""Whole exports from servers old and new: what the lake has is what the server had at the pin."""

from collections.abc import Callable
from pathlib import Path

import pytest
from served import ROWS, Served, at_the_source, events, in_the_lake, insert

from calve.destination.plan import ExportPlan
from calve.model.errors import NotFoundError, RefusedError
from calve.model.process import Process
from calve.model.states import ProcessState
from support.local_runner import LocalRunner
from support.server_place import MeddlingRunner, ServerPlace

pytestmark = pytest.mark.services


def plan_of(place: ServerPlace, process: Process) -> ExportPlan:
    with place.app() as app:
        text = app.store.plan(process.id)
    assert text is not None
    return ExportPlan.from_json(text)


def test_rows_read_back_equal_the_server_s_and_nothing_is_left_there(place: ServerPlace) -> None:
    table = events(place)
    [process] = place.export(table, "202401")
    assert process.state is ProcessState.COMPLETED, process.error
    assert process.rows == 2 * ROWS
    assert in_the_lake(place) == at_the_source(place, table)
    assert plan_of(place, process).relation.mode == "live"
    assert place.pins == []


def test_an_alias_that_is_named_is_computed_by_the_server(place: ServerPlace) -> None:
    table = events(place)
    place.execute(f"ALTER TABLE {table} ADD COLUMN local_day Date ALIAS toDate(at)")
    place.execute(f"ALTER TABLE {table} ADD COLUMN label String ALIAS concat(toString(id), '!')")
    [process] = place.export(table, "202401", include=("local_day", "label"))
    assert process.state is ProcessState.COMPLETED, process.error
    there = place.select(
        f"SELECT id, toString(local_day) AS d, label FROM {table} WHERE toYYYYMM(day) = 202401 ORDER BY id"
    )
    exported = place.read().sort_by("id").to_pylist()
    found = [(row["id"], str(row["local_day"]), row["label"]) for row in exported]
    assert found == [(row["id"], row["d"], row["label"]) for row in there]


def test_what_is_exported_and_unchanged_is_skipped_and_a_change_is_told(place: ServerPlace) -> None:
    table = events(place)
    assert len(place.export(table)) == 2
    assert place.export(table) == []
    place.execute(insert(table, 1, 20_000))
    assert place.export(table, "202401") == []
    [process] = place.export(table, "202401", force=True)
    assert process.state is ProcessState.COMPLETED, process.error
    assert place.read().num_rows == 5 * ROWS


@pytest.mark.parametrize("named", [True, False], ids=["part", "partition"])
def test_P17_what_repeats_its_names_after_a_reload_is_a_change(place: ServerPlace, *, named: bool) -> None:
    """A table that is not replicated numbers its blocks from 1 again once it is empty and opened anew."""
    table = events(place, 1)
    [part, _] = place.select(
        f"SELECT name FROM system.parts WHERE active AND concat(database, '.', table) = '{table}' ORDER BY name"
    )
    chosen = {"parts": (part["name"],)} if named else {}
    [process] = place.export(table, **chosen)
    assert process.state is ProcessState.COMPLETED, process.error
    with place.app() as app:
        checked = place.check(app, table, "lake.ns.events", **chosen)
        assert len(checked.unchanged) == 1 and not checked.changed
        place.execute(
            f"ALTER TABLE {table} DROP PARTITION 202401", f"DETACH TABLE {table}", f"ATTACH TABLE {table}"
        )
        place.execute(insert(table, 1, 50_000), insert(table, 1, 10_000))
        checked = place.check(app, table, "lake.ns.events", **chosen)
        assert len(checked.changed) == 1 and not checked.unchanged


def _meddle(place: ServerPlace, *statements: str) -> Callable[[], None]:
    return lambda: place.execute(*statements)


@pytest.mark.parametrize(
    "deed",
    ["DROP TABLE {table}", "ALTER TABLE {table} DROP PARTITION 202401", "OPTIMIZE TABLE {table} FINAL"],
)
def test_L4_what_happens_at_the_source_while_tasks_run_changes_nothing(
    served: Served, tmp_path: Path, runner: LocalRunner, deed: str
) -> None:
    place = served.place(tmp_path, runner)
    table = events(place)
    before = at_the_source(place, table)
    place.runner = MeddlingRunner(runner, before=_meddle(place, deed.format(table=table)))
    [process] = place.export(table, "202401")
    assert process.state is ProcessState.COMPLETED, process.error
    assert in_the_lake(place) == before
    assert place.pins == []


def test_L16_publishing_needs_nothing_from_the_source(
    served: Served, tmp_path: Path, runner: LocalRunner
) -> None:
    place = served.place(tmp_path, runner)
    table = events(place)
    before = at_the_source(place, table)
    place.runner = MeddlingRunner(runner, after=_meddle(place, f"DROP TABLE {table}"))
    [process] = place.export(table, "202401")
    assert process.state is ProcessState.COMPLETED, process.error
    assert in_the_lake(place) == before
    assert place.pins == []


def test_a_part_is_split_over_tasks_only_where_the_server_can_split_it(
    served: Served, tmp_path: Path, runner: LocalRunner
) -> None:
    place = served.place(tmp_path, runner, CALVE_LIMITS__TASK_BYTES_MB="1")
    table = events(place, 3)
    place.execute(
        f"INSERT INTO {table} (id, day, note) SELECT number, toDate('2024-01-01'),"
        " hex(SHA256(toString(number))) FROM numbers(40000)"
    )
    [process] = place.export(table, "202401")
    assert process.state is ProcessState.COMPLETED, process.error
    plan = plan_of(place, process)
    assert (len(plan.tasks) > 1) is served.modern
    assert place.read().num_rows == 40_000
    assert sorted(int(row["id"]) for row in place.read().select(["id"]).to_pylist()) == list(range(40_000))


def test_a_user_who_may_only_read_exports_and_a_merge_fails_the_export_clearly(
    served: Served, tmp_path: Path, runner: LocalRunner
) -> None:
    place = served.place(tmp_path, runner, user="reader")
    table = events(place)
    [process] = place.export(table, "202401")
    assert process.state is ProcessState.COMPLETED, process.error
    assert in_the_lake(place) == at_the_source(place, table)
    assert "may only read" in " ".join(plan_of(place, process).notes)

    place.runner = MeddlingRunner(
        runner, before=_meddle(place, f"OPTIMIZE TABLE {table} PARTITION 202402 FINAL")
    )
    [process] = place.export(table, "202402")
    assert process.state is ProcessState.FAILED
    assert process.error is not None and process.error.code == "part_gone"
    assert place.read().num_rows == 2 * ROWS


def test_a_user_without_grants_to_clone_exports_too(
    today: Served, tmp_path: Path, runner: LocalRunner
) -> None:
    place = today.place(tmp_path, runner, user="selecter")
    table = events(place)
    [process] = place.export(table, "202401")
    assert process.state is ProcessState.COMPLETED, process.error
    assert in_the_lake(place) == at_the_source(place, table)


def test_single_parts_and_a_filter_are_exported(place: ServerPlace) -> None:
    table = events(place)
    with place.visit() as session:
        names = [part.name for part in session.parts(session.describe(*table.split(".")), ["202401"])]
    if len(names) == 2:  # a server of old may have merged them meanwhile
        [process] = place.export(table, parts=(names[1],), to="lake.ns.parts")
        assert process.state is ProcessState.COMPLETED, process.error
        assert place.read("lake.ns.parts").num_rows == ROWS
    [process] = place.export(table, "202401", where="id < 10", to="lake.ns.some")
    assert process.state is ProcessState.COMPLETED, process.error
    assert sorted(int(row["id"]) for row in place.read("lake.ns.some").to_pylist()) == list(range(10))


def test_a_distributed_table_is_refused_naming_its_shards(
    old: Served, tmp_path: Path, runner: LocalRunner
) -> None:
    place = old.place(tmp_path, runner)
    table = events(place)
    database = table.split(".")[0]
    place.execute(
        f"CREATE TABLE {database}.everywhere AS {table} ENGINE = Distributed(two_shards, {database}, events)"
    )
    with pytest.raises(RefusedError, match=r"events at 127\.0\.0\.1, .*events at 127\.0\.0\.2"):
        place.export(f"{database}.everywhere")


def test_a_table_that_is_not_there_is_named(place: ServerPlace) -> None:
    table = events(place)
    with pytest.raises(NotFoundError) as missing:
        place.export(f"{table}s")
    assert table in missing.value.hint


def test_W7_pending_mutations_are_refused_or_ignored_as_asked(
    today: Served, tmp_path: Path, runner: LocalRunner
) -> None:
    place = today.place(tmp_path, runner)
    table = events(place)
    before = at_the_source(place, table)
    place.execute(
        f"SYSTEM STOP MERGES {table}",
        f"ALTER TABLE {table} UPDATE score = -1 WHERE 1 SETTINGS mutations_sync = 0",
    )
    with pytest.raises(RefusedError, match="unfinished mutations"):
        place.export(table, "202401")
    [process] = place.export(table, "202401", mutations="ignore")
    assert process.state is ProcessState.COMPLETED, process.error
    assert in_the_lake(place) == before
    assert "is ignored" in " ".join(plan_of(place, process).notes)
