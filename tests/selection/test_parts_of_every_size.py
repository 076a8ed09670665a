"""Thousands of tiny parts share tasks; one huge part is spread over many, within bounded memory."""

from pathlib import Path

from calve.destination.plan import ExportPlan
from calve.model.states import ProcessState
from support.local_runner import LocalRunner
from support.place import Place


def test_a_partition_of_two_thousand_one_row_parts(tmp_path: Path, runner: LocalRunner) -> None:
    place = Place(tmp_path, runner)
    place.execute(
        "CREATE DATABASE db",
        "CREATE TABLE db.tiny (id UInt32, s String) ENGINE = MergeTree ORDER BY id"
        " SETTINGS parts_to_throw_insert = 10000, parts_to_delay_insert = 10000,"
        " max_bytes_to_merge_at_max_space_in_pool = 1, max_bytes_to_merge_at_min_space_in_pool = 1",
        "INSERT INTO db.tiny SELECT number, toString(number) FROM numbers(2000)"
        " SETTINGS max_block_size = 1, max_insert_block_size = 1, min_insert_block_size_rows = 1,"
        " min_insert_block_size_bytes = 1, max_insert_threads = 1, max_threads = 1",
    )
    [parts] = place.select("SELECT count() AS n FROM system.parts WHERE active AND table = 'tiny'")
    assert parts["n"] == 2000
    [process] = place.export("db.tiny", to="lake.ns.tiny")
    assert process.state is ProcessState.COMPLETED, process.error
    assert sorted(place.read("lake.ns.tiny")["id"].to_pylist()) == list(range(2000))
    assert process.files == 4, "500 parts to a task, one file each"
    assert place.frozen == []


def test_P10_a_huge_part_is_split_over_tasks_and_every_row_comes_once(
    tmp_path: Path, runner: LocalRunner
) -> None:
    place = Place(tmp_path, runner, CALVE_LIMITS__TASK_BYTES_MB="4", CALVE_LIMITS__FILE_MB="2")
    place.execute(
        "CREATE DATABASE db",
        "CREATE TABLE db.huge (id UInt64, s FixedString(32)) ENGINE = MergeTree ORDER BY id",
        "INSERT INTO db.huge SELECT number, randomFixedString(32) FROM numbers(400000)"
        " SETTINGS max_insert_threads = 1, min_insert_block_size_rows = 1000000, max_block_size = 1000000",
        "DELETE FROM db.huge WHERE id % 1000 = 1",
    )
    [part] = place.select(
        "SELECT count() AS n, sum(rows) AS rows FROM system.parts WHERE active AND table = 'huge'"
    )
    assert part == {"n": 1, "rows": 400_000}
    [process] = place.export("db.huge", to="lake.ns.huge", mutations="wait")
    assert process.state is ProcessState.COMPLETED, process.error
    with place.app() as app:
        plan = ExportPlan.from_json(app.store.plan(process.id) or "")
    assert len(plan.tasks) >= 3 and all(len(task) == 1 for task in plan.tasks)
    assert process.files > len(plan.tasks), "files roll at their size"
    [source] = place.select("SELECT count() AS n, sum(id) AS ids, uniqExact(id) AS different FROM db.huge")
    found = place.read_by_clickhouse(
        "count() AS n, toUInt64(sum(id)) AS ids, uniqExact(id) AS different", "lake.ns.huge"
    )
    assert found == [source] and source["n"] == 399_600
