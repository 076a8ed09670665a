"""What a whole export costs, against the engine alone on the same cores, and where the time goes.

    python bench/export.py --rows 2000000          # task attempts in child processes
    python bench/export.py --rows 2000000 --spark  # and once more on Spark, its start measured apart

The engine alone writes the same rows, read from the same parts, with the same codec, to one Parquet file
(`INSERT INTO FUNCTION file(…, Parquet) SELECT *`), with as many threads as there are cores. An export does
more: it counts, computes a checksum of every column, splits files by partition, mends the footer, uploads,
and publishes. Both are made once cold and then warm; the warm ones are compared.
"""

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

CLOCK = "CALVE_BENCH_PROFILE"  # where profiled tasks write what they measured
PARTS = 2
TABLE = (
    "CREATE DATABASE db",
    "CREATE TABLE db.events (id UInt64, day Date, at DateTime64(3), score Float64, note Nullable(String),"
    " tag LowCardinality(String), user UUID, price Decimal(12, 2)) ENGINE = MergeTree"
    " PARTITION BY toYYYYMM(day) ORDER BY (day, id)",
)
ROWS = (
    "INSERT INTO db.events SELECT number, toDate('2024-01-01') + number % 28,"
    " toDateTime64('2024-01-01 00:00:00.123', 3, 'UTC') + number, number / 3,"
    " if(number % 5 = 0, NULL, concat('note ', toString(cityHash64(number) % 100000))), toString(number % 7),"
    " toUUID(concat('00000000-0000-4000-8000-', leftPad(toString(number), 12, '0'))), number / 100"
    " FROM numbers({first}, {rows})"
)
SAME = "output_format_parquet_compression_method = 'zstd', output_format_compression_level = 3"


# ---- in a child: one task, with a stopwatch around each of its steps


def profiled(payload: str) -> str:
    from calve.export import task
    from calve.export import writer as writing
    from calve.export.split import PartitionSplit
    from calve.objects.storage import Storage

    spent: Counter[str] = Counter()

    def timed(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def measured(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                spent[name] += time.perf_counter() - began

        return measured

    spots: list[tuple[Any, str, str]] = [
        (task, "_count", "count"),
        (PartitionSplit, "find", "find partitions"),
        (writing, "measure", "checksums"),
        (writing.TaskWriter, "_insert", "write"),
        (writing, "annotate", "footer"),
        (writing, "file_statistics", "statistics"),
        (Storage, "upload", "upload"),
    ]
    kept = [(place, name, getattr(place, name)) for place, name, _ in spots]
    for place, name, label in spots:
        setattr(place, name, timed(label, getattr(place, name)))
    began = time.perf_counter()
    try:
        answer = task.run(payload)
    finally:
        for place, name, call in kept:
            setattr(place, name, call)
    whole = time.perf_counter() - began
    spent["attach, sha256, receipt"] = whole - sum(spent.values())
    with Path(os.environ[CLOCK]).open("a") as out:
        out.write(json.dumps(spent) + "\n")
    return answer


class Profiled:
    """A runner whose tasks carry a stopwatch."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self.slots = runner.slots

    def run(self, group: str, orders: Sequence[Any], on_result: Any) -> None:
        self._runner.run(group, [replace(order, function="export:profiled") for order in orders], on_result)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)


# ---- the engine alone


def plain(folder: str, out: str) -> None:
    """In a child: the folder can be open in one process, and this program must not import the engine."""
    from calve.clickhouse.engine.engine import ChdbSession

    session = ChdbSession(Path(folder))
    session.run("SYSTEM STOP MERGES")
    found = []
    for run in range(3):
        began = time.perf_counter()
        session.run(
            f"INSERT INTO FUNCTION file('{out}/{run}.parquet', Parquet) SELECT * FROM db.events SETTINGS {SAME}"
        )
        found.append(time.perf_counter() - began)
    sys.stdout.write(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)


# ---- the whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--spark", action="store_true", help="on Spark as well")
    parser.add_argument("--plain", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.plain:
        plain(*args.plain)
        return
    with tempfile.TemporaryDirectory(prefix="calve-bench-") as folder:
        bench(Path(folder), args.rows, spark=args.spark)


def bench(folder: Path, rows: int, *, spark: bool) -> None:
    from support.local_runner import LocalRunner
    from support.place import Place

    os.environ[CLOCK] = str(folder / "profile")
    place = Place(folder)
    each = rows // PARTS
    place.execute(*TABLE, *(ROWS.format(first=part * each, rows=each) for part in range(PARTS)))
    alone = _alone(folder)
    print(
        f"{rows:,} rows, {os.cpu_count()} cores; the engine alone: {rows / alone:,.0f} rows/s ({alone:.2f} s)"
    )
    local = LocalRunner()
    place._runner = Profiled(local)  # type: ignore[assignment]
    _export(place, rows, "cold", alone)
    Path(os.environ[CLOCK]).unlink()
    seconds = _export(place, rows, "warm", alone)
    _print_profile(Path(os.environ[CLOCK]), seconds)
    local.close()
    if spark:
        _on_spark(place, rows, alone)


def _alone(folder: Path) -> float:
    command = [sys.executable, __file__, "--plain", str(folder / "clickhouse"), str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return min(json.loads(done.stdout)[1:])


def _export(place: Any, rows: int, how: str, alone: float) -> float:
    began = time.perf_counter()
    [process] = place.export("db.events", force=True)
    seconds = time.perf_counter() - began
    assert process.rows == rows, process.error
    print(
        f"export, {how}: {rows / seconds:,.0f} rows/s ({seconds:.2f} s), {seconds / alone:.2f} times the engine"
    )
    return seconds


def _print_profile(profile: Path, seconds: float) -> None:
    tasks = [json.loads(line) for line in profile.read_text().splitlines()]
    spent: Counter[str] = Counter()
    for task in tasks:
        spent.update(task)
    busy = sum(spent.values())
    print(f"of {busy:.2f} s in {len(tasks)} tasks ({seconds:.2f} s from submission to the end):")
    for name, part in spent.most_common():
        print(f"  {part:8.2f} s  {part / busy:5.0%}  {name}")


def _on_spark(place: Any, rows: int, alone: float) -> None:
    from calve.spark.runner import SparkRunner

    began = time.perf_counter()
    runner = SparkRunner(master="local[*]", conf={})
    runner.warm()
    print(f"Spark's start: {time.perf_counter() - began:.2f} s")
    place._runner = runner
    _export(place, rows, "Spark, cold", alone)
    _export(place, rows, "Spark, warm", alone)
    runner.close()


if __name__ == "__main__":
    main()
