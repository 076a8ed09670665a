"""The tree that ClickHouse's own parser makes of a statement, read from its EXPLAIN AST. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_LINE = re.compile(r"(?P<indent> *)(?P<kind>\w+)(?: (?P<text>.*?))??(?: \(children (?P<children>\d+)\))?")


@dataclass(frozen=True)
class Node:
    """`kind` is the parser's word: Function, Identifier, Literal, ExpressionList, Subquery, …"""

    kind: str
    text: str
    children: tuple["Node", ...] = ()

    @property
    def arguments(self) -> tuple["Node", ...] | None:
        """A plain call's arguments; None where it also has parameters, a window, or anything else."""
        match self.children:
            case (Node(kind="ExpressionList", children=given),):
                return given
            case ():
                return ()
            case _:
                return None


def tree(explained: str) -> Node:
    """ValueError for text that is not a tree."""
    lines: Iterator[re.Match[str] | None] = (
        _LINE.fullmatch(line) for line in explained.split("\n") if line.strip()
    )
    root = _node(lines, 0)
    if next(lines, None) is not None:
        raise ValueError("text after the tree")
    return root


def _node(lines: Iterator[re.Match[str] | None], depth: int) -> Node:
    line = next(lines, None)
    if line is None or len(line["indent"]) != depth:
        raise ValueError("a line that does not belong to the tree")
    children = tuple(_node(lines, depth + 1) for _ in range(int(line["children"] or 0)))
    return Node(line["kind"], line["text"] or "", children)
