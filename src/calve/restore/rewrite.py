"""The engine's own tree as the judge of a CREATE that was rewritten for another name (T5, T6).

`references` finds names by words and where they stand. Here the parser says what each of them is: only
names of tables may have changed, and only to the names they are restored by; and no table of the original
may be left. What does not pass is refused; nothing is made of it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from calve.clickhouse.embedded.parser import Parser, parser
from calve.clickhouse.sql.filters import Node
from calve.model.errors import PermanentError, RefusedError
from calve.restore.references import Name, names_tables

_ALIAS = re.compile(r" \(alias .*\)$")
_IN = re.compile(r"(global)?(not)?(null)?in(ignoreset)?", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Rewritten:
    """One statement, as the backup has it and as it is to be run."""

    owner: str
    before: str
    after: str


def refuse_other_changes(statements: Iterable[Rewritten], renamed: Mapping[Name, Name]) -> None:
    """RefusedError for the first that changes more, or less, than the names of tables. Starts the parser
    only for statements that mention a database from which something is restored under another name."""
    moved = {old: new for old, new in renamed.items() if old != new}
    databases = {old[0] for old in moved}
    asked = [one for one in statements if any(_mentions(one.before, database) for database in databases)]
    if not moved or not asked:
        return
    with parser() as parses:
        for one in asked:
            _Judge(one.owner, moved).compare(_tree(parses, one, one.before), _tree(parses, one, one.after))


def _mentions(create: str, database: str) -> bool:
    """Beyond the object's own name."""
    return create.count(database) > 1


def _tree(parses: Parser, one: Rewritten, statement: str) -> Node:
    try:
        return parses.tree(parses.normal(statement))
    except (PermanentError, ValueError) as error:
        raise RefusedError(
            f"{one.owner}: this version of the engine does not parse its statement, so its references cannot be "
            f"checked: {error}",
            code="restore_reference",
            hint="restore it under its own name, without --as, or leave it out with --tables",
        ) from None


class _Judge:
    def __init__(self, owner: str, moved: Mapping[Name, Name]) -> None:
        self._owner = owner
        self._moved = {".".join(old): ".".join(new) for old, new in moved.items()}

    def compare(self, before: Node, after: Node, above: tuple[Node, ...] = (), place: int = 0) -> None:
        same_shape = before.kind == after.kind and len(before.children) == len(after.children)
        if not same_shape or (
            before.text != after.text and not self._may_change(before, after, above, place)
        ):
            raise self._refusal(f"{_shown(before)} would become {_shown(after)}")
        if after.kind == "TableIdentifier" and before.text == after.text and _name(after) in self._moved:
            raise self._refusal(f"{_name(after)} would still be the original")
        for at, (one, other) in enumerate(zip(before.children, after.children, strict=True)):
            self.compare(one, other, (*above, before), at)

    def _may_change(self, before: Node, after: Node, above: tuple[Node, ...], place: int) -> bool:
        old, new = _name(before), _name(after)
        match before.kind:
            case "CreateQuery":
                return True  # its name
            case "TableIdentifier":
                return self._moved.get(old) == new
            case "Identifier" if len(above) == 1 and place < 2:
                return True  # its name again
            case "Identifier" if any(
                old.startswith(f"{one}.") and new == f"{other}{old[len(one) :]}"
                for one, other in self._moved.items()
            ):
                return True  # a column, by its table's full name
            case "Identifier" if place == 1 and _IN.fullmatch(_function(above)):
                return self._moved.get(old) == new
            case "Identifier" | "Literal":
                return names_tables(_function(above)) or above[-1].kind == "pair"
        return False

    def _refusal(self, why: str) -> RefusedError:
        return RefusedError(
            f"{self._owner} cannot be rewritten for another name: {why}",
            code="restore_reference",
            hint="restore it under its own name, without --as, or leave it out with --tables",
        )


def _name(node: Node) -> str:
    return _ALIAS.sub("", node.text)


def _function(above: tuple[Node, ...]) -> str:
    """The call whose argument a node is; "" for none."""
    if len(above) < 2 or above[-1].kind != "ExpressionList" or above[-2].kind != "Function":
        return ""
    return _name(above[-2])


def _shown(node: Node) -> str:
    return f"{node.kind} {node.text}"[:120]
