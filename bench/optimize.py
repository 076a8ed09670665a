"""Optimize against Iceberg's plain procedure on the same table, and health of a table of 100,000 files.

    python bench/optimize.py                    # 10,000 tiny files to rewrite
    python bench/optimize.py --files 1000 --rounds 5

Prints the seconds of each, the overhead (bound: 10 %), and what a reader gained. Both sides run in
one JVM, on tables made alike, in turns; the better of the rounds counts.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from calve.iceberg.catalogs.catalog import open_catalog
from calve.iceberg.health.report import health
from calve.iceberg.publish.build import build_empty
from calve.iceberg.publish.manifests import ManifestFiles
from calve.model.states import ProcessState
from calve.spark import java
from calve.spark.runner import SparkRunner
from support.lake import BY_MONTH, IDENTIFIER, SCHEMA, arrow, make_table
from support.many_files import repeat_file
from support.optimizing import OptimizeScene

BOUND = 1.10
HEALTH_SECONDS = 10.0
EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"

T = TypeVar("T")


def main() -> int:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="calve-bench-") as name:
        folder = Path(name)
        took = bench_health(folder / "health", options.health_files)
        ratio = bench_rewrite(folder / "rewrite", options)
    return 0 if took <= HEALTH_SECONDS and ratio <= BOUND else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--files", type=int, default=10_000, help="small files to rewrite")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--health-files", type=int, default=100_000)
    return parser.parse_args()


def bench_health(folder: Path, files: int) -> float:
    catalog = _catalog(folder)
    _synthetic_table(catalog, files)
    seconds, found = _timed(lambda: health(catalog, IDENTIFIER))
    print(
        f"health of {found.files:,} files: {seconds:.2f} s (bound {HEALTH_SECONDS:.0f} s), score {found.score}"
    )
    return seconds


def _catalog(folder: Path) -> Catalog:
    folder.mkdir(parents=True)
    return open_catalog(
        "lake", {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"{folder}/w"}
    )


def _synthetic_table(catalog: Catalog, files: int) -> None:
    """Manifests as an export leaves them, with statistics of thirty columns; no data file exists."""
    from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate

    table = make_table(catalog)
    snapshot = build_empty(table, "bench")
    written = ManifestFiles(table=table, process_id="bench", snapshot_id=snapshot.snapshot_id)
    written.add(list(_data_files(table.location(), files)), 0)
    listed = snapshot.model_copy(update={"manifest_list": written.list(written.written, None)})
    main_ref = {"ref-name": "main", "type": "branch", "snapshot-id": snapshot.snapshot_id}
    catalog.commit_table(
        table, (), (AddSnapshotUpdate(snapshot=listed), SetSnapshotRefUpdate.model_validate(main_ref))
    )


def _data_files(location: str, files: int) -> Iterator[DataFile]:
    counts = dict.fromkeys(range(30), 1000)
    bounds = dict.fromkeys(range(30), b"01234567")
    for number in range(files):
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{location}/data/month={number % 100}/calve-bench-{number}-1-0.parquet",
            file_format=FileFormat.PARQUET,
            partition=Record(number % 100),
            record_count=1000,
            file_size_in_bytes=1_000_000,
            column_sizes=counts,
            value_counts=counts,
            null_value_counts=counts,
            lower_bounds=bounds,
            upper_bounds=bounds,
        )
        file.spec_id = 0
        yield file


def bench_rewrite(folder: Path, options: argparse.Namespace) -> float:
    folder.mkdir(parents=True)
    runner = SparkRunner(
        master="local[*]",
        conf={
            # The procedure needs Iceberg's SQL extensions, which must be there when Spark starts.
            "spark.driver.extraClassPath": ":".join(
                str(java.resolve(jar)) for jar in (java.ICEBERG_SPARK, java.SQLITE_JDBC)
            ),
            "spark.sql.extensions": EXTENSIONS,
            "spark.driver.memory": "2g",
        },
        slots=2 * (os.cpu_count() or 1),
    )
    try:
        return _rewrite_in_turns(runner, folder, options)
    finally:
        runner.close()


def _rewrite_in_turns(runner: SparkRunner, folder: Path, options: argparse.Namespace) -> float:
    properties = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}/w"}
    lake = OptimizeScene(runner, "lake", properties)
    lake.catalog_.create_namespace("ns")
    plain: list[float] = []
    ours: list[float] = []
    for turn in range(options.rounds + 1):  # the first one warms both up
        files = options.files if turn else 24
        for name in ("plain", "ours"):
            _small_files(lake, f"{name}{turn}", files, options.rows)
        before = _scan_seconds(lake, f"ns.ours{turn}")
        sides = [lambda turn=turn: plain.append(_plain(lake, f"ns.plain{turn}")),
                 lambda turn=turn: ours.append(_ours(lake, f"ns.ours{turn}"))]  # fmt: skip
        # Whoever comes second finds a warmer JVM: they take turns.
        for side in sides if turn % 2 else reversed(sides):
            side()
        if turn:
            after = _scan_seconds(lake, f"ns.ours{turn}")
            print(
                f"{files:,} files, {options.rows:,} rows: procedure {plain[-1]:.2f} s, calve {ours[-1]:.2f} s;"
                f" a PyIceberg scan took {before:.2f} s before and {after:.2f} s after"
            )
    ratio = min(ours[1:]) / min(plain[1:])
    load = ", ".join(f"{number:.1f}" for number in os.getloadavg())
    print(
        f"overhead {100 * (ratio - 1):+.1f} % (bound {100 * (BOUND - 1):.0f} %);"
        f" load average {load} on {os.cpu_count()} cores"
    )
    return ratio


def _plain(lake: OptimizeScene, table: str) -> float:
    options = "map('min-input-files', '2')"
    call = f"CALL lake.system.rewrite_data_files(table => '{table}', options => {options})"
    return _timed(lambda: lake.sql(call))[0]


def _ours(lake: OptimizeScene, table: str) -> float:
    seconds, process = _timed(lambda: lake.optimize(table, expire=False, orphans=False))
    assert process.state is ProcessState.COMPLETED, process.error
    return seconds


def _small_files(lake: OptimizeScene, name: str, files: int, rows: int) -> None:
    """A table of one partition whose files have the same number of rows each."""
    table = lake.catalog_.create_table(("ns", name), SCHEMA, partition_spec=BY_MONTH)
    table.append(arrow(range(rows // files), 1))
    repeat_file(lake.catalog_, ("ns", name), files - 1)


def _scan_seconds(lake: OptimizeScene, table: str) -> float:
    return _timed(lambda: lake.table(table).scan().to_arrow())[0]


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    started = time.perf_counter()
    answer = work()
    return time.perf_counter() - started, answer


if __name__ == "__main__":
    sys.exit(main())
