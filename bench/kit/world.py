"""A source of mixed rows, a warm worker over it, and the engine alone on the same folder."""

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from calve.app.wiring import App
from calve.app.work import follow
from calve.clickhouse.embedded.host import spare
from calve.model.process import Process
from calve.model.states import ProcessState
from calve.spark.runner import SparkRunner
from kit.report import Run
from support.place import Place
from support.server_place import ServerPlace

MIXED = (
    "id UInt64, day Date, at DateTime64(3), score Float64, note Nullable(String), tag LowCardinality(String),"
    " user UUID, price Decimal(12, 2)"
)
MIXED_ROWS = (
    "SELECT number, toDate('2024-01-01') + number % 28,"
    " toDateTime64('2024-01-01 00:00:00.123', 3, 'UTC') + number, number / 3,"
    " if(number % 5 = 0, NULL, concat('note ', toString(cityHash64(number) % 100000))), toString(number % 7),"
    " toUUID(concat('00000000-0000-4000-8000-', leftPad(toString(number), 12, '0'))), number / 100"
    " FROM numbers({first}, {rows})"
)
_SMALL = "db.small"
SAME = "output_format_parquet_compression_method = 'zstd', output_format_compression_level = 3"


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="calve-bench-", ignore_cleanup_errors=True) as made:
        yield Path(made)


def fill_to_settle(place: Place, rows: int) -> None:
    """The table to measure, and a small one."""
    fill(place, rows)
    fill(place, 1_000, table=_SMALL)


def fill(place: Place, rows: int, *, parts: int = 4, table: str = "db.events") -> None:
    """Mixed rows of one month, in parts that stay apart."""
    each = rows // parts
    place.execute(
        "CREATE DATABASE IF NOT EXISTS db",
        f"CREATE TABLE {table} ({MIXED}) ENGINE = MergeTree PARTITION BY toYYYYMM(day) ORDER BY (day, id)"
        " SETTINGS max_bytes_to_merge_at_max_space_in_pool = 1",
        *(
            f"INSERT INTO {table} {MIXED_ROWS.format(first=part * each, rows=each)}"
            " SETTINGS max_insert_block_size = 100000000, min_insert_block_size_rows = 100000000,"
            " min_insert_block_size_bytes = 0, max_block_size = 65536"
            for part in range(parts)
        ),
    )


class Warm:
    """A worker with Spark, both started, over the source in one folder."""

    def __init__(self, place: Place, app: App) -> None:
        self.place, self.app = place, app

    def settle(self) -> None:
        """The first exports are not warm. The JVM compiles during the first five, up to 0.6 core-seconds in each,
        however few the rows; executors have then read the table itself once."""
        for _ in range(5):
            self.export(_SMALL, "lake.ns.small")
        self.export()

    def export(self, table: str = "db.events", to: str = "lake.ns.events", **asked: Any) -> list[Process]:
        """From submission until all are visible."""
        ids = self.place.submit(self.app, table, to, force=True, **asked)
        for standing in follow(self.app, ids):
            last = standing
        for process in last.processes:
            assert process.state is ProcessState.COMPLETED, process.error
        return list(last.processes)


@contextmanager
def warm(home: Path, *, cores: int = 0, server: str = "", **limits: str) -> Iterator[Warm]:
    """Without a number of cores, those there are. With the URL of a server, that is the source."""
    settings = {
        "CALVE_LIMITS__TICK_SECONDS": "0.5",
        "CALVE_SPARK__MASTER": f"local[{cores or '*'}]",
    } | limits
    place = (
        ServerPlace(home, server, configured_id="bench", **settings)
        if server
        else Place(home, None, **settings)
    )
    with place.app() as app:
        app.runner.warm()
        assert isinstance(app.runner, SparkRunner)
        spare.expect(sys.maxsize)
        loop = app.worker()
        thread = threading.Thread(target=loop.run, name="calve-worker", daemon=True)
        thread.start()
        try:
            yield Warm(place, app)
        finally:
            spare.expect(-sys.maxsize)
            loop.request_stop()
            thread.join(60)


_ALONE = """
import json, os, resource, sys, time
from chdb.session import Session
session = Session(sys.argv[1])
session.query("SYSTEM STOP MERGES")
def cores():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
found = []
for name, before, statement in json.load(sys.stdin):
    for one in before:
        session.query(one)
    at, began = cores(), time.perf_counter()
    session.query(statement)
    found.append([name, time.perf_counter() - began, cores() - at])
print(json.dumps(found), flush=True)
os._exit(0)
"""


def alone(data: Path, statements: Sequence[tuple[str, Sequence[str], str]]) -> list[tuple[str, Run]]:
    """Statements by the engine alone in a process of its own: `(name, statements before it, statement)`."""
    done = subprocess.run(
        [sys.executable, "-c", _ALONE, str(data)],
        input=json.dumps(statements),
        check=True,
        capture_output=True,
        text=True,
        cwd="/",
    )
    return [
        (name, Run(seconds=round(seconds, 4), core_seconds=round(cores, 3)))
        for name, seconds, cores in json.loads(done.stdout.splitlines()[-1])
    ]


def plain(data: Path, out: Path, table: str = "db.events") -> Run:
    """ClickHouse's own insert of the whole table into one Parquet file."""
    target = out / "plain.parquet"
    target.unlink(missing_ok=True)
    [(_, run)] = alone(
        data,
        [
            (
                "plain",
                (),
                f"INSERT INTO FUNCTION file('{target}', Parquet) SELECT * FROM {table} SETTINGS {SAME}",
            )
        ],
    )
    return run
