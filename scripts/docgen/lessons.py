"""docs/lessons.md: which test holds which lesson."""

import re
from collections import defaultdict
from pathlib import Path

HEAD = """\
# Lessons

Each line is a failure that a real system of this kind has had (L), that peers reported (P), that
trying this design showed (D), or that the engine's defaults cause silently when data files are
written (W), or that trying the first release showed (T). Each has tests, named after its number, that fail without the fix.

| lesson | tests |
| --- | --- |
"""
_TEST = re.compile(r"^\s*(?:async )?def (test_([LPDWT]\d+)_\w+)", re.MULTILINE)
_CLASS = re.compile(r"^class (Test_?([LPDWT]\d+)_\w+)", re.MULTILINE)


def tests_of_lessons(tests: tuple[Path, ...], root: Path) -> dict[str, list[str]]:
    """A link to each test, by the number in its name."""
    found: dict[str, list[str]] = defaultdict(list)
    for folder in tests:
        for path in sorted(folder.rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            for pattern in (_TEST, _CLASS):
                for name, number in pattern.findall(text):
                    found[number].append(f"[{name}](../{path.relative_to(root).as_posix()})")
    return found


def page(lessons: Path, found: dict[str, list[str]]) -> str:
    listed = dict(line.split("\t") for line in lessons.read_text(encoding="utf-8").splitlines())
    if without := sorted(listed.keys() ^ found.keys()):
        raise SystemExit(f"lessons without a test, or tests of lessons that {lessons.name} lacks: {without}")
    rows = [
        f"| **{number}** {words.replace('|', chr(92) + '|')} | {'<br>'.join(found[number])} |"
        for number, words in listed.items()
    ]
    return HEAD + "\n".join(rows) + "\n"
