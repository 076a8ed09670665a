"""Add up what the test programs of a run left in a folder, and write docs/figures/suite.json: `make figures`."""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def added(folder: Path) -> dict[str, Any]:
    """Nested by words: {"commit": {"timeout": {"landed": 12}}}."""
    total: Counter[tuple[str, ...]] = Counter()
    for file in folder.glob("*.json"):
        for *what, times in json.loads(file.read_text(encoding="utf-8")):
            total[tuple(what)] += times
    tree: dict[str, Any] = {}
    for what, times in sorted(total.items()):
        place = tree
        for word in what[:-1]:
            place = place.setdefault(word, {})
        place[what[-1]] = times
    return tree


def main(folder: Path) -> None:
    out = ROOT / "docs" / "figures" / "suite.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(added(folder), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
