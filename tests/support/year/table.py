"""What finds each rule that is removed, as docs/year.md shows it: the seeds it took, and what was broken."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.year.mistakes import MISTAKES, planted
from support.year.run import run

PAGE = Path(__file__).parents[3] / "docs" / "year.md"
_HEAD = "| removed | in words | seeds | what was broken |\n| --- | --- | --- | --- |\n"
_ROW = re.compile(r"^\| `(\w+)` \| (.*?) \| (\d+) \| (.*) \|$", re.MULTILINE)
_VARYING = re.compile(r"\b[a-z0-9]{13}\b|\S*\d\S*")


@dataclass(frozen=True, kw_only=True)
class FoundMistake:
    name: str
    seeds: int  # that it took, from 0 on
    broken: str

    @property
    def seed(self) -> int:
        return self.seeds - 1

    @property
    def row(self) -> str:
        return f"| `{self.name}` | {MISTAKES[self.name].words} | {self.seeds} | {self.broken} |\n"


def find(name: str, most: int) -> FoundMistake | None:
    for seed in range(most):
        with planted(name):
            verdict = run(MISTAKES[name].case(seed))
        if not verdict.ok:
            return FoundMistake(name=name, seeds=seed + 1, broken=_VARYING.sub("…", verdict.problems[0])[:90])
    return None


def told() -> Iterator[FoundMistake]:
    """As the page has them."""
    for name, _, seeds, broken in _ROW.findall(PAGE.read_text()):
        yield FoundMistake(name=name, seeds=int(seeds), broken=broken)


def write(most: int, only: tuple[str, ...] = ()) -> int:
    """1 if one was not found. The page keeps what is not looked for."""
    kept, missed = {one.name: one for one in told()}, 0
    for name in only or MISTAKES:
        found = find(name, most)
        print(f"{name}: {f'{found.seeds}: {found.broken}' if found else f'not in {most} seeds'}", flush=True)
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
