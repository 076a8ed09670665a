"""What docs/types.md says of sorted files and ClickHouse's reader, which takes files that say they are
sorted for one sorted stream."""

from pathlib import Path

import pytest

from calve.app.config.load import load_config
from calve.model.errors import UsageError
from calve.model.states import ProcessState
from support.local_runner import LocalRunner
from support.place import Place

ONE_STREAM = "ORDER BY id SETTINGS max_threads = 1"  # file after file


def _switch(place: Place, value: str) -> None:
    config = place.folder / "calve.toml"
    entry = "[catalog.lake]\n"
    config.write_text(config.read_text().replace(entry, f'{entry}"calve.sort-order-ids" = {value}\n'))


def _export(place: Place) -> list[int | None]:
    """Five rows, a file each, whose order is not that of the partitions; the sort orders the files tell."""
    place.execute(
        "CREATE DATABASE db",
        "CREATE TABLE db.t (id Int32, d Date) ENGINE = MergeTree ORDER BY id",
        "INSERT INTO db.t SELECT number, '2024-01-01'::Date + (4 - number) * 40 FROM numbers(5)",
    )
    [process] = place.export("db.t", to="lake.ns.t", partition_by="month(d)")
    assert process.state is ProcessState.COMPLETED, process.error
    return [task.file.sort_order_id for task in place.table("lake.ns.t").scan().plan_files()]


def _ids(place: Place, tail: str) -> list[int]:
    return [row["id"] for row in place.read_by_clickhouse("id", "lake.ns.t", tail)]


def test_sorted_files_say_so_and_clickhouse_sorts_them_where_it_is_told_to(
    tmp_path: Path, runner: LocalRunner
) -> None:
    place = Place(tmp_path, runner)
    _switch(place, "true")
    assert _export(place) == [1] * 5
    assert _ids(place, f"{ONE_STREAM}, optimize_read_in_order = 0") == [0, 1, 2, 3, 4]


def test_files_do_not_say_so_by_default_and_clickhouse_sorts_them_as_it_is(
    tmp_path: Path, runner: LocalRunner
) -> None:
    place = Place(tmp_path, runner)
    assert _export(place) == [None] * 5
    assert not place.table("lake.ns.t").sort_order().is_unsorted
    assert 0 in {order.order_id for order in place.table("lake.ns.t").metadata.sort_orders}
    assert _ids(place, ONE_STREAM) == [0, 1, 2, 3, 4]
    assert _ids(place, "ORDER BY id LIMIT 2 SETTINGS max_threads = 1") == [0, 1]


def test_the_switch_is_true_or_false(tmp_path: Path, runner: LocalRunner) -> None:
    place = Place(tmp_path, runner)
    _switch(place, '"perhaps"')
    with pytest.raises(UsageError, match="is true or false"):
        load_config(tmp_path / "calve.toml", environ={}, cwd=tmp_path)
