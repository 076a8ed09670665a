"""The ENGINE clause of a table, taken apart: `system.tables.engine_full`, both syntaxes.

`system.tables.sorting_key` leaves out DESC, so the clause itself is read.

The columns that a CREATE TABLE declares, all of them, including those that the user may not read.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from calve.clickhouse.sql.tokens import Sort, Token, split_arguments, tokens

_OPENERS = {
    ("PARTITION", "BY"): "partition_by",
    ("PRIMARY", "KEY"): "primary_key",
    ("ORDER", "BY"): "order_by",
    ("UNIQUE", "KEY"): "unique_key",
    ("SAMPLE", "BY"): "sample_by",
}
_SINGLE = {"TTL": "ttl", "SETTINGS": "settings"}


@dataclass(frozen=True, kw_only=True)
class EngineClause:
    """`name(arguments…) PARTITION BY … ORDER BY … SETTINGS …`"""

    name: str
    arguments: tuple[str, ...] = ()
    partition_by: str = ""
    primary_key: str = ""
    order_by: str = ""
    sample_by: str = ""
    ttl: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def replicated(self) -> bool:
        return self.name.startswith(("Replicated", "Shared"))

    @property
    def family(self) -> str:
        """The engine without what only a server has."""
        return self.name.removeprefix("Replicated").removeprefix("Shared")

    @property
    def family_arguments(self) -> tuple[str, ...]:
        """The arguments without the Keeper path and replica name."""
        if self.replicated and len(self.arguments) >= 2 and self.arguments[0].startswith("'"):
            return self.arguments[2:]
        return self.arguments

    @property
    def old_syntax(self) -> bool:
        """`MergeTree(date, key, 8192)`: parts are named by dates and know no partition."""
        return not self.order_by and any(argument.isdigit() for argument in self.family_arguments)


def parse(text: str) -> EngineClause:
    """Take `engine_full` apart."""
    words = list(tokens(text))
    pieces: dict[str, str] = {}
    label, start, depth = "engine", 0, 0
    at = 0
    while at < len(words):
        word = words[at]
        if word.sort is Sort.SIGN and word.text in "([{":
            depth += 1
        elif word.sort is Sort.SIGN and word.text in ")]}":
            depth -= 1
        elif depth == 0 and (opened := _opens(words, at)) is not None:
            pieces[label] = text[start : word.start].strip()
            label, length = opened
            start = words[at + length - 1].end
            at += length - 1
        at += 1
    pieces[label] = text[start:].strip()
    engine, _, rest = pieces.pop("engine").partition("(")
    pieces.pop("unique_key", None)
    return EngineClause(
        name=engine.strip(),
        arguments=tuple(split_arguments(rest.rpartition(")")[0])),
        settings=_settings(pieces.pop("settings", "")),
        **pieces,
    )


def _opens(words: list[Token], at: int) -> tuple[str, int] | None:
    """The clause that begins at this word, and how many words begin it."""
    word = words[at]
    if word.sort is not Sort.NAME or at == 0:
        return None
    if word.text in _SINGLE:
        return _SINGLE[word.text], 1
    if at + 1 < len(words) and (pair := (word.text, words[at + 1].text)) in _OPENERS:
        return _OPENERS[pair], 2
    return None


def _settings(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in split_arguments(text):
        key, _, value = item.partition("=")
        found[key.strip()] = value.strip()
    return found


_NO_COLUMN = re.compile(r"(?:INDEX|CONSTRAINT|PROJECTION|STATISTICS|PRIMARY)\b")


def declared_columns(create: str) -> list[str]:
    """Their names, in order; none where the statement is not shown."""
    return [words[0].value for words in _declarations(create)]


def columns_with_ttl(create: str) -> list[str]:
    """Those that have a TTL of their own."""
    return [words[0].value for words in _declarations(create) if _has_ttl(words)]


def _declarations(create: str) -> list[list[Token]]:
    """Each column's words; indexes, constraints and projections left out."""
    start, depth, end = -1, 0, len(create)
    for token in tokens(create):
        if token.sort is not Sort.SIGN or token.text not in "()":
            continue
        start = token.end if start < 0 else start
        depth += 1 if token.text == "(" else -1
        if depth == 0:
            end = token.start
            break
    if start < 0:
        return []
    items = split_arguments(create[start:end])
    return [list(tokens(item)) for item in items if item and not _NO_COLUMN.match(item)]


def _has_ttl(words: Sequence[Token]) -> bool:
    depth = 0
    for word in words[1:]:
        if word.sort is Sort.SIGN and word.text in "()":
            depth += 1 if word.text == "(" else -1
        elif depth == 0 and word.sort is Sort.NAME and word.text == "TTL":
            return True
    return False
