"""Tables as a person names them: `[source:]db.table`, with backquotes where needed."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from calve.clickhouse.sql.tokens import name, unquote
from calve.model.errors import UsageError

_PIECE = r"`(?:[^`\\]|\\.|``)+`|[^`.:\s]+"
_TABLE = re.compile(rf"(?:(?P<source>{_PIECE}):)?(?:(?P<database>{_PIECE})\.)?(?P<table>{_PIECE})", re.DOTALL)
_BARE = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True, kw_only=True)
class TableName:
    """A table of a source; `source` is None where the person left it to the default."""

    source: str | None
    database: str
    table: str

    @property
    def sql(self) -> str:
        """For a statement."""
        return f"{name(self.database)}.{name(self.table)}"

    def __str__(self) -> str:
        """For a person; `parse` reads it back."""
        prefix = "" if self.source is None else f"{_shown(self.source)}:"
        return f"{prefix}{_shown(self.database)}.{_shown(self.table)}"


def parse(text: str, default_database: Callable[[str | None], str] = lambda _source: "") -> TableName:
    """UsageError for an invalid name, and for one without a database where its source has no default."""
    found = _TABLE.fullmatch(text.strip())
    source, database, table = (
        (_plain(piece) for piece in found.group("source", "database", "table")) if found else ("", "", "")
    )
    database = database or (default_database(source) if found else "")
    if not database or not table:
        raise UsageError(
            f"invalid table name {text!r}",
            code="table_name",
            hint="give it as db.table or source:db.table, with backquotes around "
            "names that have dots, colons, spaces or backquotes: 'db.`my.table`'",
        )
    return TableName(source=source, database=database, table=table)


def _plain(piece: str | None) -> str | None:
    if piece is None or not piece.startswith("`"):
        return piece
    return unquote(piece)


def _shown(piece: str) -> str:
    return piece if _BARE.fullmatch(piece) else name(piece)
