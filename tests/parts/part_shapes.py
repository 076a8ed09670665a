"""Parts of every shape: statements that make a table `{t}` whose parts must read as it reads."""

from dataclasses import dataclass

_FILL = (
    "INSERT INTO {t} SELECT number, toDate('2024-01-01') + number % 40, toString(number) FROM numbers({n})"
)
_PLAIN = (
    "CREATE TABLE {t} (id UInt64, d Date, s String) ENGINE = MergeTree PARTITION BY toYYYYMM(d) ORDER BY id"
)


@dataclass(frozen=True)
class Shape:
    name: str
    statements: tuple[str, ...]


def _fill(rows: int) -> str:
    return _FILL.replace("{n}", str(rows))


def _merging(engine: str) -> tuple[str, ...]:
    return (
        "CREATE TABLE {t} (id UInt64, v Int64, sign Int8, ver UInt8) "
        f"ENGINE = {engine} PARTITION BY id % 2 ORDER BY id",
        "INSERT INTO {t} SELECT number % 20, number, if(number % 3 = 0, -1, 1), number % 4 FROM numbers(100)",
        "INSERT INTO {t} SELECT number % 20, number, 1, 9 FROM numbers(30)",
        "INSERT INTO {t} SELECT number % 20, number, -1, 9 FROM numbers(10)",
    )


SHAPES = (
    Shape("compact", (_PLAIN, _fill(300), _fill(100))),
    Shape("wide", (_PLAIN + " SETTINGS min_bytes_for_wide_part = 0", _fill(300), _fill(100))),
    Shape(
        "not_adaptive", (_PLAIN + " SETTINGS index_granularity_bytes = 0, index_granularity = 64", _fill(300))
    ),
    Shape(
        "no_partition_key",
        ("CREATE TABLE {t} (id UInt64, d Date, s String) ENGINE = MergeTree ORDER BY id", _fill(50)),
    ),
    Shape(
        "no_sorting_key",
        ("CREATE TABLE {t} (id UInt64, d Date, s String) ENGINE = MergeTree ORDER BY tuple()", _fill(50)),
    ),
    Shape(
        "descending_key",
        (
            "CREATE TABLE {t} (id UInt64, d Date, s String) ENGINE = MergeTree ORDER BY (d DESC, id) "
            "SETTINGS allow_experimental_reverse_key = 1",
            _fill(200),
        ),
    ),
    Shape("deleted_rows", (_PLAIN, _fill(300), "DELETE FROM {t} WHERE id % 7 = 0")),
    Shape(
        "deleted_rows_wide",
        (_PLAIN + " SETTINGS min_bytes_for_wide_part = 0", _fill(300), "DELETE FROM {t} WHERE id < 50"),
    ),
    Shape("all_rows_deleted", (_PLAIN, _fill(30), "DELETE FROM {t} WHERE 1")),
    Shape(
        "projection",
        (
            "CREATE TABLE {t} (id UInt64, d Date, s String, PROJECTION p (SELECT s, count() GROUP BY s)) "
            "ENGINE = MergeTree PARTITION BY toYYYYMM(d) ORDER BY id",
            _fill(300),
        ),
    ),
    Shape(
        "skip_indexes",
        (
            "CREATE TABLE {t} (id UInt64, d Date, s String, INDEX i s TYPE bloom_filter GRANULARITY 1, "
            "INDEX m d TYPE minmax GRANULARITY 1) ENGINE = MergeTree ORDER BY id",
            _fill(300),
        ),
    ),
    Shape(
        "columns_added_later",
        (
            _PLAIN,
            _fill(100),
            "ALTER TABLE {t} ADD COLUMN a UInt32 DEFAULT id + 7, ADD COLUMN b Nullable(String), "
            "ADD COLUMN c Array(String) DEFAULT [s, 'x'], ADD COLUMN m UInt64 MATERIALIZED id * 2",
            "INSERT INTO {t} (id, d, s, a) VALUES (1000, '2024-01-05', 'new', 5)",
        ),
    ),
    Shape(
        "nested_added_later",
        (
            "CREATE TABLE {t} (id UInt64, n Nested(a UInt8, b String)) ENGINE = MergeTree ORDER BY id",
            "INSERT INTO {t} SELECT number, [1, 2], ['x', 'y'] FROM numbers(20)",
            "ALTER TABLE {t} ADD COLUMN `n.c` Array(UInt16)",
        ),
    ),
    Shape(
        "nested_not_flattened",
        (
            "SET flatten_nested = 0",
            "CREATE TABLE {t} (id UInt64, n Nested(a UInt8, b String)) ENGINE = MergeTree ORDER BY id",
            "INSERT INTO {t} SELECT number, [(1, 'x'), (2, 'y')] FROM numbers(20)",
            "SET flatten_nested = DEFAULT",
        ),
    ),
    Shape(
        "sparse",
        (
            _PLAIN + " SETTINGS ratio_of_defaults_for_sparse_serialization = 0.1",
            "INSERT INTO {t} SELECT number, '2024-01-01', if(number % 50 = 0, 'x', '') FROM numbers(1000)",
        ),
    ),
    Shape(
        "mutated",
        (
            _PLAIN,
            _fill(300),
            "ALTER TABLE {t} UPDATE s = 'changed' WHERE id % 3 = 0 SETTINGS mutations_sync = 2",
        ),
    ),
    Shape(
        "renamed_and_added_again",
        (
            _PLAIN + " SETTINGS min_bytes_for_wide_part = 0",
            _fill(100),
            "ALTER TABLE {t} RENAME COLUMN s TO text SETTINGS mutations_sync = 2",
            "ALTER TABLE {t} ADD COLUMN s String DEFAULT 'again'",
        ),
    ),
    Shape(
        "dropped_and_added_again",
        (
            _PLAIN,
            _fill(100),
            "ALTER TABLE {t} DROP COLUMN s SETTINGS mutations_sync = 2",
            "ALTER TABLE {t} ADD COLUMN s UInt8 DEFAULT 9",
        ),
    ),
    Shape(
        "type_changed",
        (
            "CREATE TABLE {t} (id UInt64, v UInt8) ENGINE = MergeTree ORDER BY id",
            "INSERT INTO {t} SELECT number, number FROM numbers(100)",
            "ALTER TABLE {t} MODIFY COLUMN v Nullable(Int64) SETTINGS mutations_sync = 2",
        ),
    ),
    Shape("merged", (_PLAIN, _fill(100), _fill(50), "OPTIMIZE TABLE {t} FINAL")),
    Shape("replacing", _merging("ReplacingMergeTree(ver)")),
    Shape("summing", _merging("SummingMergeTree(v)")),
    Shape("collapsing", _merging("CollapsingMergeTree(sign)")),
    Shape("versioned_collapsing", _merging("VersionedCollapsingMergeTree(sign, ver)")),
    Shape(
        "aggregating",
        (
            "CREATE TABLE {t} (id UInt64, total SimpleAggregateFunction(sum, UInt64)) "
            "ENGINE = AggregatingMergeTree ORDER BY id",
            "INSERT INTO {t} SELECT number % 10, number FROM numbers(100)",
            "INSERT INTO {t} SELECT number % 10, number FROM numbers(5)",
        ),
    ),
    Shape(
        "tuple_partition_key",
        (
            "CREATE TABLE {t} (id UInt64, d Date, s String) ENGINE = MergeTree PARTITION BY (toYYYYMM(d), s) ORDER BY id",
            "INSERT INTO {t} SELECT number, toDate('2024-01-01') + number % 40, "
            "['a', '/../../x', '?', 'new\\nline', 'quo\\'te', 'ünï'][number % 6 + 1] FROM numbers(60)",
        ),
    ),
    Shape(
        "null_partition_key",
        (
            "CREATE TABLE {t} (id UInt64, k Nullable(Int32)) ENGINE = MergeTree PARTITION BY k ORDER BY id "
            "SETTINGS allow_nullable_key = 1",
            "INSERT INTO {t} SELECT number, if(number % 3 = 0, NULL, number % 3) FROM numbers(60)",
        ),
    ),
    Shape(
        "old_syntax",
        (
            "SET allow_deprecated_syntax_for_merge_tree = 1",
            "CREATE TABLE {t} (d Date, id UInt64, s String) ENGINE = MergeTree(d, (id), 8192)",
            "INSERT INTO {t} SELECT toDate('2024-01-30') + number, number, 'x' FROM numbers(10)",
            "ALTER TABLE {t} UPDATE s = 'y' WHERE id = 1 SETTINGS mutations_sync = 2",
        ),
    ),
    Shape(
        "old_syntax_replacing",
        (
            "SET allow_deprecated_syntax_for_merge_tree = 1",
            "CREATE TABLE {t} (d Date, id UInt64, ver UInt8) "
            "ENGINE = ReplacingMergeTree(d, intHash32(id), (id, intHash32(id)), 8192, ver)",
            "INSERT INTO {t} SELECT '2024-01-30', number, 1 FROM numbers(10)",
        ),
    ),
    Shape(
        "codecs_comments_constraints",
        (
            "CREATE TABLE {t} (id UInt64 CODEC(Delta, ZSTD(3)) COMMENT 'it''s', s LowCardinality(Nullable(String)) "
            "DEFAULT 'a)b', j JSON, e UInt8 EPHEMERAL 3, f UInt8 DEFAULT e + 1, al String ALIAS upper(s), "
            "CONSTRAINT c CHECK id < 1000) ENGINE = MergeTree ORDER BY id COMMENT 'ORDER BY x SETTINGS y'",
            "INSERT INTO {t} (id, s, j) SELECT number, if(number % 2, NULL, 'v'), '{\"a\": 1}' FROM numbers(20)",
        ),
    ),
    Shape(
        "names_that_need_quotes",
        (
            "CREATE TABLE {t} (`we``ird. name` UInt64, `ключ` String, `a\\\\b` UInt8) "
            "ENGINE = MergeTree PARTITION BY `ключ` ORDER BY `we``ird. name`",
            "INSERT INTO {t} SELECT number, toString(number % 2), 1 FROM numbers(20)",
        ),
    ),
    Shape(
        "many_types",
        (
            "CREATE TABLE {t} (id UInt64, a Array(Map(String, Nullable(Decimal(38, 10)))), "
            "b Tuple(x UInt8, `y z` DateTime64(6, 'Asia/Tokyo')), c Variant(String, UInt64), d Dynamic, "
            "e Enum8('a' = -1, 'b\\'' = 2), f FixedString(3), g UInt256, h IPv6, i UUID, k Point, l BFloat16, "
            "m Date32, n DateTime('UTC'), o Time64(3)) ENGINE = MergeTree ORDER BY id",
            "INSERT INTO {t} SELECT number, [map('k', 1.5)], (1, toDateTime64('2024-01-01 00:00:00', 6)), "
            "number, 'dyn', 'a', 'abc', 7, '::1', toUUID('61f0c404-5cb3-11e7-907b-a6006ad3dba0'), (1, 2), 1.5, "
            "'1925-01-01', '2024-01-01 00:00:00', '12:34:56.789' FROM numbers(20)",
        ),
    ),
)
