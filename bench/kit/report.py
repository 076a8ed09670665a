"""Measured times and core-seconds, ratios to a baseline of the same run, as JSON and as a picture.

Wall-clock time on a busy machine says little; core-seconds (user and system time of this program and of
everything below it) say what the work costs. Both are recorded, with every raw run.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

_TICKS = os.sysconf("SC_CLK_TCK")
RESULTS = Path(__file__).resolve().parents[1] / "results"


@dataclass(kw_only=True)
class Run:
    seconds: float = 0.0
    core_seconds: float = 0.0
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Ratio:
    name: str
    value: float
    target: float | None  # None: measured, nothing is asked
    at_least: bool

    @property
    def reached(self) -> bool:
        if self.target is None:
            return True
        return self.value >= self.target if self.at_least else self.value <= self.target


class Report:
    """One benchmark. `quick` asks for a minute's worth."""

    def __init__(self, name: str, about: str) -> None:
        parser = argparse.ArgumentParser(prog=name, description=about)
        parser.add_argument("--quick", action="store_true", help="smaller, in about a minute")
        parser.add_argument("--out", type=Path, default=RESULTS, help="where the JSON and the SVG go")
        parser.add_argument("--strict", action="store_true", help="end with 1 if a target is missed")
        self._given = parser.parse_args()
        self.name = name
        self.quick: bool = self._given.quick
        self.runs: dict[str, list[Run]] = {}
        self.ratios: list[Ratio] = []
        self._began_load = os.getloadavg()[0]

    def note(self, series: str, run: Run) -> None:
        self.runs.setdefault(series, []).append(run)
        detail = " ".join(f"{key}={value}" for key, value in run.detail.items())
        print(f"{series:32} {run.seconds:9.3f} s {run.core_seconds:9.2f} core-s  {detail}", flush=True)

    @contextmanager
    def timed(self, series: str) -> Iterator[Run]:
        """Measure the block. What it puts into `detail` is reported with it."""
        run, before, began = Run(), tree(), time.perf_counter()
        yield run
        run.seconds = round(time.perf_counter() - began, 4)
        run.core_seconds = round(core_seconds(before, tree()), 3)
        self.note(series, run)

    def best(self, series: str, of: Callable[[Run], float] = lambda run: run.seconds) -> float:
        return min(map(of, self.runs[series]))

    def cores(self, series: str) -> float:
        return statistics.median(run.core_seconds for run in self.runs[series])

    def ratio(self, name: str, value: float, target: float | None = None, *, at_least: bool = False) -> None:
        found = Ratio(name=name, value=round(value, 4), target=target, at_least=at_least)
        self.ratios.append(found)
        sign, said = (">=" if at_least else "<="), ("reached" if found.reached else "missed")
        asked = "" if target is None else f" (to reach: {sign} {target:g}; {said})"
        print(f"{name}: {found.value:g}{asked}", flush=True)

    def finish(self) -> None:
        """Write the report and end the program: threads of Spark and of engines need no farewell."""
        out: Path = self._given.out
        out.mkdir(parents=True, exist_ok=True)
        document = {
            "benchmark": self.name,
            "quick": self.quick,
            "machine": {"cores": os.cpu_count(), "load_before": round(self._began_load, 2)},
            "versions": versions(),
            "runs": {series: [asdict(run) for run in runs] for series, runs in self.runs.items()},
            "ratios": [asdict(ratio) | {"reached": ratio.reached} for ratio in self.ratios],
        }
        (out / f"{self.name}.json").write_text(json.dumps(document, indent=1) + "\n")
        (out / f"{self.name}.svg").write_text(picture(self.name, self.runs))
        print(verdict(document), flush=True)
        sys.stdout.flush()
        missed = self._given.strict and not all(ratio.reached for ratio in self.ratios)
        os._exit(1 if missed else 0)


def verdict(document: Mapping[str, Any]) -> str:
    """A report in one line: every figure that has a target, those that missed it in capitals."""
    said = [
        f"{ratio['name']} {ratio['value']:g} {'reached' if ratio['reached'] else 'MISSED'}"
        f" {'>=' if ratio['at_least'] else '<='} {ratio['target']:g}"
        for ratio in document["ratios"]
        if ratio["target"] is not None
    ]
    quick = " --quick" if document["quick"] else ""
    load = document["machine"]["load_before"]
    return f"{document['benchmark']}{quick} (load {load:g}): {'; '.join(said) or 'no target'}"


def versions() -> dict[str, str]:
    names = ("calve", "chdb-core", "pyspark", "pyiceberg", "pyarrow")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}


@dataclass(frozen=True, kw_only=True)
class Used:
    """Core-seconds of one process, and of those below it that ended and were awaited."""

    parent: int
    own: float
    awaited: float


def tree(root: int | None = None) -> dict[int, Used]:
    """A process and each one below it."""
    below: dict[int, list[int]] = {}
    used: dict[int, Used] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue  # it ended
        fields = stat[stat.rindex(")") + 2 :].split()
        own, awaited = (sum(map(int, fields[at : at + 2])) / _TICKS for at in (11, 13))
        used[int(entry.name)] = Used(parent=int(fields[1]), own=own, awaited=awaited)
        below.setdefault(int(fields[1]), []).append(int(entry.name))
    found, todo = {}, [root or os.getpid()]
    while todo:
        pid = todo.pop()
        if pid in used:
            found[pid] = used[pid]
            todo += below.get(pid, [])
    return found


def core_seconds(before: Mapping[int, Used], after: Mapping[int, Used]) -> float:
    """What a tree used between two looks at it. What ended meanwhile is in its parent's count, with all that it
    used before too, unless nobody awaited it: Spark's idle Python workers go that way."""
    nothing = Used(parent=0, own=0.0, awaited=0.0)
    total = sum(used.own - before.get(pid, nothing).own for pid, used in after.items())
    awaited = {pid: used.awaited - before.get(pid, nothing).awaited for pid, used in after.items()}
    total += sum(awaited.values())
    for pid in before.keys() - after.keys():
        parent, earlier = before[pid].parent, before[pid].own + before[pid].awaited
        while parent in before and parent not in after:
            parent = before[parent].parent
        if awaited.get(parent, 0.0) >= earlier:
            awaited[parent] -= earlier
            total -= earlier
    return total


def peak_mb(pid: int) -> float:
    """The high-water mark of a process's memory, as the kernel keeps it."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


def picture(title: str, runs: dict[str, list[Run]]) -> str:
    """Bars of the best time of each series, with its median of core-seconds."""
    rows = [
        (name, min(run.seconds for run in of), statistics.median(run.core_seconds for run in of))
        for name, of in runs.items()
    ]
    longest = max((max(seconds, cores) for _, seconds, cores in rows), default=1.0) or 1.0
    height = 34 + 34 * len(rows)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="760" height="{height}" font-family="sans-serif" font-size="12">',
        f'<text x="8" y="18" font-weight="bold">{escape(title)}: seconds (dark), core-seconds (light)</text>',
    ]
    for place, (name, seconds, cores) in enumerate(rows):
        top = 30 + 34 * place
        lines += [
            f'<text x="8" y="{top + 16}">{escape(name)}</text>',
            f'<rect x="250" y="{top}" width="{max(1, 400 * seconds / longest):.1f}" height="11" fill="#2b5d8a"/>',
            f'<rect x="250" y="{top + 13}" width="{max(1, 400 * cores / longest):.1f}" height="11" fill="#a9c6e0"/>',
            f'<text x="{256 + 400 * max(seconds, cores) / longest:.1f}" y="{top + 16}">{seconds:.3g} / {cores:.3g}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])
