"""The demo's table: three months, four parts each, fifteen columns of a dozen types.

Every value is a hash of the row's number, so that a second demo makes the same table.
"""

from collections.abc import Iterator

DATABASE, TABLE = "demo", "events"
MONTHS = ("2024-01", "2024-02", "2024-03")
PARTS_PER_MONTH = 4

DROP = f"DROP TABLE IF EXISTS {DATABASE}.{TABLE} SYNC"

# Parts are kept apart, so that the demo shows several tasks to a partition: a merge may take no bytes.
CREATE = f"""
CREATE TABLE {DATABASE}.{TABLE} (
    id UInt64,
    at DateTime64(3, 'UTC'),
    day Date,
    user_id UInt32,
    country LowCardinality(String),
    action Enum8('view' = 1, 'click' = 2, 'buy' = 3),
    price Decimal(12, 2),
    score Float64,
    discount Nullable(Float32),
    referrer Nullable(String),
    tags Array(LowCardinality(String)),
    labels Map(String, String),
    paid Bool,
    session UUID,
    address IPv4
) ENGINE = MergeTree
PARTITION BY toYYYYMM(at)
ORDER BY (country, at)
SETTINGS max_bytes_to_merge_at_max_space_in_pool = 1
"""

_INSERT = f"""
INSERT INTO {DATABASE}.{TABLE}
SELECT
    number * {{parts}} + {{part}} AS id,
    toDateTime64('{{month}}-01 00:00:00', 3, 'UTC') + INTERVAL (h % 2419200000) MILLISECOND AS at,
    toDate(at) AS day,
    h % 50000 AS user_id,
    ['BR', 'DE', 'FR', 'IN', 'JP', 'KE', 'NZ', 'US'][1 + h % 8] AS country,
    1 + h % 3 AS action,
    toDecimal64((h % 1000000) / 100, 2) AS price,
    h / 1e18 AS score,
    if(h % 5 = 0, NULL, (h % 100) / 100) AS discount,
    if(h % 3 = 0, NULL, concat('https://example.com/', toString(h % 1000))) AS referrer,
    arrayMap(i -> ['bulk', 'gift', 'new', 'sale'][1 + (h + i) % 4], range(h % 4)) AS tags,
    map('os', ['linux', 'mac', 'ios'][1 + h % 3], 'group', toString(h % 10)) AS labels,
    h % 7 = 0 AS paid,
    reinterpretAsUUID(MD5(toString(h))) AS session,
    toIPv4(toUInt32(h % 4294967296)) AS address
FROM (SELECT number, cityHash64(number, {{part}}) AS h FROM numbers({{rows}}))
"""


def statements(rows: int) -> Iterator[str]:
    """Everything that makes the table anew with exactly so many rows."""
    yield f"CREATE DATABASE IF NOT EXISTS {DATABASE}"
    yield DROP
    yield CREATE
    parts = len(MONTHS) * PARTS_PER_MONTH
    for part in range(parts):
        share = rows // parts + (part < rows % parts)
        if share:
            month = MONTHS[part // PARTS_PER_MONTH]
            yield _INSERT.format(parts=parts, part=part, month=month, rows=share)
