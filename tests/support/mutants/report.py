"""What came of the mutants: kept by module, told as docs/figures/mutants.json, and judged with what is explained."""

import ast
import json
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.mutants.places import Mutant, mutants
from support.mutants.run import KILLED, UNFIT, Verdict

EXPLAINED = Path(__file__).with_name("explained.toml")


class Kept:
    """A file for each module: the last verdict of each mutant."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(self, module: str) -> dict[str, Any]:
        file = self._folder / f"{module}.json"
        return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}

    def verdict(self, mutant: Mutant) -> str:
        return str(self.of(mutant.module).get(mutant.name, {}).get("what", ""))

    def add(self, module: str, verdicts: Sequence[Verdict], *, whole: bool) -> None:
        found = ({} if whole else self.of(module)) | {one.mutant.name: one.to_json() for one in verdicts}
        self._folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(found, indent=1)
        (self._folder / f"{module}.json").write_text(text, encoding="utf-8")


def explained() -> dict[str, str]:
    """Why no test can notice a mutant, or need not, by its module and name."""
    reasons = tomllib.loads(EXPLAINED.read_text(encoding="utf-8")).get("reason", [])
    return {mutant: reason["why"] for reason in reasons for mutant in reason["mutants"]}


def _names(root: Path, module: str) -> set[str]:
    """Of the mutants that its text has now: it may have changed since they were tried."""
    file = root / "src" / Path(*module.split(".")).with_suffix(".py")
    return {one.name for one in mutants(module, ast.parse(file.read_text(encoding="utf-8")))}


def write(root: Path, kept: Kept, modules: Sequence[str]) -> None:
    """Of all modules that were ever tried here."""
    reasons = explained()
    figures: dict[str, dict[str, int]] = {}
    why: Counter[str] = Counter()
    for module in modules:
        there = _names(root, module)
        found = {name: one for name, one in kept.of(module).items() if name in there and one["what"] != UNFIT}
        if not found:
            continue
        alive = {name for name, one in found.items() if one["what"] != KILLED}
        same = {name for name in alive if f"{module}: {name}" in reasons}
        why.update(reasons[f"{module}: {name}"] for name in same)
        figures[module] = {
            "mutants": len(there),
            "tried": len(found),
            "killed": len(found) - len(alive),
            "explained": len(same),
            "survived": len(alive - same),
        }
    file = root / "docs" / "figures" / "mutants.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    document = {"command": "make mutants", "modules": figures, "explained": dict(why.most_common())}
    text = json.dumps(document, indent=2)
    file.write_text(text + "\n", encoding="utf-8")
