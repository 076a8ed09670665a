"""What a source has: which tables the patterns match, and the DDL around them in an order that works."""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from calve.archive.manifest import SchemaEntry
from calve.clickhouse.source import Session
from calve.clickhouse.sql.tokens import name as quoted
from calve.clickhouse.sql.tokens import string
from calve.clickhouse.tables import system_columns
from calve.model.errors import NotFoundError

Name = tuple[str, str]  # database and table

_NEVER = ("system", "INFORMATION_SCHEMA", "information_schema", "calve_pins", "calve_restore")
_HOLD_ROWS = frozenset(
    {"Log", "TinyLog", "StripeLog", "Memory", "Set", "Join", "EmbeddedRocksDB", "KeeperMap", "File"}
)
_RANKS = {"Dictionary": 1, "View": 3, "MaterializedView": 4, "LiveView": 4, "WindowView": 4}


@dataclass(frozen=True, kw_only=True)
class Found:
    """What the patterns mean, now."""

    tables: tuple[Name, ...]  # of the MergeTree family
    schemas: tuple[Name, ...]


def match(session: Session, patterns: Sequence[str]) -> Found:
    """NotFoundError names a pattern that means nothing."""
    rows = session.rows(
        f"SELECT database, name, engine FROM system.tables WHERE {_lasting(_columns(session))} "
        f"AND database NOT IN ({', '.join(map(string, _NEVER))}) ORDER BY database, name"
    )
    full = {(row["database"], row["name"]): str(row["engine"]) for row in rows}
    for pattern in patterns:
        if not any(fnmatchcase(".".join(name), pattern) for name in full):
            databases = ", ".join(sorted({database for database, _ in full})) or "none"
            raise NotFoundError(
                f"source {session.source} has no table that {pattern!r} means",
                code="no_table",
                hint=f"a pattern is db.table, db.* or *.*; its databases are {databases}",
            )
    wanted = [name for name in full if any(fnmatchcase(".".join(name), one) for one in patterns)]
    return Found(
        tables=tuple(name for name in wanted if full[name].endswith("MergeTree")),
        schemas=tuple(name for name in wanted if not full[name].endswith("MergeTree")),
    )


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The DDL of a backup."""

    databases: Mapping[str, str]
    functions: Mapping[str, str]
    schemas: tuple[SchemaEntry, ...]
    order: tuple[Name, ...]
    notes: tuple[tuple[str, str], ...]  # a table whose rows are not in the backup, and why


def read_schema(session: Session, tables: Sequence[Name], others: Sequence[Name]) -> Schema:
    """Tables that are gone by now are left out."""
    databases = sorted({database for database, _ in (*tables, *others)})
    rows = _tables(session, databases)
    wanted = frozenset((*tables, *others))
    known = {name: row for row in rows if (name := (row["database"], row["name"])) in wanted}
    schemas = tuple(
        SchemaEntry(
            database=name[0], name=name[1], engine=row["engine"], uuid=row["uuid"], create=row["create"]
        )
        for name, row in known.items()
        if name in frozenset(others)
    )
    return Schema(
        databases=_databases(session, databases),
        functions=_functions(session),
        schemas=schemas,
        order=in_order(
            {name: _RANKS.get(row["engine"], 0 if name in tables else 2) for name, row in known.items()},
            {name: [(item[0], item[1]) for item in row["needs"]] for name, row in known.items()},
        ),
        notes=tuple(
            (
                f"{one.database}.{one.name}",
                f"the engine {one.engine} has no parts: its structure alone is kept",
            )
            for one in schemas
            if one.engine in _HOLD_ROWS
        ),
    )


def detached_parts(session: Session, tables: Sequence[Name]) -> tuple[tuple[str, str], ...]:
    """Parts that the tables do not show: a freeze does not take them."""
    if not tables or ("detached_parts", "table") not in system_columns(session, ("detached_parts",)):
        return ()
    listed = ", ".join(f"({string(database)}, {string(name)})" for database, name in tables)
    rows = session.rows(
        "SELECT database, table, count() AS parts FROM system.detached_parts "
        f"WHERE (database, table) IN ({listed}) GROUP BY database, table ORDER BY database, table"
    )
    return tuple(
        (f"detached parts of {row['database']}.{row['table']}", f"{row['parts']} in its detached folder")
        for row in rows
    )


def in_order(ranks: Mapping[Name, int], needs: Mapping[Name, Iterable[Name]]) -> tuple[Name, ...]:
    """Each after all that it needs, otherwise by rank and name. A circle, which ClickHouse forbids,
    is cut at its lowest rank."""
    missing = {name: {need for need in needs.get(name, ()) if need in ranks} - {name} for name in ranks}
    dependents: dict[Name, list[Name]] = {name: [] for name in ranks}
    for name, all_needed in missing.items():
        for need in all_needed:
            dependents[need].append(name)
    ready = [(ranks[name], name) for name, all_needed in missing.items() if not all_needed]
    heapq.heapify(ready)
    done: dict[Name, None] = {}
    while len(done) < len(ranks):
        if not ready:
            left = min((ranks[name], name) for name in ranks if name not in done)
            heapq.heappush(ready, left)
        _, name = heapq.heappop(ready)
        if name in done:
            continue
        done[name] = None
        for dependent in dependents[name]:
            missing[dependent].discard(name)
            if not missing[dependent]:
                heapq.heappush(ready, (ranks[dependent], dependent))
    return tuple(done)


def _columns(session: Session) -> frozenset[Name]:
    return system_columns(session, ("tables", "functions"))


def _lasting(columns: frozenset[Name]) -> str:
    return (
        "NOT is_temporary"
        if ("tables", "is_temporary") in columns
        else "database != '_temporary_and_external_tables'"
    )


def _tables(session: Session, databases: Sequence[str]) -> list[dict[str, Any]]:
    """With what each needs to be loaded, where the version knows it."""
    if not databases:
        return []
    columns = _columns(session)
    uuid = "toString(uuid)" if ("tables", "uuid") in columns else "''"
    needs = ("loading_dependencies_database", "loading_dependencies_table")
    known = all(("tables", name) in columns for name in needs)
    asked = ", ".join(name if known else f"[] AS {name}" for name in needs)
    rows = session.rows(
        f"SELECT database, name, engine, {uuid} AS uuid, create_table_query AS create, "
        f"{asked} FROM system.tables "
        f"WHERE {_lasting(columns)} AND database IN ({', '.join(map(string, databases))}) ORDER BY database, name"
    )
    return [row | {"needs": list(zip(row[needs[0]], row[needs[1]], strict=True))} for row in rows]


def _databases(session: Session, databases: Sequence[str]) -> dict[str, str]:
    return {
        database: str(session.rows(f"SHOW CREATE DATABASE {quoted(database)}")[0]["statement"])
        for database in databases
    }


def _functions(session: Session) -> dict[str, str]:
    """SQL functions: any of the tables may use any of them, and they are small. Old versions have none."""
    if ("functions", "origin") not in _columns(session):
        return {}
    found = session.rows(
        "SELECT name, create_query FROM system.functions WHERE origin = 'SQLUserDefined' ORDER BY name"
    )
    return {row["name"]: row["create_query"] for row in found}
