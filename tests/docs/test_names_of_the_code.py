"""A name stands for one thing in the whole tree, and modules are nouns."""

import ast
from collections import defaultdict
from pathlib import Path

SOURCES = sorted((Path(__file__).parents[2] / "src").rglob("*.py"))
# Nouns, for all their ending; and what the client shows a process as, which is a process of the model.
NOUNS = {"wiring", "finding"}
SHOWN_BY_THE_CLIENT = {"Process"}


def test_no_two_public_classes_share_a_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path.name)
    assert {name: found for name, found in places.items() if len(found) > 1}.keys() == SHOWN_BY_THE_CLIENT


def test_no_module_is_named_by_a_gerund() -> None:
    assert {path.stem for path in SOURCES if path.stem.endswith("ing")} == NOUNS
