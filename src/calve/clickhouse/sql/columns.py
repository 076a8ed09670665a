"""The columns that a CREATE TABLE declares, all of them, including those that the user may not read."""

import re
from collections.abc import Sequence

from calve.clickhouse.sql import tokens
from calve.clickhouse.sql.tokens import Sort, Token

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
    for token in tokens.tokens(create):
        if token.sort is not Sort.SIGN or token.text not in "()":
            continue
        start = token.end if start < 0 else start
        depth += 1 if token.text == "(" else -1
        if depth == 0:
            end = token.start
            break
    if start < 0:
        return []
    items = tokens.split_arguments(create[start:end])
    return [list(tokens.tokens(item)) for item in items if item and not _NO_COLUMN.match(item)]


def _has_ttl(words: Sequence[Token]) -> bool:
    depth = 0
    for word in words[1:]:
        if word.sort is Sort.SIGN and word.text in "()":
            depth += 1 if word.text == "(" else -1
        elif depth == 0 and word.sort is Sort.NAME and word.text == "TTL":
            return True
    return False
