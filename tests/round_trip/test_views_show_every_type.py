"""A view shows what comes from the lake exactly as the table had it: every type, its edges, and inside of others."""

from collections.abc import Iterator, Sequence

import pytest
from generated_tables import (
    ID,
    LEAVES,
    Column,
    GeneratedTable,
    Kind,
    Value,
    array,
    mapping,
    nullable,
    struct_of,
    text,
)

from calve.app.policies import tier
from calve.model.errors import RefusedError
from calve.model.states import ProcessState
from support.local_runner import LocalRunner
from support.place import Place, kept_place

ROWS = max(len(kind.edges) for kind in LEAVES)


def _held(kind: Kind) -> Kind:
    return array(struct_of(nullable(kind), mapping(text(), array(nullable(kind))), named=True))


TABLES = {
    "plain": LEAVES,
    "optional": [nullable(kind) for kind in LEAVES],
    "nested": [_held(kind) for kind in LEAVES],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, runner: LocalRunner) -> Iterator[Place]:
    with kept_place(tmp_path_factory.mktemp("types"), runner) as place:
        place.execute("CREATE DATABASE db")
        yield place


def _table(kinds: Sequence[Kind]) -> GeneratedTable:
    columns = (ID, *(Column(f"c{place}", kind) for place, kind in enumerate(kinds, 1)))
    rows = tuple(
        (Value(str(row), row), *(kind.edges[row % len(kind.edges)] for kind in kinds)) for row in range(ROWS)
    )
    return GeneratedTable(columns, rows, f"intDiv(id, {ROWS // 2 + 1})", "none")


@pytest.mark.parametrize("name", TABLES)
def test_every_value_is_the_same_bytes_from_the_lake(place: Place, name: str) -> None:
    made = _table(TABLES[name])
    place.execute(*made.statements(f"db.{name}"))
    with place.app() as app:
        for process in place.export(f"db.{name}", to=f"lake.ns.{name}", partition_by="none"):
            assert process.state is ProcessState.COMPLETED, process.error
        wanted = _bytes(place, made, f"db.{name}")
        for cold in ([], ["0"], ["1"]):  # none, half, all of it
            shown = tier.view_create(app, f"db.{name}", f"lake.ns.{name}", f"db.{name}_all", cold=cold)
            assert _bytes(place, made, f"db.{name}_all") == wanted, shown["cold"]
        assert shown["cold"] == ["0", "1"]


def _bytes(place: Place, table: GeneratedTable, name: str) -> list[dict[str, str]]:
    """Each value with its type, as the bytes that ClickHouse itself would send."""
    return _read(place, [column.name for column in table.columns], name)


def _read(place: Place, columns: Sequence[str], name: str) -> list[dict[str, str]]:
    shown = ", ".join(
        f"(toTypeName(`{column}`), hex(formatRow('RowBinary', `{column}`))) AS `r.{column}`"
        for column in columns
    )
    return place.select(f"SELECT {shown} FROM {name} ORDER BY id")


RARE = {
    "bf": ("BFloat16", ["toBFloat16(1.5)", "toBFloat16(-0.)", "nan"]),
    "point": ("Point", ["(1.5, -2)", "(0, 0)", "(inf, 1e-300)"]),
    "rings": ("Polygon", ["[[(0, 0), (1, 1)], []]", "[]", "[[(2, 3)]]"]),
    "pair": ("Tuple(UInt64, Nullable(String))", ["(18446744073709551615, NULL)", "(0, 'x')", "(1, '')"]),
    "dotted": ("Tuple(`a.b` Int8, c LowCardinality(String))", ["(-128, 'x')", "(127, '')", "(0, 'y')"]),
    "time": ("Time", ["'12:00:01'", "'-999:59:59'", "'999:59:59'"]),
    "fine": ("Time64(3)", ["'12:00:01.123'", "'-00:00:00.001'", "'999:59:59.999'"]),
    "json": ("JSON", ["'{\"a\": {\"b\": [1, 2]}}'", "'{}'", "'{\"a\": \"x\"}'"]),
    "wide": ("UInt128", ["0", "340282366920938463463374607431768211455", "1"]),
    "widest": ("Int256", ["-1", "toInt256('-57896044618658097711785492504343953926634992332820282019728792003956564819968')", "1"]),
    "digits": ("Decimal(76, 3)", ["1.5", "toDecimal256('-9999999999999999999999999999999999999999999999.999', 3)", "0"]),
    "length": ("IntervalDay", ["toIntervalDay(5)", "toIntervalDay(-1)", "toIntervalDay(0)"]),
    "inner": ("SimpleAggregateFunction(sum, UInt64)", ["1", "18446744073709551615", "0"]),
}  # fmt: skip


def test_rare_types_are_read_back_or_refused_by_name(place: Place) -> None:
    declared = ", ".join(f"{name} {kind}" for name, (kind, _) in RARE.items())
    place.execute(
        f"CREATE TABLE db.rare (id Int32, {declared}, n Nested(a UInt64, `b.c` Nullable(String)), odd Variant(UInt64, String)) "
        "ENGINE = MergeTree PARTITION BY intDiv(id, 2) ORDER BY id"
    )
    for row in range(3):
        values = ", ".join(f"CAST({sql[row]}, '{kind}') AS {name}" for name, (kind, sql) in RARE.items())
        place.execute(
            f"INSERT INTO db.rare SELECT {row} AS id, {values}, [1, {row}] AS `n.a`, [NULL, 'x'] AS `n.b.c`,"
            f" {row}::UInt64::Variant(UInt64, String) AS odd"
        )
    casts = dict.fromkeys(("wide", "widest", "digits"), "string") | {"length": "long"}
    with place.app() as app:
        for process in place.export("db.rare", to="lake.ns.rare", partition_by="none", casts=casts):
            assert process.state is ProcessState.COMPLETED, process.error
        with pytest.raises(RefusedError, match="odd: text as Variant") as refused:
            tier.view_create(app, "db.rare", "lake.ns.rare", "db.rare_all", cold=["0"])
        assert (refused.value.code, refused.value.message.count("\n")) == ("view_columns", 1)
        names = ["id", *RARE, "n.a", "n.b.c"]
        wanted = _read(place, names, "db.rare")
        tier.view_create(app, "db.rare", "lake.ns.rare", "db.rare_all", cold=["0"], exclude=["odd"])
        assert _read(place, names, "db.rare_all") == wanted
        tier.view_create(app, "db.rare", "lake.ns.rare", "db.rare_all", cold=["1"])  # without odd, as before
        assert _read(place, names, "db.rare_all") == wanted
