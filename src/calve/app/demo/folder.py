"""The demo's folder and its table: three months, four parts each, fifteen columns of a dozen types.

The folder is a whole installation, made anew by each demo, and touched only if it is a demo's.
"""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from calve.app.config.template import render, write_private
from calve.app.config.values import CONFIG_NAME
from calve.clickhouse.embedded.source import EmbeddedSource
from calve.clickhouse.errors import SourceBusyError
from calve.model.errors import CalveError, RefusedError, UsageError
from calve.spark.java import java_home

MARK = ".calve-demo"
_MADE = ("clickhouse", "lake", "calve.db", "calve.db-wal", "calve.db-shm", CONFIG_NAME)


def prepare(folder: Path) -> Path:
    """An empty installation; its configuration file. Without Java nothing is made: it would be missed at the export."""
    java_home()
    try:
        _clear(folder)
        # If we die here, the mark is there first, so that the next demo may clear what follows.
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARK).write_text("Made by `calve demo`, which may remove it again.\n", encoding="utf-8")
        file = folder / CONFIG_NAME
        write_private(file, _configuration())
    except OSError as error:
        raise UsageError(
            f"cannot write to {folder}: {error.strerror}",
            code="folder_not_writable",
            hint="use a folder that you can write to: calve demo --dir DIR",
        ) from error
    return file


def _configuration() -> str:
    """The defaults, but with a task for each part: the demo's parts are small, and would share one."""
    key, why = "task_bytes_mb", "small on purpose: each of the demo's parts is a task"
    lines = (
        f"{key} = 12  # {why}" if line.startswith(f"# {key} = ") else line for line in render().splitlines()
    )
    return "\n".join(lines) + "\n"


def _clear(folder: Path) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError(
            f"{folder} is a file, not a folder", code="not_a_folder", hint="calve demo --dir DIR"
        )
    if not (folder / MARK).exists():
        if any(folder.iterdir()):
            raise RefusedError(
                f"{folder} is not empty and was not made by a demo; nothing was changed",
                code="not_a_demo",
                hint="use another folder: calve demo --dir DIR",
            )
        return
    _refuse_if_open(folder / "clickhouse")
    # If we die here, some of an old demo is left; the mark stays, and the next demo goes on.
    for name in _MADE:
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _refuse_if_open(clickhouse: Path) -> None:
    """A worker or a shell may still be at work in an earlier demo: nothing is removed under it."""
    try:
        with EmbeddedSource("main", clickhouse, busy_seconds=0).visit():
            return
    except SourceBusyError:
        raise
    except CalveError:
        return  # not there, or not whole: it is made anew


def fill(clickhouse: Path, statements: Iterable[str]) -> None:
    """Make the demo's table, in a visit of its own."""
    with EmbeddedSource("main", clickhouse, create=True).visit() as session:
        for statement in statements:
            session.execute(statement, what="making the demo's table")


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
