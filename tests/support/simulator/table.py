"""What finds each planted mistake, as docs/simulator.md shows it: the seeds it took, and what was broken."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.simulator import bugs_archives, bugs_upkeep
from support.simulator.bugs import BUGS, planted
from support.simulator.copies import COPIES, is_copied
from support.simulator.run import run
from support.simulator.shrink import symptom
from support.simulator.storm import storm_of_seed
from support.simulator.world import Case

assert bugs_archives and bugs_upkeep  # importing them names their mistakes

PAGE = Path(__file__).parents[3] / "docs" / "simulator.md"
OTHER_KINDS = ("archives", "manifests", "folders", "upkeep", "tables")
_HEAD = "| mistake | in words | seeds | what was broken |\n| --- | --- | --- | --- |\n"
_ROW = re.compile(r"^\| `(\w+)` \| (.*?) \| (\d+) \| (.*) \|$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Found:
    bug: str
    seeds: int  # that it took, from 0 on
    broken: str

    @property
    def seed(self) -> int:
        return self.seeds - 1


def find(bug: str, most: int) -> Found | None:
    for seed in range(most):
        if not _may_meet(BUGS[bug].storm, seed):
            continue
        with planted(bug):
            verdict = run(Case(seed=seed))
        if not verdict.ok and run(Case(seed=seed)).ok:
            return Found(bug=bug, seeds=seed + 1, broken=symptom(verdict))
    return None


def _may_meet(storm: str, seed: int) -> bool:
    """Whether something in that history can meet a mistake of such a storm."""
    found = storm_of_seed(seed).name
    if storm == COPIES:
        return is_copied(seed, found)
    return found == storm if storm else found not in OTHER_KINDS


def told() -> Iterator[Found]:
    """As the page has them."""
    for name, _, seeds, broken in _ROW.findall(PAGE.read_text()):
        yield Found(bug=name, seeds=int(seeds), broken=broken)


def write(most: int) -> int:
    """1 if one was not found; the page is written with the others."""
    rows, missed = [], []
    for name, bug in BUGS.items():
        found = find(name, most)
        print(f"{name}: {found.seeds if found else f'not in {most} seeds'}", flush=True)
        if found is None:
            missed.append(name)
        else:
            rows.append(f"| `{name}` | {bug.words} | {found.seeds} | {found.broken} |\n")
    before, _, rest = PAGE.read_text().partition(_HEAD)
    after = _ROW.sub("", rest).lstrip("\n")
    PAGE.write_text(f"{before}{_HEAD}{''.join(rows)}\n{after}")
    return 1 if missed else 0
