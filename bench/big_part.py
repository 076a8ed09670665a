"""One part of many rows, exported: rows a second, tasks, files, and the peak memory of a task's process.

    python bench/big_part.py --rows 20000000 --slots 2

The memory of an executor must not grow with the part (P10): it is measured at a tenth of the rows
and at all of them, and the ratio is printed. Runs without Spark; the data path is the same.
"""

import argparse
import json
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from calve.model.states import ProcessState
from support.local_runner import LocalRunner
from support.place import Place

BOUND = 1.25
INSERTS = 10  # merged into one part afterwards


@dataclass
class Measured:
    rows: int
    source_mb: float
    parts: int
    tasks: int
    files: int
    file_mb: float
    seconds: float
    rows_a_second: int
    peak_mb: float  # of the largest process that ran tasks


def measure(rows: int, slots: int) -> Measured:
    runner = LocalRunner(slots=slots)
    with tempfile.TemporaryDirectory(prefix="calve-bench-") as folder:
        place = Place(Path(folder), runner)
        place.execute(
            "CREATE DATABASE db",
            "CREATE TABLE db.big (id UInt64, at DateTime64(3), day Date, name LowCardinality(String), text String,"
            " score Float64, price Decimal(18, 4), tags Array(UInt32)) ENGINE = MergeTree ORDER BY id",
            *(
                "INSERT INTO db.big SELECT number, now64(3) + number, today(), toString(number % 100),"
                " hex(cityHash64(number)), number / 7, number % 100000, [number, number % 7]"
                f" FROM numbers({first}, {rows // INSERTS})"
                for first in range(0, rows, rows // INSERTS)
            ),
        )
        place.execute("SYSTEM START MERGES", "OPTIMIZE TABLE db.big FINAL")
        [source] = place.select(
            "SELECT count() AS parts, sum(bytes_on_disk) AS bytes FROM system.parts WHERE active AND table = 'big'"
        )
        started = time.monotonic()
        [process] = place.export("db.big", to="lake.ns.big")
        seconds = time.monotonic() - started
        assert process.state is ProcessState.COMPLETED, process.error
        assert process.rows == rows
        peak = max(_peak_kb(child.pid) for child in (runner._pool._processes or {}).values())  # type: ignore[union-attr]
        runner.close()
        return Measured(
            rows=rows,
            source_mb=round(source["bytes"] / 1e6, 1),
            parts=source["parts"],
            tasks=process.tasks.total,
            files=process.files,
            file_mb=round(process.bytes / 1e6, 1),
            seconds=round(seconds, 1),
            rows_a_second=round(rows / seconds),
            peak_mb=round(peak / 1024, 1),
        )


def _peak_kb(pid: int | None) -> int:
    """The high-water mark that the kernel keeps."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--slots", type=int, default=2)
    given = parser.parse_args()
    small, large = (measure(rows, given.slots) for rows in (given.rows // 10, given.rows))
    for one in (small, large):
        print(json.dumps(asdict(one)), flush=True)
    ratio = large.peak_mb / small.peak_mb
    print(f"peak memory at ten times the rows: {ratio:.2f} times (bound {BOUND})")


if __name__ == "__main__":
    main()
