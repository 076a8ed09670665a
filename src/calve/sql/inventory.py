"""SHOW, DESCRIBE and EXISTS over the tables there are, as a SELECT of constants: clients and people ask them first."""

from collections.abc import Sequence

from calve.clickhouse.sql.tokens import string
from calve.sql import codes
from calve.sql.statement import Asks, Inspection
from calve.sql.tables import TABLES

_DATABASES = sorted({name.partition(".")[0] for name in TABLES})
_OF_A_COLUMN = ("default_type", "default_expression", "comment", "codec_expression", "ttl_expression")


def select_of(look: Inspection) -> str:
    """UsageError for a table that is not there, unless that is the question."""
    match look.asks:
        case Asks.DATABASES:
            return _listed(_DATABASES, look)
        case Asks.TABLES:
            database = look.name or "calve"
            if database not in _DATABASES and database != "default":
                raise codes.wrong(
                    f"there is no database {database[:100]!r}",
                    code=codes.DATABASE,
                    hint=f"there are {', '.join(_DATABASES)}",
                )
            names = [name.partition(".") for name in TABLES]
            return _listed([table for own, _, table in names if own == database], look)
        case Asks.COLUMNS:
            return _columns(look)
        case Asks.DATABASE_EXISTS:
            return f"SELECT toUInt8({int(look.name in _DATABASES)}) AS result"
        case Asks.TABLE_EXISTS:
            return f"SELECT toUInt8({int(_full(look.name) in TABLES)}) AS result"


def _listed(names: Sequence[str], look: Inspection) -> str:
    values = ", ".join(map(string, ["", *names]))  # with one that is dropped: no list is empty
    chosen = f" AND name LIKE {string(look.like)}" if look.like else ""
    return f"SELECT name FROM (SELECT arrayJoin([{values}]) AS name) WHERE name != ''{chosen} ORDER BY name"


def _columns(look: Inspection) -> str:
    table = TABLES.get(_full(look.name))
    if table is None:
        hint = f"there are {', '.join(TABLES)}"
        raise codes.wrong(f"there is no table {look.name[:100]}", code=codes.TABLE, hint=hint)
    values = ", ".join(f"({string(name)}, {string(kind)})" for name, kind in table.schema.columns)
    empty = ", ".join(f"'' AS {name}" for name in _OF_A_COLUMN)
    return f"SELECT one.1 AS name, one.2 AS type, {empty} FROM (SELECT arrayJoin([{values}]) AS one)"


def _full(name: str) -> str:
    return name if "." in name else f"calve.{name}"
