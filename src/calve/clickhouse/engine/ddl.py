"""The scratch table's CREATE, written from what the source says of a table.

Kept is what reading parts needs: columns with their types and defaults (a part that is older
than a column gets the default), the partition key, the sorting key, granularity. Left out is
all that acts on its own or needs a server: TTL (W8: expired rows would vanish), Replicated
and Shared engines, storage policies and disks, codecs, indexes, projections, constraints,
statistics, comments, every other setting. It is written from columns and clauses, and not by
cutting words out of the source's own CREATE: what is not named here cannot slip through.

Time zones are made explicit: a DateTime without a zone means its server's, and executors run elsewhere.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from calve.clickhouse.sql.create_table import EngineClause
from calve.clickhouse.sql.tokens import Sort, called, name, tokens
from calve.clickhouse.sql.types import (
    Array,
    DateTime,
    DateTime64,
    Element,
    LowCardinality,
    Map,
    Nested,
    Nullable,
    SimpleAggregateFunction,
    Tuple,
    Type,
    parse,
)
from calve.clickhouse.tables import Column, TableInfo
from calve.model.errors import RefusedError


def explicit(text: str, zone: str) -> str:
    """The type with its zone named; as it was where none is meant."""
    kind = parse(text)
    said = _said(kind, zone)
    return text if said == kind else str(said)


def _said(kind: Type, zone: str) -> Type:
    match kind:
        case DateTime(None):
            return DateTime(zone)
        case DateTime64(precision, None):
            return DateTime64(precision, zone)
        case Nullable(inner):
            return Nullable(_said(inner, zone))
        case LowCardinality(inner):
            return LowCardinality(_said(inner, zone))
        case SimpleAggregateFunction(function, inner):
            return SimpleAggregateFunction(function, _said(inner, zone))
        case Array(inner):
            return Array(_said(inner, zone))
        case Map(key, value):
            return Map(_said(key, zone), _said(value, zone))
        case Tuple(elements):
            return Tuple(_elements(elements, zone))
        case Nested(elements):
            return Nested(_elements(elements, zone))
        case _:
            return kind


def _elements(elements: tuple[Element, ...], zone: str) -> tuple[Element, ...]:
    return tuple(Element(element.name, _said(element.type, zone)) for element in elements)


_KEPT_SETTINGS = frozenset(
    {"index_granularity", "index_granularity_bytes", "enable_mixed_granularity_parts"}
    | {"allow_experimental_reverse_key"}
)
_OWN_SETTINGS = {
    "allow_nullable_key": "1",
    "allow_floating_point_partition_key": "1",
    "remove_empty_parts": "0",  # an empty part stays, so that parts can be counted
    "parts_to_delay_insert": "0",
    "parts_to_throw_insert": "0",
}
# Their answers depend on the server, not on the row.
_SERVER_FUNCTIONS = frozenset(
    {"joinget", "joingetornull", "getmacro", "hostname", "fqdn", "serveruuid", "currentdatabase"}
    | {"currentuser", "user", "getserverport", "uptime", "filesystemavailable", "file", "catboostevaluate"}
)
_DICTIONARY = "dict"  # dictGet, dictGetOrDefault, dictHas, dictIsIn, …
_SET_ASIDE = "a default that needs a dictionary, a UDF or the server itself"


@dataclass(frozen=True, kw_only=True)
class ScratchTable:
    """The CREATE with `{table}` for the name. `stripped` names columns whose default could not be
    kept: a part without such a column cannot be read correctly here."""

    create: str
    stripped: tuple[str, ...] = ()

    def refuse_parts_without(self, parts: Iterable[tuple[str, frozenset[str]]]) -> None:
        """RefusedError if one of `(part's name, its columns)` lacks a stripped column: its values
        would silently become zeros."""
        for part, columns in parts:
            absent = [column for column in self.stripped if column not in columns]
            if absent:
                raise RefusedError(
                    f"part {part} has no values for column {absent[0]}, and {_SET_ASIDE} cannot be "
                    "computed away from it",
                    code="default_not_portable",
                    hint=f"run ALTER TABLE … MATERIALIZE COLUMN {name(absent[0])}, or exclude the column",
                )


def scratch_table(table: TableInfo, *, final: bool = False) -> ScratchTable:
    """The table to read parts of `table` through; with `final` its merging engine is kept, so that
    FINAL can be asked of it."""
    columns, stripped = _portable(table)
    written = ", ".join(_column(column, table.timezone) for column in columns)
    create = f"CREATE TABLE {{table}} ({written}) ENGINE = {_engine(table, final=final)}"
    return ScratchTable(create=create, stripped=stripped)


def _portable(table: TableInfo) -> tuple[list[Column], tuple[str, ...]]:
    """Columns without what an executor cannot compute. An ALIAS goes wholly, and what refers to it
    is looked at again."""
    columns = list(table.columns)
    gone: set[str] = set()
    stripped: list[str] = []
    while True:
        bad = next((column for column in columns if not _computable(column, table, gone)), None)
        if bad is None:
            return columns, tuple(stripped)
        at = columns.index(bad)
        if bad.default_kind == "ALIAS":
            gone.add(bad.name)
            del columns[at]
            continue
        if bad.default_kind != "EPHEMERAL":
            stripped.append(bad.name)
        kind = "EPHEMERAL" if bad.default_kind == "EPHEMERAL" else ""
        columns[at] = Column(name=bad.name, type=bad.type, default_kind=kind)


def _computable(column: Column, table: TableInfo, gone: set[str]) -> bool:
    words = list(tokens(column.default_expression))
    if any(word.sort in (Sort.NAME, Sort.QUOTED) and word.value in gone for word in words):
        return False
    return not any(needs_server(function, table) for function in called(words))


def needs_server(function: str, table: TableInfo) -> bool:
    """Whether only the source itself can compute a function."""
    return function in table.user_functions or asks_server(function)


def asks_server(function: str) -> bool:
    """Whether a function's answer depends on where it runs: on a dictionary, a file, the server."""
    folded = function.casefold()
    return folded in _SERVER_FUNCTIONS or (folded.startswith(_DICTIONARY) and folded != _DICTIONARY)


def _column(column: Column, zone: str) -> str:
    """With its time zone said: a type keeps the zone it was made with, so one without would mean the
    executor's, also in defaults and in a row filter (P3)."""
    text = f"{name(column.name)} {explicit(column.type, zone)}"
    if column.default_kind:
        text += f" {column.default_kind}"
    if column.default_expression:
        text += f" {column.default_expression}"
    return text


def _engine(table: TableInfo, *, final: bool) -> str:
    clause = table.clause
    if final and clause.family == "GraphiteMergeTree":
        raise RefusedError(
            f"table {table}: the rollup of GraphiteMergeTree is in its server's configuration, "
            "so its merged view cannot be computed elsewhere",
            code="final_not_portable",
            hint="export without --final",
        )
    family = clause.family if final else "MergeTree"
    if clause.old_syntax:
        return f"{family}({', '.join(_old_arguments(clause, final=final))})"
    arguments = f"({', '.join(clause.family_arguments)})" if final and clause.family_arguments else ""
    return f"{family}{arguments}{_keys(table)} SETTINGS {_settings(clause)}"


def _old_arguments(clause: EngineClause, *, final: bool) -> tuple[str, ...]:
    """date, [sampling,] key, granularity; what follows belongs to the merging engine."""
    arguments = clause.family_arguments
    if final:
        return arguments
    granularity = next(at for at, argument in enumerate(arguments) if argument.isdigit())
    return arguments[: granularity + 1]


def _keys(table: TableInfo) -> str:
    clause = table.clause
    partition_by = clause.partition_by
    if any(needs_server(function, table) for function in called(list(tokens(partition_by)))):
        raise RefusedError(
            f"table {table}: its partition key {partition_by} calls a function that only its server has",
            code="partition_key_not_portable",
        )
    text = f" PARTITION BY {partition_by}" if partition_by else ""
    sorting = f"{clause.primary_key} {clause.order_by}"
    if any(needs_server(function, table) for function in called(list(tokens(sorting)))):
        return f"{text} ORDER BY tuple()"
    if clause.primary_key:
        text += f" PRIMARY KEY {clause.primary_key}"
    return f"{text} ORDER BY {clause.order_by or 'tuple()'}"


def _settings(clause: EngineClause) -> str:
    kept = {key: value for key, value in clause.settings.items() if key in _KEPT_SETTINGS}
    return ", ".join(f"{key} = {value}" for key, value in (kept | _OWN_SETTINGS).items())


LENIENT = {
    "allow_deprecated_syntax_for_merge_tree": "1",
    "allow_suspicious_low_cardinality_types": "1",
    "allow_suspicious_fixed_string_types": "1",
    "allow_suspicious_variant_types": "1",
    "allow_suspicious_types_in_order_by": "1",
    "allow_suspicious_primary_key": "1",
    "allow_suspicious_codecs": "1",
    "allow_suspicious_indices": "1",
    "allow_suspicious_ttl_expressions": "1",
    "allow_experimental_qbit_type": "1",
    "allow_nondeterministic_mutations": "1",
    "enable_time_time64_type": "1",
    "flatten_nested": "0",
}
