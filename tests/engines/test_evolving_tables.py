"""`--evolve`, `--rename`, `--include`: tables that follow their source as Iceberg allows."""

from typing import Any

import pytest
from pyiceberg.types import DecimalType, DoubleType, LongType

from calve.app import exports
from calve.app.proof import prove
from calve.cli.export import page
from calve.clickhouse.parts.partitions import Selection
from calve.export.request import ExportOptions
from calve.model.errors import RefusedError, UsageError
from calve.model.states import ProcessState
from support.place import Place


def test_columns_are_widened_and_made_optional_where_that_is_asked(place: Place) -> None:
    place.execute(
        "CREATE TABLE db.wide (id Int32, f Float32, d Decimal(9, 2), s String, p UInt8)"
        " ENGINE = MergeTree PARTITION BY p ORDER BY tuple()",
        "INSERT INTO db.wide VALUES (1, 0.5, 1.25, 'a', 1)",
    )
    place.export("db.wide", "1", to="lake.ns.wide")
    place.execute(
        "SYSTEM START MERGES",
        *(
            f"ALTER TABLE db.wide MODIFY COLUMN {column} SETTINGS mutations_sync = 2, alter_sync = 2"
            for column in ("id Int64", "f Float64", "d Decimal(18, 2)", "s Nullable(String)")
        ),
        "INSERT INTO db.wide VALUES (9000000000, 0.1, 1234567890.25, NULL, 2)",
    )
    with pytest.raises(UsageError, match="id: Int64 becomes long") as caught:
        place.export("db.wide", "2", to="lake.ns.wide")
    assert "--evolve" in caught.value.hint
    [process] = place.export("db.wide", "2", to="lake.ns.wide", evolve=True)
    assert process.state is ProcessState.COMPLETED, process.error
    schema = place.table("lake.ns.wide").schema()
    kinds = {field.name: field.field_type for field in schema.fields}
    assert kinds["id"] == LongType() and kinds["f"] == DoubleType() and kinds["d"] == DecimalType(18, 2)
    assert not schema.find_field("s").required
    rows = sorted(place.read("lake.ns.wide").to_pylist(), key=lambda row: row["id"])
    assert [(row["id"], row["f"], str(row["d"]), row["s"]) for row in rows] == [
        (1, 0.5, "1.25", "a"),
        (9000000000, 0.1, "1234567890.25", None),
    ]


def preview(place: Place, table: str, to: str, **options: Any) -> dict[str, Any]:
    with place.app() as app:
        selection = Selection(all=True)
        request = exports.export_request(app, table, to, selection, ExportOptions(**options))
        return exports.preview_json(exports.preview(app, request, selection))


def test_a_dry_run_marks_what_is_widened_or_made_optional(place: Place) -> None:
    place.execute(
        "CREATE TABLE db.marked (id Int32, s String) ENGINE = MergeTree ORDER BY tuple()",
        "INSERT INTO db.marked VALUES (1, 'a')",
    )
    place.export("db.marked", "all", to="lake.ns.marked")
    place.execute(
        "SYSTEM START MERGES",
        "ALTER TABLE db.marked MODIFY COLUMN id Nullable(Int64) SETTINGS mutations_sync = 2, alter_sync = 2",
    )
    shown = preview(place, "db.marked", "lake.ns.marked", evolve=True)
    assert [(one["name"], one["was"]) for one in shown["columns"]] == [("id", "int, required"), ("s", "")]
    assert [(one["type"], one["required"]) for one in shown["columns"]] == [("long", False), ("string", True)]
    assert "was int, required" in page(shown)


def test_a_renamed_column_keeps_its_rows_under_the_new_name(place: Place) -> None:
    place.execute(
        "CREATE TABLE db.renamed (id Int64, usr String, p UInt8) ENGINE = MergeTree PARTITION BY p ORDER BY id",
        "INSERT INTO db.renamed VALUES (1, 'ann', 1)",
    )
    to = "lake.ns.renamed"
    place.export("db.renamed", "1", to=to)
    before = place.table(to).schema().find_field("usr").field_id
    place.execute(
        "SYSTEM START MERGES",
        "ALTER TABLE db.renamed RENAME COLUMN usr TO user SETTINGS mutations_sync = 2, alter_sync = 2",
        "INSERT INTO db.renamed VALUES (2, 'bob', 2)",
    )
    with pytest.raises(RefusedError, match="usr: the table requires this column") as caught:
        place.export("db.renamed", "2", to=to)
    assert "--rename usr=user" in caught.value.hint
    for wrong, words in (({"usr": "usre"}, "no column usre"), ({"urs": "user"}, "no column urs")):
        with pytest.raises(UsageError, match=words):
            preview(place, "db.renamed", to, renames=wrong)
    shown = preview(place, "db.renamed", to, renames={"usr": "user"})
    assert {"name": "user", "was": "named usr"}.items() <= shown["columns"][1].items()
    assert "column usr of the table is renamed to user" in shown["notes"]
    assert place.table(to).schema().find_field("usr").field_id == before  # a dry run changes nothing
    for _ in range(2):  # again: the table has the new name already
        [process] = place.export("db.renamed", "2", to=to, renames={"usr": "user"}, force=True)
        assert process.state is ProcessState.COMPLETED, process.error
    assert place.table(to).schema().find_field("user").field_id == before
    expected = [{"id": 1, "user": "ann", "p": 1}, {"id": 2, "user": "bob", "p": 2}]
    assert place.read(to).sort_by("id").to_pylist() == expected
    assert place.read_by_clickhouse("id, user, p", to, "ORDER BY id") == expected


def test_a_dropped_column_stays_in_the_table_without_values(place: Place) -> None:
    place.execute(
        "CREATE TABLE db.dropped (id Int64, gone Int32, p UInt8) ENGINE = MergeTree PARTITION BY p ORDER BY id",
        "INSERT INTO db.dropped VALUES (1, 7, 1)",
    )
    to = "lake.ns.dropped"
    place.export("db.dropped", "1", to=to)
    place.execute(
        "SYSTEM START MERGES",
        "ALTER TABLE db.dropped DROP COLUMN gone SETTINGS mutations_sync = 2, alter_sync = 2",
        "INSERT INTO db.dropped VALUES (2, 2)",
    )
    with pytest.raises(RefusedError) as caught:
        place.export("db.dropped", "2", to=to)
    assert caught.value.hint == "--evolve makes gone optional and leaves it null"
    assert any(
        "gone of the table gets no values" in note
        for note in preview(place, "db.dropped", to, evolve=True)["notes"]
    )
    [process] = place.export("db.dropped", "2", to=to, evolve=True)
    assert process.state is ProcessState.COMPLETED, process.error
    assert [row["gone"] for row in place.read(to).sort_by("id").to_pylist()] == [7, None]


def test_an_alias_is_exported_where_it_is_named_with_the_values_that_clickhouse_shows(place: Place) -> None:
    place.execute(
        "CREATE TABLE db.aliased (id Int64, at DateTime('Asia/Tokyo'), day Date ALIAS toDate(at),"
        " twice Nullable(Int64) ALIAS if(id > 1, id * 2, NULL), stored String MATERIALIZED concat('m', toString(id)),"
        " e Int8 EPHEMERAL, late DateTime ALIAS now()) ENGINE = MergeTree ORDER BY id",
        "INSERT INTO db.aliased (id, at) SELECT number, 1700000000 + number * 43200 FROM numbers(5)",
    )
    to = "lake.ns.aliased"
    shown = preview(place, "db.aliased", to)
    assert [one["name"] for one in shown["columns"]] == ["id", "at", "stored"]
    assert any("--include twice exports its values" in note for note in shown["notes"])
    for name, words in (
        ("e", "EPHEMERAL"),
        ("late", r"now\(\) is not allowed"),
        ("nothing", "no such column to include"),
    ):
        with pytest.raises(UsageError, match=words):
            preview(place, "db.aliased", to, include=(name,))
    [process] = place.export("db.aliased", "all", to=to, include=("day", "twice", "stored"))
    assert process.state is ProcessState.COMPLETED, process.error
    columns = "id, toString(day) AS day, twice, stored"
    rows = place.read(to).sort_by("id").to_pylist()
    exported = [{**row, "day": str(row["day"])} for row in rows]
    for row in exported:
        del row["at"]
    assert exported == place.select(f"SELECT {columns} FROM db.aliased ORDER BY id")
    with place.app() as app:
        proof = prove(app, process.id, deep=True)
    assert proof.ok and proof.source is not None, proof.faults
