"""What a clone holds stays as it was, whatever happens to the table."""

from collections.abc import Callable
from pathlib import Path

import pytest
from executor_child import ExecutorChild
from servers import WITH_UUID, Place, pin_name

from calve.clickhouse.pins.pin import Pinned
from calve.clickhouse.server import clone
from calve.clickhouse.server.parts import partitions
from calve.clickhouse.server.source import ServerOptions, ServerSource
from calve.clickhouse.server.tables import describe
from calve.destination.plan import Slice
from calve.model.errors import (
    NotFoundError,
    PermanentError,
    RefusedError,
    TemporaryError,
    UnavailableError,
)
from support.clickhouse_front import ClickHouseFront, FrontOptions
from support.network_proxy import Fault, NetworkProxy
from support.programs import free_ports

pytestmark = pytest.mark.services
SUMS = "count() AS n, sum(a) AS total"


def expected(rows: int) -> list[dict[str, int]]:
    return [{"n": rows, "total": rows * (rows - 1) // 2}]


def test_every_row_of_the_partition_comes_once(place: Place, executor: ExecutorChild) -> None:
    pinned = place.pin(place.numbers(parts=3, rows=70_000))
    assert executor.read(place.source(), pinned, SUMS)["rows"] == expected(210_000)
    assert [part.rows for part in pinned.parts] == [70_000] * 3


@pytest.mark.parametrize(
    "change", ["DROP TABLE {t}", "TRUNCATE TABLE {t}", "ALTER TABLE {t} DROP PARTITION 202401"]
)
def test_L4_drop_and_truncate_do_not_wait_for_an_export_nor_change_it(
    place: Place, executor: ExecutorChild, change: str
) -> None:
    table = place.numbers()
    pinned = place.pin(table)
    place.run(change.replace("{t}", table))
    assert executor.read(place.source(), pinned, SUMS)["rows"] == expected(3000)


def test_L16_a_merge_of_the_source_changes_nothing(place: Place, executor: ExecutorChild) -> None:
    table = place.numbers()
    pinned = place.pin(table)
    if place.modern:
        place.run(f"SYSTEM START MERGES {table}")
    place.run(f"OPTIMIZE TABLE {table} PARTITION 202401 FINAL")
    assert executor.read(place.source(), pinned, SUMS)["rows"] == expected(3000)


def test_mutations_of_the_source_change_nothing(today: Place, executor: ExecutorChild) -> None:
    table = today.numbers()
    pinned = today.pin(table)
    today.run(f"ALTER TABLE {table} DELETE WHERE a < 100 SETTINGS mutations_sync = 0")
    assert executor.read(today.source(), pinned, SUMS)["rows"] == expected(3000)


def test_D5_a_pin_is_taken_once_under_its_name(place: Place) -> None:
    table, name = place.numbers(), pin_name()
    place.pin(table, name)
    with pytest.raises(TemporaryError) as refused:
        place.pin(table, name)
    assert refused.value.code == "pin_taken"
    with place.source().visit() as session:
        found = session.rows(f"SELECT count() AS n FROM {clone.pin_table(name).sql}")
    assert found == [{"n": 3000}]


def test_D5_replacing_a_partition_twice_doubles_nothing(place: Place) -> None:
    """The statement that fills a clone may be sent again after a lost answer."""
    table, name = place.numbers(), pin_name()
    place.pin(table, name)
    pin = clone.pin_table(name).sql
    place.run(f"ALTER TABLE {pin} REPLACE PARTITION ID '202401' FROM {table}")
    assert place.ask(f"SELECT count() AS n FROM {pin}") == [{"n": 3000}]


def test_D6_parts_are_listed_from_the_pin_and_not_from_the_table(
    place: Place, executor: ExecutorChild
) -> None:
    table, name = place.numbers(), pin_name()
    pinned = place.pin(table, name)
    there = {
        row["name"]
        for row in place.ask(
            f"SELECT name FROM system.parts WHERE active AND database = 'calve_pins' AND table = '{name}'"
        )
    }
    assert {part.path for part in pinned.parts} == there


def test_the_content_of_a_pin_is_that_of_the_partition(place: Place) -> None:
    """A clone numbers its blocks anew; the id must be the source's, or all would look changed."""
    table = place.numbers()
    database, short = table.split(".")
    with place.source().visit() as session:
        [partition] = partitions(session, describe(session, database, short))
    pinned = place.pin(table)
    assert pinned.partitions[0].content == partition.content
    assert (pinned.partitions[0].rows, partition.rows) == (3000, 3000)


def test_D12_a_clone_inherits_neither_the_table_s_nor_a_column_s_ttl(
    today: Place, executor: ExecutorChild
) -> None:
    table = today.table(
        "a UInt64, s String TTL day + INTERVAL 1 DAY, day Date",
        "MergeTree PARTITION BY toYYYYMM(day) ORDER BY a TTL day + INTERVAL 1 DAY "
        "SETTINGS merge_with_ttl_timeout = 0",
        "INSERT INTO {t} SELECT number, 'kept', toDate('2024-01-15') FROM numbers(1000)",
        "INSERT INTO {t} SELECT number, 'kept', toDate('2024-01-15') FROM numbers(1000)",
    )
    name = pin_name()
    pinned = today.pin(table, name)
    # Merging by force is what TTL waits for: with a TTL left, all rows would go now.
    today.run(f"SYSTEM START MERGES {clone.pin_table(name).sql}")
    [row] = today.ask(f"SELECT create_table_query AS text FROM system.tables WHERE name = '{name}'")
    assert "TTL" not in str(row["text"]).replace("merge_with_ttl", "").replace("_ttl_", "").replace(
        "ttl_only", ""
    )
    assert executor.read(today.source(), pinned, "count() AS n, countIf(s = 'kept') AS kept")["rows"] == [
        {"n": 2000, "kept": 2000}
    ]


def test_a_clone_merges_nothing_by_itself_also_after_a_restart(today: Place) -> None:
    """STOP MERGES ends with a restart, so it is the table's own settings that must hold."""
    many = "SETTINGS max_block_size = 10, min_insert_block_size_rows = 10, min_insert_block_size_bytes = 0"
    table = today.table(
        "a UInt64, day Date",
        "MergeTree PARTITION BY toYYYYMM(day) ORDER BY a",
        f"INSERT INTO {{t}} SELECT number, toDate('2024-01-15') FROM numbers(1000) {many}",
    )
    name = pin_name()
    pinned = today.pin(table, name)
    today.run(f"SYSTEM START MERGES {clone.pin_table(name).sql}", f"SYSTEM START MERGES {table}")
    parts = "SELECT count() AS n FROM system.parts WHERE active AND "
    while today.ask(f"{parts} database = '{table.split('.')[0]}'") == [{"n": 100}]:
        """The source, with as many parts, is merged in the background: so would the clone be."""
    assert today.ask(f"{parts} table = '{name}'") == [{"n": len(pinned.parts)}] == [{"n": 100}]


def test_a_pin_is_released_and_released_again(place: Place) -> None:
    table, name = place.numbers(), pin_name()
    pinned = place.pin(table, name)
    for _ in range(2):
        place.source().release(name, pinned.to_json())
    with place.source().visit() as session:
        assert not clone.exists(session, name)


def test_a_pin_of_which_only_the_name_is_known_is_released(place: Place) -> None:
    table, name = place.numbers(), pin_name()
    place.pin(table, name)
    place.run(f"DROP TABLE {table}")
    place.source().release(name, "")
    with place.source().visit() as session:
        assert not clone.exists(session, name)


def test_a_dead_replica_keeps_no_pin_at_another_from_being_released(today: Place) -> None:
    """Nobody knows where it was taken, so the release is not done yet; but what can go is gone."""
    table, name = today.numbers(), pin_name()
    today.pin(table, name)
    (dead,) = free_ports(1)
    both = today.source(url=f"http://127.0.0.1:{dead},{today.url.removeprefix('http://')}")
    with pytest.raises(UnavailableError):
        both.release(name, "")
    with today.source().visit() as session:
        assert not clone.exists(session, name)


def test_a_pin_of_another_kind_of_process_is_released_by_its_own_words(today: Place) -> None:
    """A backup journals its disks and no relation."""
    name = pin_name()
    today.pin(today.numbers(), name)
    today.source().release(name, '{"database": "db", "name": "t", "roots": []}')
    with today.source().visit() as session:
        assert not clone.exists(session, name)


def test_a_release_before_anything_was_taken_is_fine(place: Place) -> None:
    place.source().release(pin_name(), "")


def test_a_clone_that_is_too_large_to_drop_goes_part_by_part(front: Callable[..., ClickHouseFront]) -> None:
    """A server refuses to drop more than 50 GB at once unless told."""
    limited = {"calve-big-1` SYNC": "calve-big-1` SYNC SETTINGS max_table_size_to_drop = 1000"}
    source = ServerSource(
        "main", ServerOptions(url=front(FrontOptions(stand_ins={**WITH_UUID, **limited})).url)
    )
    with source.visit() as session:
        session.execute("CREATE DATABASE db")
        session.execute("CREATE TABLE db.t (a UInt64) ENGINE = MergeTree ORDER BY a")
        session.execute("INSERT INTO db.t SELECT number FROM numbers(10000)")
    pinned = Place(url="", data=Path(), modern=True).pin("db.t", "calve-big-1", source, partitions=("all",))
    with source.visit() as session:
        with pytest.raises(TemporaryError, match="max_"):
            session.execute("DROP TABLE `calve_pins`.`calve-big-1` SYNC")
        assert clone.names(session) == ["calve-big-1"]
        source.release("calve-big-1", pinned.to_json())
        assert clone.names(session) == []


@pytest.mark.parametrize("name", ["t", "calve-x-1`; DROP TABLE t", "../calve-x-1", "calve-x-1-2"])
def test_only_names_of_ours_are_ever_dropped(today: Place, name: str) -> None:
    with pytest.raises(PermanentError) as refused:
        today.source().release(name, "")
    assert refused.value.code == "pin_name"


def test_a_missing_partition_is_named(place: Place) -> None:
    with pytest.raises(NotFoundError, match="209901"):
        place.pin(place.numbers(), partitions=("209901",))


def test_single_parts_are_asked_for_by_the_source_s_names(place: Place, executor: ExecutorChild) -> None:
    table = place.numbers()
    names = [
        str(row["name"])
        for row in place.ask(
            f"SELECT name FROM system.parts WHERE active AND database = '{table.split('.')[0]}' ORDER BY name"
        )
    ]
    pinned = place.pin(table, parts=(names[1],))
    assert executor.read(place.source(), pinned, "min(a) AS low, max(a) AS high")["rows"] == [
        {"low": 1000, "high": 1999}
    ]
    with pytest.raises(RefusedError) as gone:
        place.pin(table, parts=("202401_77_77_0",))
    assert gone.value.code == "part_gone"


def test_P12_unfinished_mutations_are_refused_by_name(today: Place) -> None:
    table = today.numbers()
    today.run(f"ALTER TABLE {table} DELETE WHERE a < 100 SETTINGS mutations_sync = 0")
    with pytest.raises(RefusedError, match="DELETE WHERE") as refused:
        today.pin(table)
    assert refused.value.code == "unfinished_mutations"


def test_P12_mutations_are_waited_for_where_that_is_asked(today: Place, executor: ExecutorChild) -> None:
    table = today.numbers()
    today.run(f"ALTER TABLE {table} DELETE WHERE a < 100 SETTINGS mutations_sync = 0")
    with pytest.raises(TemporaryError) as slow:
        today.pin(table, source=today.source(query_seconds=3.0), wait_mutations=True)
    assert slow.value.code == "mutation_slow"
    today.run(f"SYSTEM START MERGES {table}")
    pinned = today.pin(table, wait_mutations=True)
    select = "min(a) AS low, count() AS n"
    assert executor.read(today.source(), pinned, select)["rows"] == [{"low": 100, "n": 2900}]


def test_P11_deleted_rows_do_not_come_and_ranges_stay_exact(today: Place, executor: ExecutorChild) -> None:
    table = today.numbers(parts=1, rows=30_000)
    today.run(f"SYSTEM START MERGES {table}", f"DELETE FROM {table} WHERE a % 7 = 3")
    pinned = today.pin(table)
    left = sum(1 for a in range(30_000) if a % 7 != 3)
    assert pinned.partitions[0].rows == left
    found = [
        executor.read(
            today.source(), pinned, "groupArray(a) AS a", [Slice(part=0, start=low, end=low + 10_000)]
        )
        for low in (0, 10_000, 20_000)
    ]
    values = [value for answer in found for value in answer["rows"][0]["a"]]
    assert values == [a for a in range(30_000) if a % 7 != 3]


def test_a_big_part_is_split_over_tasks_without_gap_or_overlap(today: Place, executor: ExecutorChild) -> None:
    pinned = today.pin(today.numbers(parts=1, rows=100_000))
    answers = [
        executor.read(today.source(), pinned, "groupArray(a) AS a", [Slice(part=0, start=low, end=high)])
        for low, high in ((0, 33_333), (33_333, 33_334), (33_334, 100_000))
    ]
    assert [value for answer in answers for value in answer["rows"][0]["a"]] == list(range(100_000))


def test_an_old_server_says_that_it_cannot_split_a_part(old: Place, executor: ExecutorChild) -> None:
    pinned = old.pin(old.numbers(parts=1))
    assert any("a part is read by one task" in note for note in pinned.notes)
    answer = executor.read(old.source(), pinned, "1", [Slice(part=0, start=0, end=500)])
    assert answer["error"]["code"] == "part_not_split"


def test_ranges_of_staged_rows_are_exact(today: Place, executor: ExecutorChild) -> None:
    pinned = today.pin(today.numbers(parts=2, rows=20_000))
    whole = [Slice(part=0, start=0, end=20_000), Slice(part=1, start=0, end=20_000)]
    wanted = [(0, 0, 5), (0, 19_000, 20_000), (1, 0, 20_000)]
    answer = executor.read(today.source(), pinned, "groupArray(a) AS a", whole, wanted)
    assert sorted(answer["rows"][0]["a"]) == [*range(5), *range(19_000, 40_000)]


def test_final_is_computed_over_what_the_pin_holds(today: Place, executor: ExecutorChild) -> None:
    table = today.table(
        "a UInt64, v UInt64, day Date",
        "ReplacingMergeTree(v) PARTITION BY toYYYYMM(day) ORDER BY a",
        *(f"INSERT INTO {{t}} SELECT number, {v}, toDate('2024-01-15') FROM numbers(100)" for v in (1, 3, 2)),
    )
    pinned = today.pin(table, final=True)
    assert executor.read(today.source(), pinned, "count() AS n, sum(v) AS v")["rows"] == [
        {"n": 100, "v": 300}
    ]


def test_what_is_held_survives_its_journal_entry(today: Place) -> None:
    pinned = today.pin(today.numbers())
    assert Pinned.from_json(pinned.to_json()) == pinned


def test_L30_a_pin_whose_taking_broke_at_any_statement_leaves_nothing_once_released(place: Place) -> None:
    """The connection is reset at each statement in turn: whatever was sent before, and perhaps the
    statement itself, took effect."""
    table = place.numbers(parts=1, rows=10)
    with NetworkProxy(int(place.url.rsplit(":", 1)[1])) as proxy:
        source = place.source(url=proxy.url)
        place.pin(table, pin_name(), source)
        statements = proxy.counts.connections
        for broken in range(statements):
            name = pin_name()
            number = proxy.counts.connections + 1 + broken
            proxy.set(Fault(reset_answer_after_bytes=0, only_connections=frozenset({number})))
            with pytest.raises(TemporaryError):
                place.pin(table, name, source)
            source.release(name, "")
            with place.source().visit() as session:
                assert not clone.exists(session, name), f"after statement {broken}"
