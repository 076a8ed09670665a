"""The SQL that tiering sends to a server, read as far as the model needs it. A statement that nobody wrote down here is an error of
the simulator: then the product asks something new."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from calve.clickhouse.sql.tokens import parse as parse_name
from support.year.clickhouse import (
    TABLE_EXISTS,
    UNKNOWN_TABLE,
    Flip,
    Full,
    LakeRelation,
    ResidencyTable,
    YearTable,
    clickhouse_error,
)

if TYPE_CHECKING:
    from support.year.clickhouse import YearServer

Rows = list[dict[str, Any]]
Names = Mapping[str, str]
_T = r"(?:`[^`]+`|\w+)\.(?:`[^`]+`|\w+)"
_ANY = r"(?:.|\n)*"
_STATEMENTS: Mapping[str, re.Pattern[str]] = {
    kind: re.compile(text)
    for kind, text in {
        "nothing": rf"CREATE DATABASE {_ANY}|SYSTEM STOP MERGES {_ANY}",
        "still": rf"CREATE TABLE (?P<made>{_T}) AS (?P<like>{_T}) ENGINE{_ANY} COMMENT '(?P<comment>[^']*)'",
        "move": rf"ALTER TABLE (?P<of>{_T}) MOVE PARTITION ID '(?P<partition>[^']*)' TO TABLE (?P<into>{_T})",
        "drop_part": rf"ALTER TABLE (?P<table>{_T}) DROP PART '(?P<part>[^']*)'",
        "rename": rf"RENAME TABLE (?P<old>{_T}) TO (?P<new>{_T})",
        "drop": rf"DROP TABLE IF EXISTS (?P<table>{_T})(?: SYNC)?",
        "kill": r"KILL QUERY WHERE query_id = '(?P<query>[^']*)' SYNC",
        "pin": rf"CREATE OR REPLACE TABLE (?P<made>{_T}) ENGINE = Iceberg\('(?P<place>[^']*)'\)"
        r" SETTINGS iceberg_metadata_file_path = '(?P<metadata>[^']*)'",
        "residency": rf"CREATE TABLE IF NOT EXISTS (?P<made>{_T}) \(generation{_ANY} COMMENT '(?P<comment>{_ANY})'",
        "comment": rf"ALTER TABLE (?P<table>{_T}) MODIFY COMMENT '(?P<comment>{_ANY})'",
        "flip": rf"INSERT INTO (?P<table>{_T}) \(generation, writer, id, cold, lower, upper\) VALUES (?P<values>{_ANY})",
        "view": rf"CREATE OR REPLACE VIEW (?P<made>{_T}) {_ANY}COMMENT 'calve view of (?P<uuid>[^']*)'{_ANY}",
        "drop_view": rf"DROP VIEW IF EXISTS (?P<table>{_T})",
        "fill": rf"INSERT INTO (?P<table>{_T}) \(`?id{_ANY}FROM \((?P<select>{_ANY})\)",
    }.items()
}
_VALUE = re.compile(r"\((\d+), '([^']*)', '([^']*)', (\d), '([^']*)', '([^']*)'\)")


def full(text: str) -> Full:
    found = parse_name(text)
    return found.database, found.table


def kind_of(sql: str) -> tuple[str, Names]:
    for kind, pattern in _STATEMENTS.items():
        if found := pattern.fullmatch(sql.strip()):
            return kind, found.groupdict()
    raise AssertionError(f"the model does not know the statement {sql}")


def carry_out(server: "YearServer", kind: str, names: Names) -> None:
    match kind:
        case "nothing":
            pass
        case "still":
            _make_still(server, names)
        case "move":
            _move(server, names)
        case "drop_part":
            server.table_at(full(names["table"])).parts.pop(names["part"], None)
        case "rename":
            _rename(server, full(names["old"]), full(names["new"]))
        case "drop":
            _drop(server, full(names["table"]))
        case "kill":
            pass  # a statement is one instant here; one that is still on its way is not known to the server yet
        case "pin":
            server.relations[full(names["made"])] = LakeRelation(names["place"], names["metadata"])
        case "residency":
            server.residencies.setdefault(full(names["made"]), ResidencyTable(_unquoted(names["comment"])))
        case "comment":
            server.residencies[full(names["table"])].comment = _unquoted(names["comment"])
        case "flip":
            _flip(server, names)
        case "view":
            server.views[full(names["made"])] = names["uuid"]
        case "drop_view":
            server.views.pop(full(names["table"]), None)
        case "fill":
            _fill(server, names)
        case _:
            raise AssertionError(kind)


def _unquoted(text: str) -> str:
    return text.replace("\\'", "'").replace("\\\\", "\\")


def _make_still(server: "YearServer", names: Names) -> None:
    made, like = full(names["made"]), server.table_at(full(names["like"]))
    if made in server.year_tables:
        raise clickhouse_error(TABLE_EXISTS, f"{made} exists")
    uuid = f"still-{len(server.year_tables)}-{made[1]}"
    server.year_tables[made] = YearTable(
        made[0], made[1], uuid, key=like.key, engine=like.engine, comment=names["comment"], version=like.version
    )  # fmt: skip


def _move(server: "YearServer", names: Names) -> None:
    of, into = server.table_at(full(names["of"])), server.table_at(full(names["into"]))
    dies, server.dying = server.dying, False
    of.move(names["partition"], into, server._now(), keep=dies)
    if dies:
        server.weather.schedule.tell("the server dies inside of a MOVE")
        raise clickhouse_error(0, "the server restarts")


def _rename(server: "YearServer", old: Full, new: Full) -> None:
    table = server.table_at(old)
    if new in server.year_tables:
        raise clickhouse_error(TABLE_EXISTS, f"{new} exists")
    del server.year_tables[old]
    table.database, table.name = new
    server.year_tables[new] = table


def _drop(server: "YearServer", table: Full) -> None:
    for some in (server.year_tables, server.relations, server.residencies):
        some.pop(table, None)


def _flip(server: "YearServer", names: Names) -> None:
    found = server.residencies.get(full(names["table"]))
    if found is None:
        raise clickhouse_error(UNKNOWN_TABLE, f"{names['table']} does not exist")
    now = server.weather.schedule.now
    for generation, writer, id, cold, lower, upper in _VALUE.findall(names["values"]):
        found.rows.append(Flip(int(generation), writer, id, cold == "1", lower, upper, now))


def _fill(server: "YearServer", names: Names) -> None:
    rows, partition = _selected(server, names["select"])
    server.table_at(full(names["table"])).put(rows, partition, server._now())


# -- queries ------------------------------------------------------------------------------------------


def answer(server: "YearServer", sql: str) -> Rows:
    for pattern, found in _QUERIES.items():
        if match := pattern.fullmatch(sql.strip()):
            return found(server, match.groupdict())
    raise AssertionError(f"the model does not know the query {sql}")


_WHERE = r"WHERE database = '(?P<database>[^']*)' AND (?:name = '(?P<name>[^']*)'|name IN \((?P<names>[^)]*)\)" \
    r"|startsWith\(name, '(?P<prefix>[^']*)'\)|comment = '(?P<comment>[^']*)')(?: ORDER BY name)?"  # fmt: skip
_OF_PARTS = r"AND database = '(?P<database>[^']*)' AND table = '(?P<table>[^']*)' AND partition_id = '(?P<partition>[^']*)'"


def _tables(server: "YearServer", names: Names) -> Rows:
    listed = (names["names"] or "").replace("'", "").split(", ")
    found = []
    for database, name in sorted((*server.year_tables, *server.residencies, *server.views)):
        row = _table_row(server, (database, name))
        if database == names["database"] and (
            name == names["name"]
            or (names["names"] is not None and name in listed)
            or (names["prefix"] is not None and name.startswith(names["prefix"]))
            or (names["comment"] is not None and row["comment"] == names["comment"])
        ):
            found.append(row)
    return found


def _table_row(server: "YearServer", table: Full) -> dict[str, Any]:
    name, texts = table[1], {"text": "CREATE TABLE t (id String, day Date)", "engine_full": "MergeTree"}
    if table in server.year_tables:
        one = server.year_tables[table]
        return texts | {"name": name, "comment": one.comment, "engine": "MergeTree ORDER BY id"}
    if table in server.residencies:
        return texts | {"name": name, "comment": server.residencies[table].comment, "engine": "MergeTree"}
    return texts | {"name": name, "comment": f"calve view of {server.views[table]}", "engine": "View"}


def _listed(server: "YearServer", names: Names) -> Rows:
    return [
        {"database": database, "name": name, "engine": table.engine}
        for (database, name), table in sorted(server.year_tables.items())
    ]


def _named(server: "YearServer", names: Names) -> Rows:
    return [
        {"database": database, "name": name}
        for (database, name), table in server.year_tables.items()
        if table.uuid == names["uuid"]
    ]


def _parts(server: "YearServer", names: Names) -> Rows:
    table = server.year_tables.get((names["database"], names["table"]))
    return [
        {
            "name": part.facts.name, "rows": len(part.rows), "bytes": part.facts.bytes, "hash": part.hash,
            "min_block": part.facts.min_block,
        }
        for part in (table.of(names["partition"]) if table else ())
    ]  # fmt: skip


def _ids(server: "YearServer", names: Names) -> Rows:
    table = server.year_tables.get((names["database"], names["table"]))
    return [{"id": one} for one in table.partition_ids] if table else []


def _ttl(server: "YearServer", names: Names) -> Rows:
    table = server.table_at((names["database"], names["table"]))
    days = [server.known.day(row) for row in table.rows_of(names["partition"])]
    first = min((day.toordinal() for day in days), default=0) - 719163 + table.ttl_days
    now = int(server.now().timestamp())
    return [{"parts": len(table.of(names["partition"])), "unknown": 0, "first": first * 86400, "now": now}]


def _mutations(server: "YearServer", names: Names) -> Rows:
    table = server.year_tables.get((names["database"], names["table"]))
    return [{"id": one} for one in sorted((*table.mutations, *table.pending))] if table else []


def _columns(server: "YearServer", names: Names) -> Rows:
    return [{"name": "id", "type": "String"}, {"name": "day", "type": "Date32"}]


def _described(server: "YearServer", names: Names) -> Rows:
    return [{"type": "UInt32"}]


def _filed(server: "YearServer", names: Names) -> Rows:
    table = server.table_at(full(names["table"]))
    return [{"made": names["partition"]}] if table.of(names["partition"]) else []


def _counted(server: "YearServer", names: Names) -> Rows:
    relation = server.relations.get(full(names["table"]))
    if relation is None:  # another worker tried its own
        raise clickhouse_error(UNKNOWN_TABLE, f"{names['table']} does not exist")
    rows = server.lake_rows(relation.location, relation.metadata)
    ids = re.findall(r"'([^']*)'", names["ids"])
    return [{"id": id, "rows": len(rows[id])} for id in ids if rows.get(id)]


def _residents(server: "YearServer", names: Names) -> Rows:
    table = server.residencies.get(full(names["table"]))
    if table is None:
        raise clickhouse_error(UNKNOWN_TABLE, f"{names['table']} does not exist")
    return [
        {
            "id": one.id, "newest": (one.generation, one.writer), "cold": one.cold, "lower": _micros(one.lower),
            "upper": _micros(one.upper),
        }
        for _, one in sorted(table.newest().items())
    ]  # fmt: skip


def _micros(text: str) -> int:
    from datetime import UTC, datetime

    at = datetime.fromisoformat(text).replace(tzinfo=UTC)
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _any_resident(server: "YearServer", names: Names) -> Rows:
    return [{"one": 1}] if server.residencies[full(names["table"])].rows else []


def _turned(server: "YearServer", names: Names) -> Rows:
    table = server.residencies[full(names["table"])]
    return [{"at": str(max((one.at for one in table.rows if one.id == names["id"]), default=0.0))}]


def _older(server: "YearServer", names: Names) -> Rows:
    now = server.weather.schedule.now
    since = float(names["since"])
    return [
        {"query_id": one.id, "user": "reader", "elapsed": now - one.began}
        for one in server.readers
        if one.began <= since and one.until > now
    ]


def _sums(server: "YearServer", names: Names) -> Rows:
    sums = server.known.sums(_selected(server, names["relation"])[0])
    return [{"rows": sums.rows, "first": sums.first, "second": sums.second}]


_OF_TABLE = re.compile(rf"FROM (?P<table>{_T}) WHERE _part IN \((?P<parts>[^)]*)\)")
_OF_LAKE = re.compile(rf"FROM (?P<table>{_T}) AS c WHERE {_ANY}? = '(?P<partition>[^']*)'")


def _selected(server: "YearServer", relation: str) -> tuple[list[str], str]:
    """The rows of some parts of a table, or of a partition in the lake; and which partition that is."""
    if found := _OF_TABLE.search(relation):
        parts = re.findall(r"'([^']*)'", found["parts"])
        table = server.table_at(full(found["table"]))
        return [row for name in parts if name in table.parts for row in table.parts[name].rows], ""
    found = _OF_LAKE.search(relation)
    assert found is not None, relation
    pinned = server.relations[full(found["table"])]
    return list(server.lake_rows(pinned.location, pinned.metadata).get(found["partition"], [])), found[
        "partition"
    ]


def _replicas(server: "YearServer", names: Names) -> Rows:
    return [{"name": "r1", "total": 2, "active": 1, "read_only": 0}]


def _nothing(server: "YearServer", names: Names) -> Rows:
    return []


_QUERIES: Mapping[re.Pattern[str], Callable[["YearServer", Names], Rows]] = {
    re.compile(text): found
    for text, found in {
        "SELECT 1": lambda _server, _names: [{"1": 1}],
        rf"SELECT [^()]* FROM system\.tables {_WHERE}": _tables,
        rf"SELECT database, name FROM system\.tables WHERE toString\(uuid\) = '(?P<uuid>[^']*)'{_ANY}": _named,
        rf"SELECT database, name, engine FROM system\.tables WHERE {_ANY}": _listed,
        rf"SELECT name, rows, bytes_on_disk{_ANY} {_OF_PARTS} ORDER BY name": _parts,
        rf"SELECT count\(\) AS parts, countIf{_ANY} {_OF_PARTS}": _ttl,
        rf"SELECT 1 AS one FROM system\.parts {_ANY}": _nothing,
        rf"SELECT DISTINCT partition_id AS id FROM system\.parts {_ANY} database = '(?P<database>[^']*)'"
        r" AND table = '(?P<table>[^']*)'": _ids,
        r"SELECT mutation_id AS id FROM system\.mutations WHERE database = '(?P<database>[^']*)' AND table ="
        r" '(?P<table>[^']*)' ORDER BY id": _mutations,
        rf"SELECT (?:name|value) FROM system\.merge_tree_settings{_ANY}": _nothing,
        rf"SELECT table, name FROM system\.columns {_ANY}": _nothing,
        rf"SELECT name, type FROM system\.columns {_ANY}": _columns,
        rf"SELECT toString\(\(ifNull\(select_filter{_ANY}": _nothing,
        rf"DESCRIBE TABLE {_ANY}": _described,
        rf"SELECT {_ANY} AS made FROM (?P<table>{_T}) AS h WHERE h\._partition_id = '(?P<partition>[^']*)' LIMIT 1": _filed,
        rf"SELECT {_ANY} AS id, count\(\) AS rows FROM (?P<table>{_T}) AS c WHERE has\(\[(?P<ids>[^\]]*)\]{_ANY}": _counted,
        rf"SELECT id, max\(\(generation, writer\)\){_ANY}FROM (?P<table>{_T}) WHERE id != '' GROUP BY id ORDER BY id": _residents,
        rf"SELECT 1 AS one FROM (?P<table>{_T}) LIMIT 1": _any_resident,
        rf"SELECT toString\(max\(at\)\) AS at FROM (?P<table>{_T}) WHERE id = '(?P<id>[^']*)'": _turned,
        r"SELECT toString\(now64\(6, 'UTC'\)\) AS now": lambda server, _names: [
            {"now": str(server.weather.schedule.now)}
        ],
        rf"SELECT query_id, user, elapsed FROM system\.processes{_ANY}toDateTime64\('(?P<since>[^']*)'{_ANY}": _older,
        rf"SELECT count\(\) AS rows, sum\(intHash64(?P<relation>{_ANY})": _sums,
        rf"SELECT replica_name AS name{_ANY}": _replicas,
        rf"SELECT zookeeper_path AS path{_ANY}": lambda _server, _names: [
            {"path": "/tables/t", "replica": "r1"}
        ],
        rf"SELECT count\(\) AS n FROM system\.replication_queue{_ANY}": lambda _server, _names: [{"n": 0}],
    }.items()
}
Seen = Counter[str]
