"""What an executor stages is what the server has: all of it, exactly, or an error."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from executor_child import ExecutorChild
from servers import PASSWORD, TIMEZONE, WITH_UUID, Place

from calve.clickhouse.pins.pin import Pinned
from calve.clickhouse.server.source import ServerOptions, ServerSource
from calve.destination.plan import Relation
from support.clickhouse_front import ClickHouseFront, FrontOptions
from support.network_proxy import Fault, Mode, NetworkProxy
from support.programs import free_ports

pytestmark = pytest.mark.services

OLD_TYPES = {
    "u8": ("UInt8", "toUInt8(number)"),
    "u64": ("UInt64", "18446744073709551615 - number"),
    "i64": ("Int64", "toInt64(number) - 9223372036854775807 - 1"),
    "f64": ("Float64", "number = 3 ? nan : number / 3"),
    "dec": ("Decimal(18, 4)", "toDecimal64(number, 4)"),
    "str": ("String", "concat('ä\\n\\0', toString(number))"),
    "fix": ("FixedString(5)", "toFixedString(toString(number), 5)"),
    "nul": ("Nullable(Int32)", "number % 2 ? NULL : toInt32(number)"),
    "enu": ("Enum8('a' = 1, 'b\\'c' = 2)", "number % 2 ? 'a' : 'b\\'c'"),
    "arr": ("Array(String)", "[toString(number), '']"),
    "nest": ("Array(Array(UInt8))", "[[toUInt8(number)], []]"),
    "uid": ("UUID", "toUUID('61f0c404-5cb3-11e7-907b-a6006ad3dba0')"),
    "dat": ("Date", "toDate('2024-01-15') + number"),
    "dt": ("DateTime", "toDateTime('2024-03-10 01:30:00') + number * 1800"),
    "dtz": ("DateTime('Asia/Kathmandu')", "toDateTime('2024-03-10 01:30:00', 'Asia/Kathmandu') + number"),
}
NEW_TYPES = {
    "lcs": ("LowCardinality(String)", "toString(number % 3)"),
    "lcn": ("LowCardinality(Nullable(String))", "number % 2 ? NULL : 'x'"),
    "map": ("Map(String, Array(UInt8))", "map('k', [toUInt8(number)])"),
    "tup": ("Tuple(a UInt8, b Nullable(String))", "tuple(toUInt8(number), NULL)"),
    "dt6": ("DateTime64(6, 'UTC')", "toDateTime64('1925-01-15 00:00:00.123456', 6, 'UTC') + number"),
    "dt9": ("DateTime64(9)", "toDateTime64('2024-01-15 00:00:00.123456789', 9)"),
    "d32": ("Date32", "toDate32('1925-01-15') + number"),
    "i256": ("Int256", "toInt256(number) - 5"),
    "dec76": ("Decimal(76, 10)", "toDecimal256(number, 10)"),
    "ip4": ("IPv4", "toIPv4('10.0.0.1')"),
    "ip6": ("IPv6", "toIPv6('::1')"),
    "boo": ("Bool", "number % 2 = 0"),
    "jsn": ("JSON", "concat('{\"a\": ', toString(number), '}')"),
    "vari": (
        "Variant(String, UInt64)",
        "if(number % 2, number::Variant(String, UInt64), 'x'::Variant(String, UInt64))",
    ),
    "dyn": ("Dynamic", "number::Dynamic"),
    "pnt": ("Point", "(number, 1.5)"),
    "saf": ("SimpleAggregateFunction(sum, UInt64)", "number"),
}


@pytest.mark.parametrize("age, types", [("today", OLD_TYPES | NEW_TYPES), ("old", OLD_TYPES)])
def test_every_type_comes_as_it_is(
    request: pytest.FixtureRequest, executor: ExecutorChild, age: str, types: dict[str, tuple[str, str]]
) -> None:
    place: Place = request.getfixturevalue(age)
    columns = ", ".join(f"`{name}` {kind}" for name, (kind, _) in types.items())
    values = ", ".join(expression for _, expression in types.values())
    table = place.table(
        f"id UInt64, {columns}",
        "MergeTree ORDER BY id",
        f"INSERT INTO {{t}} SELECT number, {values} FROM numbers(20)",
    )
    pinned = place.pin(table, partitions=("all",))
    select = ", ".join(AS_TEXT.get(name, f"toString(`{name}`)") + f" AS `{name}`" for name in ("id", *types))
    answer = executor.read(place.source(), pinned, select)
    assert answer["rows"] == place.ask(f"SELECT {select} FROM {table}")


# Where versions write the same value in different words, or toString has none.
AS_TEXT = {
    "dec": "toInt64(dec * 10000)",
    "jsn": "toJSONString(jsn)",
    "arr": "arr",
    "nest": "nest",
    "map": "map",
    "tup": "tup",
}


@pytest.mark.parametrize("age", ["today", "old"])
def test_P3_moments_are_not_shifted_by_the_zone_of_server_column_or_executor(
    request: pytest.FixtureRequest, executor: ExecutorChild, age: str
) -> None:
    """The server's zone has half an hour and summer time; the executor's is another."""
    place: Place = request.getfixturevalue(age)
    table = place.table(
        "id UInt64, plain DateTime, zoned DateTime('Asia/Kathmandu')",
        "MergeTree ORDER BY id",
        "INSERT INTO {t} SELECT number, toDateTime(1710000000 + number * 1800), "
        "toDateTime(1710000000 + number * 1800) FROM numbers(100)",
    )
    pinned = place.pin(table, partitions=("all",))
    assert pinned.settings["session_timezone"] == TIMEZONE
    select = "toUnixTimestamp(plain) AS p, toUnixTimestamp(zoned) AS z, toString(plain) AS t, id"
    answer = executor.read(place.source(), pinned, select)["rows"]
    assert [(row["p"], row["z"]) for row in answer] == [(1710000000 + i * 1800,) * 2 for i in range(100)]
    assert [row["t"] for row in answer] == [
        row["t"] for row in place.ask(f"SELECT toString(plain) AS t FROM {table} ORDER BY id")
    ]


def test_names_with_quotes_and_dots_are_read(place: Place, executor: ExecutorChild) -> None:
    table = place.table(
        "`a b` UInt8, `c``d` UInt8, `e'f` UInt8, `ü` UInt8",
        "MergeTree ORDER BY `a b`",
        "INSERT INTO {t} VALUES (1, 2, 3, 4)",
    )
    pinned = place.pin(table, partitions=("all",))
    assert executor.read(place.source(), pinned)["rows"] == [{"a b": 1, "c`d": 2, "e'f": 3, "ü": 4}]


def test_defaults_come_as_values_and_an_alias_only_where_the_filter_names_it(
    today: Place, executor: ExecutorChild
) -> None:
    table = today.table(
        "a UInt64, m UInt64 MATERIALIZED a * 2, d UInt64 DEFAULT a + 1, twice UInt64 ALIAS a * 3",
        "MergeTree ORDER BY a",
        "INSERT INTO {t} (a) SELECT number FROM numbers(3)",
        "ALTER TABLE {t} ADD COLUMN late String DEFAULT concat('x', toString(a))",
    )
    pinned = today.pin(table, partitions=("all",))
    assert executor.read(today.source(), pinned)["rows"][2] == {"a": 2, "m": 4, "d": 3, "late": "x2"}
    filtered = replace(pinned, relation=replace(pinned.relation, where="twice > 3"))
    assert executor.read(today.source(), filtered, "groupArray(twice) AS t")["rows"] == [{"t": [0, 3, 6]}]


@pytest.mark.parametrize("uncompressed", [0, 2**60])
def test_staged_rows_are_compressed_only_where_room_is_short_or_nobody_knows(
    place: Place, executor: ExecutorChild, uncompressed: int
) -> None:
    table = place.table("id UInt64", "MergeTree ORDER BY id", "INSERT INTO {t} SELECT 7 FROM numbers(100000)")
    pinned = place.pin(table, partitions=("all",))
    assert [part.uncompressed for part in pinned.parts] == [800_000]
    short = replace(pinned, parts=[replace(part, uncompressed=uncompressed) for part in pinned.parts])
    plenty, little = (executor.read(place.source(), one, "sum(id) AS sum") for one in (pinned, short))
    assert (plenty["compressed"], little["compressed"]) == (0, 1)
    assert plenty["rows"] == little["rows"] == [{"sum": 700_000}]


def through(proxy: NetworkProxy, pinned: Pinned) -> Pinned:
    detail = {**pinned.relation.detail, "replica": proxy.url}
    return replace(pinned, relation=replace(pinned.relation, detail=detail))


@pytest.mark.parametrize("kind", ["cut_answer_after_bytes", "reset_answer_after_bytes"])
def test_a_stream_cut_at_any_kilobyte_is_an_error_and_never_a_short_part(
    place: Place, executor: ExecutorChild, kind: str
) -> None:
    pinned = place.pin(place.numbers(parts=1, rows=1500))
    source = place.source()
    with NetworkProxy(int(place.url.rsplit(":", 1)[1])) as proxy:
        moved = through(proxy, pinned)
        assert executor.read(source, moved, "count() AS n")["rows"] == [{"n": 1500}]
        assert proxy.counts.connections == 1  # the query runs once, not once more for its headers
        size = proxy.counts.answer_bytes
        for position in (*range(0, size, 1024), size - 6):
            proxy.set(Fault(**{kind: position}))  # type: ignore[arg-type]
            error = executor.read(source, moved, "count() AS n", read_seconds=5)["error"]
            assert error["retryable"], (position, error)
            assert error["code"] in ("source_cut_off", "source_unreachable"), (position, error)
        proxy.heal()
        assert executor.read(source, moved, "count() AS n")["rows"] == [{"n": 1500}]


def test_a_stream_cut_between_two_blocks_is_an_error(today: Place, executor: ExecutorChild) -> None:
    """Whole blocks, well-formed to the last byte, only too few of them: the count tells."""
    pinned = today.pin(today.numbers(parts=1, rows=200_000))
    part = pinned.parts[0]
    longer = replace(pinned, parts=(replace(part, rows=part.rows + 1),))
    error = executor.read(today.source(), longer, "1")["error"]
    assert (error["code"], error["retryable"]) == ("source_cut_off", True)
    assert "200000 of 200001 rows came" in error["message"]


@pytest.mark.timeout(60)
def test_a_stream_that_falls_silent_while_the_server_answers_is_given_up_and_counts(
    place: Place, executor: ExecutorChild
) -> None:
    """An outage would not count: a part on which the server itself loops would be read for a day."""
    pinned = place.pin(place.numbers(parts=1, rows=20_000))
    with NetworkProxy(int(place.url.rsplit(":", 1)[1]), fault=Fault(hang_answer_after_bytes=4096)) as proxy:
        error = executor.read(place.source(), through(proxy, pinned), "1", read_seconds=1)["error"]
    assert (error["code"], error["retryable"], error["service"]) == ("source_stalled", True, ""), error
    assert f"reading part {pinned.parts[0].name}: " in error["message"]


@pytest.mark.timeout(60)
def test_a_query_that_the_server_works_on_without_a_row_is_ended_there_and_not_tried_again(
    place: Place, executor: ExecutorChild
) -> None:
    """As on a damaged part: the same bytes would take as long again. `limits.stall_seconds` is the bound."""
    pinned = place.pin(place.numbers(parts=1, rows=3))
    detail = {**pinned.relation.detail, "where": "sleepEachRow(1) = 0"}
    slow = replace(pinned, relation=replace(pinned.relation, detail=detail))
    error = executor.read(place.source(), slow, "1", read_seconds=1)["error"]
    assert (error["code"], error["retryable"]) == ("source_stalled", False), error
    assert f"reading part {pinned.parts[0].name}: stopped after 1 s" in error["message"]
    with place.source().visit() as session:
        left = session.rows("SELECT query FROM system.processes WHERE query LIKE '%sleepEachRow(1)%' AND NOT is_cancelled"
                            " AND query NOT LIKE '%system.processes%'")  # fmt: skip
    assert left == []


def test_a_stream_may_be_silent_as_long_as_an_attempt_may_be() -> None:
    options = ServerOptions(url="http://127.0.0.1:1", stall_seconds=7, query_seconds=3)
    relation = Relation(mode="live")
    assert ServerSource("main", options).reader(relation).access["read_seconds"] == "7"


@pytest.mark.timeout(60)
def test_a_server_that_swallows_the_request_is_given_up(place: Place, executor: ExecutorChild) -> None:
    pinned = place.pin(place.numbers())
    with NetworkProxy(int(place.url.rsplit(":", 1)[1]), fault=Fault(mode=Mode.BLACK_HOLE)) as proxy:
        error = executor.read(place.source(), through(proxy, pinned), "1", read_seconds=1)["error"]
    assert (error["retryable"], error["service"]) == (True, "source:main")


def test_a_dead_server_is_unavailable(today: Place, executor: ExecutorChild) -> None:
    pinned = today.pin(today.numbers())
    (port,) = free_ports(1)
    gone = {**pinned.relation.detail, "replica": f"http://127.0.0.1:{port}"}
    error = executor.read(
        today.source(), replace(pinned, relation=replace(pinned.relation, detail=gone)), "1"
    )["error"]
    assert (error["code"], error["service"]) == ("source_unreachable", "source:main")


def test_a_server_killed_in_mid_read_and_started_again_is_read_to_the_end(
    front: Callable[..., ClickHouseFront], executor: ExecutorChild
) -> None:
    started = front(FrontOptions(stand_ins=WITH_UUID))
    source = ServerSource("main", ServerOptions(url=started.url))
    with source.visit() as session:
        session.execute("CREATE DATABASE db")
        session.execute("CREATE TABLE db.t (a UInt64, s String) ENGINE = MergeTree ORDER BY a")
        session.execute("INSERT INTO db.t SELECT number, repeat('x', 100) FROM numbers(200000)")
    pinned = Place(url="", data=Path(), modern=True).pin("db.t", source=source, partitions=("all",))
    rows = sum(part.rows for part in pinned.parts)
    with NetworkProxy(started.port, fault=Fault(hang_answer_after_bytes=1_000_000)) as proxy:
        moved = through(proxy, pinned)
        started.kill()
        assert executor.read(source, moved, "1", read_seconds=2)["error"]["retryable"]
        started.start()
        proxy.heal()
        assert executor.read(source, moved, "count() AS n")["rows"] == [{"n": rows}] == [{"n": 200_000}]


@pytest.mark.parametrize("tagged", [True, False])
def test_an_exception_in_mid_stream_fails_the_task_with_the_server_s_words_or_a_cut(
    front: Callable[..., ClickHouseFront], executor: ExecutorChild, tagged: bool
) -> None:
    """A memory limit, say, that strikes after the first blocks were sent."""
    failing = "throwIf(_part_offset > 150000) = 0 AND _part ="
    stand_ins = {**WITH_UUID, "WHERE _part =": f"WHERE {failing}"}
    clean = front(FrontOptions(stand_ins=WITH_UUID))
    source = ServerSource("main", ServerOptions(url=clean.url))
    with source.visit() as session:
        session.execute("CREATE DATABASE db")
        session.execute("CREATE TABLE db.t (a UInt64) ENGINE = MergeTree ORDER BY a")
        session.execute("INSERT INTO db.t SELECT number FROM numbers(200000)")
    pinned = Place(url="", data=Path(), modern=True).pin("db.t", source=source, partitions=("all",))
    clean.kill()
    bad = ClickHouseFront(clean.folder, FrontOptions(stand_ins=stand_ins, tagged_exceptions=tagged))
    bad.start()
    try:
        detail = {**pinned.relation.detail, "replica": bad.url}
        answer = executor.read(source, replace(pinned, relation=replace(pinned.relation, detail=detail)), "1")
    finally:
        bad.kill()
    assert answer["error"]["code"] in ("clickhouse_395", "source_cut_off", "source_unreachable"), answer


def test_P9_a_password_changed_meanwhile_fails_the_task_at_once(
    place: Place, executor: ExecutorChild
) -> None:
    pinned = place.pin(place.numbers())
    error = executor.read(place.source(password="other"), pinned, "1")["error"]
    assert (error["code"], error["retryable"]) == ("authentication", False)
    assert "password_file" in error["hint"]


def test_a_pin_that_was_released_fails_the_task_clearly(place: Place, executor: ExecutorChild) -> None:
    pinned = place.pin(place.numbers())
    place.run(f"DROP TABLE `calve_pins`.`{pinned.relation.detail['table']}`")
    error = executor.read(place.source(), pinned, "1")["error"]
    assert error["code"] == "clickhouse_60"
    assert PASSWORD not in str(error)
