"""Fields of a partition spec that need care (T15): void, floats, UUIDs; and keys that count from 1970."""

import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.types import DateType, LongType, NestedField

from calve.model.errors import UsageError
from calve.model.states import ProcessState
from support.place import Place


def test_T15_a_void_field_in_the_spec_holds_null(place: Place) -> None:
    place.execute(
        "CREATE TABLE db.voided (id Int64, day Date32) ENGINE = MergeTree ORDER BY id",
        "INSERT INTO db.voided SELECT number, toDate32('2024-01-01') + number % 3 FROM numbers(30)",
    )
    schema = Schema(
        NestedField(1, "id", LongType(), required=True), NestedField(2, "day", DateType(), required=True)
    )
    spec = PartitionSpec(
        PartitionField(source_id=1, field_id=1000, transform=VoidTransform(), name="id_void"),
        PartitionField(source_id=2, field_id=1001, transform=IdentityTransform(), name="day"),
    )
    with place.app() as app:
        catalog = app.catalog("lake")
        catalog.create_namespace_if_not_exists("ns")
        catalog.create_table("ns.voided", schema, partition_spec=spec)
    [process] = place.export("db.voided", to="lake.ns.voided")
    assert process.state is ProcessState.COMPLETED, process.error
    assert sorted(place.read("lake.ns.voided")["id"].to_pylist()) == list(range(30))
    assert place.table("lake.ns.voided").scan("day = '2024-01-02'").to_arrow().num_rows == 10


@pytest.mark.parametrize("kind", ["Float32", "Float64"])
def test_T15_a_float_partition_key_is_refused_before_a_table_is_made(place: Place, kind: str) -> None:
    name = kind.lower()
    place.execute(
        f"CREATE TABLE db.{name} (id Int64, f {kind}) ENGINE = MergeTree PARTITION BY f ORDER BY id"
        " SETTINGS allow_floating_point_partition_key = 1",
        f"INSERT INTO db.{name} VALUES (1, 0.5), (2, 1.5)",
    )
    [process] = place.export(f"db.{name}", to=f"lake.ns.{name}")[:1]
    assert process.state is ProcessState.COMPLETED, process.error
    assert place.table(f"lake.ns.{name}").spec().is_unpartitioned()
    with pytest.raises(UsageError, match="partition"):
        place.export(f"db.{name}", to="lake.ns.refused", partition_by="f")
    with pytest.raises(NoSuchTableError):
        place.table("lake.ns.refused")


def test_T15_a_uuid_partition_key_makes_an_unpartitioned_table_that_clickhouse_reads(place: Place) -> None:
    place.execute(
        "CREATE TABLE db.keyed (id Int64, u UUID) ENGINE = MergeTree PARTITION BY u ORDER BY id",
        "INSERT INTO db.keyed VALUES (1, '61f0c404-5cb3-11e7-907b-a6006ad3dba0')",
    )
    [process] = place.export("db.keyed", to="lake.ns.keyed")
    assert process.state is ProcessState.COMPLETED, process.error
    assert place.table("lake.ns.keyed").spec().is_unpartitioned()
    assert [row["id"] for row in place.read_by_clickhouse("id", "lake.ns.keyed")] == [1]


@pytest.mark.parametrize(
    ("key", "transform"),
    [
        ("toRelativeDayNum(at)", "day"),
        ("toYearNumSinceEpoch(at)", "year"),
        ("toRelativeYearNum(at)", "year"),
        ("toMonthNumSinceEpoch(at)", "month"),
        ("toRelativeMonthNum(at)", "month"),
        ("toRelativeHourNum(at)", "hour"),
    ],
)
def test_keys_that_count_from_1970_have_their_transform(place: Place, key: str, transform: str) -> None:
    name = key.partition("(")[0].lower()
    place.execute(
        f"CREATE TABLE db.{name} (id Int64, at DateTime('UTC')) ENGINE = MergeTree PARTITION BY {key} ORDER BY id",
        f"INSERT INTO db.{name} SELECT number, toDateTime('2024-01-31 22:00:00', 'UTC') + number * 1800 FROM numbers(8)",
    )
    for process in place.export(f"db.{name}", to=f"lake.ns.{name}"):
        assert process.state is ProcessState.COMPLETED, process.error
    assert [str(field.transform) for field in place.table(f"lake.ns.{name}").spec().fields] == [transform]
    assert sorted(place.read(f"lake.ns.{name}")["id"].to_pylist()) == list(range(8))
