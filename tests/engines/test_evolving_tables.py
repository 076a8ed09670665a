"""`--evolve`: columns are added, widened and made optional, as Iceberg allows."""

import pytest
from pyiceberg.types import DecimalType, DoubleType, LongType

from calve.model.errors import UsageError
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
