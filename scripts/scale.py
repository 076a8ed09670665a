"""Compute the tables of docs/scale.md from the reports of the benchmarks, and write them into the page.

    make bench BENCH="export publish plan scale-simulation" && .venv/bin/python scripts/scale.py

Costs are fitted as straight lines: what a run costs at two sizes gives what each row, file, snapshot, key, part or
task adds. Core-seconds are used wherever they are known, because a busy machine distorts seconds.
"""

import json
import re
import statistics
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[1]
RESULTS, PAGE = TOP / "bench" / "results", TOP / "docs" / "scale.md"
DAY = 86_400
TB = 10**12
ROW_BYTES = 30  # of a compressed part
TASK_MB, FILE_MB = 256, 128  # `limits.task_bytes_mb` and `limits.file_mb`
METADATA_KEPT = 100  # older metadata files that a table lists: `write.metadata.previous-versions-max`


class Reported:
    """One benchmark's report."""

    def __init__(self, name: str) -> None:
        file = RESULTS / f"{name}.json"
        if not file.exists():
            raise SystemExit(f"error: no report of {name}\nhint: make bench BENCH={name}")
        self.document: dict[str, Any] = json.loads(file.read_text())

    def median(self, series: str, field: str = "core_seconds") -> float:
        runs = self.document["runs"][series]
        return statistics.median(run[field] if field in run else run["detail"][field] for run in runs)

    def sizes(self, pattern: str) -> dict[int, str]:
        """Series whose names have a number in them, by it."""
        found = {name: re.fullmatch(pattern, name) for name in self.document["runs"]}
        return {int(match[1].replace(",", "")): name for name, match in found.items() if match}

    def line(self, pattern: str, field: str = "core_seconds") -> tuple[float, float]:
        """What a run costs by itself, and what each more adds."""
        points = [(size, self.median(name, field)) for size, name in self.sizes(pattern).items()]
        if len(points) == 1:
            return 0.0, points[0][1] / points[0][0]
        slope, fixed = statistics.linear_regression(*zip(*points, strict=True))
        return max(fixed, 0.0), max(slope, 0.0)


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Core-seconds, unless the name says otherwise."""

    export: float
    row: float
    commit: float
    file: float
    snapshot: float
    key: float
    key_bytes: float
    snapshot_bytes: float
    part: float
    task: float
    task_store: float
    process: float  # with its commit
    process_store: float
    transactions: float
    idle: float  # a second
    idle_transactions: float  # a second
    table_commits: float  # a second


def fitted() -> tuple[Figures, Mapping[str, Reported]]:
    reports = {name: Reported(name) for name in ("export", "publish", "plan", "scale-simulation")}
    publish, simulated = reports["publish"], reports["scale-simulation"]
    export, row = reports["export"].line(r"export, ([\d,]+)")
    _, file = publish.line(r"([\d,]+) files")
    commit, snapshot = publish.line(r"([\d,]+) snapshots")
    _, key = publish.line(r"([\d,]+) keys")
    exports = "many tables, one worker"
    processes = simulated.median(exports, "processes")
    idle = simulated.document["runs"]["one worker, idle"][0]
    return Figures(
        export=export,
        row=row,
        commit=commit,
        file=file,
        snapshot=snapshot,
        key=key,
        key_bytes=publish.line(r"([\d,]+) keys", "metadata_mb")[1] * 1e6,
        snapshot_bytes=publish.line(r"([\d,]+) snapshots", "metadata_mb")[1] * 1e6,
        part=reports["plan"].line(r"([\d,]+) parts")[1],
        task=simulated.line(r"([\d,]+) tasks")[1],
        task_store=simulated.line(r"([\d,]+) tasks", "postgres_core_s")[1],
        process=simulated.median(exports) / processes,
        process_store=simulated.median(exports, "postgres_core_s") / processes,
        transactions=simulated.median(exports, "transactions") / processes,
        idle=idle["core_seconds"] / idle["seconds"],
        idle_transactions=idle["detail"]["transactions"] / idle["seconds"],
        table_commits=simulated.median("one table, two workers", "processes")
        / simulated.median("one table, two workers", "seconds"),
    ), reports


def figures(f: Figures) -> Iterator[tuple[str, str, str]]:
    yield "what", "costs", "from"
    yield "a row of 8 values, checksums included", f"{f.row * 1e6:.2f} µs of a core", "`export`"
    yield "an export, beside its rows", f"{f.export:.1f} core-seconds, embedded source", "`export`"
    yield "a part, in planning", f"{f.part * 1e6:.0f} µs", "`plan`"
    yield "a task, in a worker", f"{f.task * 1e3:.2f} ms", "`scale-simulation`"
    yield "a task, in PostgreSQL", f"{f.task_store * 1e3:.2f} ms", "`scale-simulation`"
    small = f"{f.process * 1e3:.0f} ms in a worker, {f.process_store * 1e3:.0f} ms in PostgreSQL"
    yield "a small process with its commit", small, "`scale-simulation`"
    yield "its store transactions", f"{f.transactions:.0f}", "`scale-simulation`"
    idle = f"{f.idle_transactions:.0f} transactions, {f.idle * 1e3:.0f} ms, each second"
    yield "a worker without work", idle, "`scale-simulation`"
    yield "a commit into a young table", f"{f.commit * 1e3:.0f} ms", "`publish`"
    yield "each file of it", f"{f.file * 1e3:.2f} ms", "`publish`"
    yield "each snapshot there is", f"{f.snapshot * 1e3:.2f} ms, {f.snapshot_bytes:,.0f} bytes", "`publish`"
    yield "each key there is", f"{f.key * 1e6:.0f} µs, {f.key_bytes:.0f} bytes", "`publish`"
    yield "commits into one table by two workers", f"{f.table_commits:.1f} a second", "`scale-simulation`"


def one_table(f: Figures) -> Iterator[tuple[str, str, str]]:
    """10 TB a day, as 24 partitions."""
    rows, tasks, files = 10 * TB / ROW_BYTES, 10e6 / TASK_MB, 10e6 / FILE_MB
    yield "each day", "", "busy all day"
    yield "rows", f"{rows / 1e9:.0f} × 10⁹", _cores(rows * f.row)
    yield "tasks, in workers", f"{tasks:,.0f}", _cores(tasks * f.task)
    yield "tasks, in PostgreSQL", f"{tasks:,.0f}", _cores(tasks * f.task_store)
    yield "files, in commits", f"{files:,.0f}", _cores(files * f.file)
    aged = f.commit + 365 * 24 * (f.snapshot + f.key)
    yield "commits, after a year without expiry", "24", f"{_cores(24 * aged)}, {aged:.1f} s each"
    yield "bytes read, and about as many written", "10 TB", f"{10e6 / DAY:.0f} MB/s each way"


def keys(f: Figures) -> Iterator[tuple[str, ...]]:
    yield "keys in the table", "partitions", "metadata", "a commit", f"{METADATA_KEPT} older metadata files"
    examples = {
        365: "daily, a year",
        8_760: "hourly, a year",
        100_000: "hourly, 11 years; 274 a day, a year",
        1_000_000: "2,740 a day, a year",
    }
    for count, example in examples.items():
        size, core = count * f.key_bytes / 1e6, f.commit + count * f.key
        kept = METADATA_KEPT * size / 1000
        yield f"{count:,}", example, f"{size:,.1f} MB", f"{core:.2f} core-seconds", f"{kept:,.1f} GB"


def many_tables(f: Figures) -> Iterator[tuple[str, str, str]]:
    yield "10,000 tables, 10 million rows each a day", "one export a day", "one an hour"
    for name, of in (
        ("exports a second", lambda n: f"{n / DAY:.2f}"),
        ("cores of executors, rows", lambda _: _cores(1e11 * f.row)),
        ("cores of workers and sources, around exports", lambda n: _cores(n * (f.export + f.process))),
        ("cores of PostgreSQL", lambda n: _cores(n * f.process_store)),
        ("store transactions a second", lambda n: f"{n * f.transactions / DAY:.0f}"),
        ("of ten workers without work", lambda _: f"{10 * f.idle_transactions:.0f}"),
        ("loads of the catalog a second, three an export", lambda n: f"{3 * n / DAY:.1f}"),
        ("keys in each table after a year", lambda n: f"{n / 10_000 * 365:,.0f}"),
    ):
        yield name, of(10_000), of(240_000)


def checked(f: Figures, reports: Mapping[str, Reported]) -> Iterator[tuple[str, ...]]:
    """What was not used for the fit, as the model says it and as the simulation measured it."""
    simulated = reports["scale-simulation"]
    yield "simulated", "model", "measured"
    two = "many tables, two workers"
    count = simulated.median(two, "processes")
    yield (
        f"{count:.0f} exports by two workers, core-seconds",
        f"{count * f.process:.1f}",
        f"{simulated.median(two):.1f}",
    )
    expected, found = count * f.transactions, simulated.median(two, "transactions")
    yield "their store transactions", f"{expected:,.0f}", f"{found:,.0f}"


def _cores(seconds: float) -> str:
    cores = seconds / DAY
    return f"{cores:.1f} cores" if cores >= 1 else f"{100 * cores:.2g} % of a core"


def _table(rows: Iterator[tuple[str, ...]]) -> str:
    head, *body = rows
    lines = [head, tuple("---" for _ in head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> int:
    found, reports = fitted()
    made = [
        f"`{name}`{' with --quick' if of.document['quick'] else ''}, load {of.document['machine']['load_before']:.0f}"
        for name, of in reports.items()
    ]
    blocks = {
        "figures": f"{_table(figures(found))}\n\nFrom the reports of {'; '.join(made)} when it began.",
        "one table": _table(one_table(found)),
        "keys": _table(keys(found)),
        "many tables": _table(many_tables(found)),
        "check": _table(checked(found, reports)),
    }
    page = PAGE.read_text()
    for name, text in blocks.items():
        begin, end = f"<!-- computed: {name} -->", "<!-- end -->"
        before, rest = page.split(begin, 1)
        page = f"{before}{begin}\n{text}\n{end}{rest.split(end, 1)[1]}"
    PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
