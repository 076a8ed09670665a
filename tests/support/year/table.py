"""What finds each rule that is removed, as docs/year.md shows it: a year and its seed, or an ordinary test."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.year import mistakes_elsewhere
from support.year.mistakes import MISTAKES, planted
from support.year.run import run

assert mistakes_elsewhere  # its mistakes are among MISTAKES
ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "year.md"
_HEAD = "| removed | in words | seeds, or the test | what was broken |\n| --- | --- | --- | --- |\n"
_ROW = re.compile(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*) \|$", re.MULTILINE)
_SEEDS = re.compile(r"\d+")
_VARYING = re.compile(r"\b[a-z0-9]{13}\b|\S*\d\S*")


@dataclass(frozen=True, kw_only=True)
class FoundMistake:
    name: str
    seed: int | None  # the first that finds it, from 0 on; None: a test does
    by: str
    broken: str

    @property
    def row(self) -> str:
        return f"| `{self.name}` | {MISTAKES[self.name].words} | {self.by} | {self.broken} |\n"


def find(name: str, most: int) -> FoundMistake | None:
    mistake = MISTAKES[name]
    if mistake.test:
        return _found_by_test(name) if failure(name) else None
    for seed in range(most):
        with planted(name):
            verdict = run(mistake.case(seed))
        if not verdict.ok:
            if not run(mistake.case(seed)).ok:
                print(f"{name}: seed {seed} does not hold with the rule either: look into it", flush=True)
                continue
            broken = _VARYING.sub("…", verdict.problems[0])[:90]
            return FoundMistake(name=name, seed=seed, by=str(seed + 1), broken=broken)
    return None


def _found_by_test(name: str) -> FoundMistake:
    path, _, which = MISTAKES[name].test.partition("::")
    title = which.partition("[")[0].removeprefix("test_").replace("_", " ") or Path(path.split()[0]).stem
    by = f"[{title}](../{path.split()[0]})"
    return FoundMistake(name=name, seed=None, by=by, broken="the test fails")


def failure(name: str) -> str:
    """How its test fails without the rule; "" where it does not. Any other end is an error."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-rf",
        "-p",
        "no:cacheprovider",
        "-p",
        "support.year.plugin",
    ]
    found = subprocess.run(
        [*command, *MISTAKES[name].test.split()],
        cwd=ROOT,
        env=os.environ | {"CALVE_MISTAKE": name, "PYTHONPATH": "tests"},
        capture_output=True,
        text=True,
    )
    if found.returncode not in (0, 1) or "ERROR" in found.stdout:
        raise AssertionError(f"{name}: {found.stdout[-2000:]}{found.stderr[-500:]}")
    return next(
        (
            line.partition(" - ")[2] or "it fails"
            for line in found.stdout.splitlines()
            if line.startswith("FAILED")
        ),
        "",
    )


def told() -> Iterator[FoundMistake]:
    """As the page has them."""
    for name, _, by, broken in _ROW.findall(PAGE.read_text()):
        yield FoundMistake(
            name=name, seed=int(by) - 1 if _SEEDS.fullmatch(by) else None, by=by, broken=broken
        )


def write(most: int, only: tuple[str, ...] = ()) -> int:
    """1 if one was not found. The page keeps what is not looked for."""
    kept, missed = {one.name: one for one in told()}, 0
    for name in only or MISTAKES:
        found = find(name, most)
        print(f"{name}: {f'{found.by}: {found.broken}' if found else f'not in {most} seeds'}", flush=True)
        kept.pop(name, None)
        if found is None:
            missed = 1
        else:
            kept[name] = found
        before, _, rest = PAGE.read_text().partition(_HEAD)
        rows = "".join(kept[each].row for each in MISTAKES if each in kept)
        after = _ROW.sub("", rest).lstrip("\n")
        PAGE.write_text(f"{before}{_HEAD}{rows}\n{after}")
    return missed
