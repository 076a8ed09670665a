"""A clone's parts are named after the source's, also when a merge came in between."""

from typing import Any

import pytest

from calve.clickhouse.engine.ddl import explicit
from calve.clickhouse.server.parts import ListedPart, matched
from calve.clickhouse.sql.create_table import EngineClause, columns_with_ttl
from calve.clickhouse.tables import TableInfo
from calve.model.errors import TemporaryError

TABLE = TableInfo(
    source="main",
    database="db",
    name="t",
    uuid="",
    identity="",
    engine="MergeTree",
    clause=EngineClause(name="MergeTree"),
    columns=(),
    partition_key="",
    sorting_key="",
    primary_key="",
    sampling_key="",
    create_query="",
    storage_policy="",
    data_paths=(),
    timezone="UTC",
    version="",
)


def part(name: str, **changes: Any) -> ListedPart:
    partition, low, high, level = name.split("_")
    values: dict[str, Any] = {
        "name": name,
        "partition_id": partition,
        "rows": 10,
        "bytes": 100,
        "min_block": int(low),
        "max_block": int(high),
        "level": int(level),
        "mutation": 0,
        "data_version": int(low),
        "disk": "default",
        "hash": f"hash-{name}",
        "masked": False,
        "active": True,
    }
    return ListedPart(**values | changes)


def names(pairs: list[tuple[ListedPart, ListedPart]]) -> list[tuple[str, str]]:
    return [(mine.name, origin.name) for mine, origin in pairs]


def test_parts_are_matched_by_what_they_hold() -> None:
    source = [part("p_1_1_0"), part("p_5_5_0")]
    cloned = [part("p_2_2_0", hash="hash-p_5_5_0"), part("p_3_3_0", hash="hash-p_1_1_0")]
    assert names(matched(TABLE, source, source, cloned)) == [("p_2_2_0", "p_5_5_0"), ("p_3_3_0", "p_1_1_0")]


def test_a_merge_after_the_clone_is_seen_through_the_parts_it_left() -> None:
    before = [part("p_1_1_0"), part("p_2_2_0")]
    after = [part("p_1_1_0", active=False), part("p_1_2_1"), part("p_2_2_0", active=False)]
    cloned = [part("p_1_1_0", hash="hash-p_1_1_0"), part("p_2_2_0", hash="hash-p_2_2_0")]
    assert names(matched(TABLE, before, after, cloned)) == [("p_1_1_0", "p_1_1_0"), ("p_2_2_0", "p_2_2_0")]


def test_two_parts_of_the_same_rows_are_both_there() -> None:
    source = [part("p_1_1_0", hash="same"), part("p_2_2_0", hash="same")]
    assert names(matched(TABLE, source, source, source)) == [("p_1_1_0", "p_1_1_0"), ("p_2_2_0", "p_2_2_0")]


def test_a_part_that_the_source_never_showed_is_tried_again() -> None:
    with pytest.raises(TemporaryError) as moving:
        matched(TABLE, [part("p_1_1_0")], [part("p_1_1_0")], [part("p_1_1_0", hash="stranger")])
    assert moving.value.code == "altered_meanwhile"


def test_a_part_too_few_is_tried_again() -> None:
    source = [part("p_1_1_0"), part("p_2_2_0")]
    with pytest.raises(TemporaryError):
        matched(TABLE, source, source, source[:1])


def test_without_hashes_the_source_must_have_stood_still() -> None:
    before, after = [part("p_1_1_0", hash="")], [part("p_1_1_0", hash=""), part("p_2_2_0", hash="")]
    assert matched(TABLE, before, before, before)
    with pytest.raises(TemporaryError):
        matched(TABLE, before, after, after)


def test_D12_columns_with_a_ttl_are_found_in_any_ddl() -> None:
    create = (
        "CREATE TABLE d.t (`a` UInt64 DEFAULT if(1, 2, 3), `TTL` String, `b``c` String TTL day + 1, "
        "`d` Tuple(x UInt8, y String) CODEC(ZSTD(1)) TTL day + toIntervalDay(3), INDEX i a TYPE minmax, "
        "PROJECTION p (SELECT a ORDER BY a)) ENGINE = MergeTree ORDER BY a TTL day + 1"
    )
    assert columns_with_ttl(create) == ["b`c", "d"]


@pytest.mark.parametrize(
    "given, said",
    [
        ("DateTime", "DateTime('Asia/Tokyo')"),
        ("DateTime('UTC')", "DateTime('UTC')"),
        ("Nullable(DateTime64(3))", "Nullable(DateTime64(3, 'Asia/Tokyo'))"),
        ("Map(String, Array(DateTime))", "Map(String, Array(DateTime('Asia/Tokyo')))"),
        ("Tuple(a DateTime, b UInt8)", "Tuple(a DateTime('Asia/Tokyo'), b UInt8)"),
        ("LowCardinality(String)", "LowCardinality(String)"),
        ("NoSuchType(DateTime)", "NoSuchType(DateTime)"),
    ],
)
def test_P3_a_type_says_the_zone_it_means(given: str, said: str) -> None:
    assert explicit(given, "Asia/Tokyo") == said
