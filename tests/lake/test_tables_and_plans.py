"""Tables: made once, described as a plan keeps them, refused where they cannot be written."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, ListType, MapType, NestedField, StringType, StructType

from calve.iceberg import tables
from calve.iceberg.catalogs.catalog import open_catalog
from calve.iceberg.health.report import health
from calve.model.errors import CalveError, PermanentError, RefusedError
from calve.objects.uri import full_uri
from support.lake import IDENTIFIER, SCHEMA, make_table, make_work, repeat_ids, sqlite_properties


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    opened = open_catalog("lake", sqlite_properties(tmp_path))
    yield opened
    opened.close()


def test_making_a_table_twice_gives_the_first(catalog: Catalog) -> None:
    first, second = make_table(catalog), make_table(catalog)
    assert first.metadata.table_uuid == second.metadata.table_uuid


def test_two_programs_that_add_the_sort_order_0_add_it_once(catalog: Catalog, tmp_path: Path) -> None:
    """Twice, and no Java reader opens the table: "Multiple entries with same key: 0=[] and 0=[]"."""
    catalog.create_namespace("ns")
    order = SortOrder(SortField(source_id=1, transform=IdentityTransform()))
    made = catalog.create_table(IDENTIFIER, SCHEMA, sort_order=order)
    other = open_catalog("lake", sqlite_properties(tmp_path))
    seen_before = other.load_table(IDENTIFIER)
    tables.with_unsorted(catalog, made)
    found = tables.with_unsorted(other, seen_before)
    other.close()
    assert sorted(one.order_id for one in found.metadata.sort_orders) == [0, 1]
    assert found.metadata.default_sort_order_id == 1


def test_an_id_that_is_there_twice_is_found_and_made_unique(catalog: Catalog) -> None:
    made = repeat_ids(make_table(catalog))
    assert tables.repeated_ids(made.metadata) == ("partition spec 0", "sort order 0")
    found = health(catalog, IDENTIFIER).findings[0]
    assert (found.what, found.command) == ("repeated ids", "calve optimize lake.ns.events")
    assert "partition spec 0, sort order 0 more than once" in found.detail
    after = tables.make_unique(catalog, made).metadata
    assert (len(after.partition_specs), len(after.sort_orders), tables.repeated_ids(after)) == (1, 1, ())
    assert (after.spec(), after.sort_order_by_id(0)) == (made.metadata.spec(), UNSORTED_SORT_ORDER)
    assert health(catalog, IDENTIFIER).findings == ()


def test_nested_namespaces_are_made_with_their_parents(catalog: Catalog) -> None:
    tables.create(catalog, ("a", "b", "c", "t"), SCHEMA)
    assert catalog.table_exists(("a", "b", "c", "t"))


def test_a_description_has_what_a_task_and_a_publish_need(catalog: Catalog) -> None:
    table = make_table(catalog, properties={"write.parquet.compression-codec": "zstd", "owner": "me"})
    found = tables.describe(catalog, table)
    assert found.uuid == str(table.metadata.table_uuid)
    assert found.data_location == f"{table.location()}/data"
    assert found.receipts_location == f"{table.location()}/metadata/calve"
    assert [(item.name, item.transform, item.source_id) for item in found.spec] == [("month", "identity", 2)]
    assert Schema.model_validate_json(found.schema) == table.schema()
    assert found.properties == {"write.parquet.compression-codec": "zstd"}
    assert found.base_snapshot_id is None


def test_data_goes_where_the_table_says(catalog: Catalog, tmp_path: Path) -> None:
    table = make_table(catalog, properties={"write.data.path": f"{tmp_path}/elsewhere"})
    assert tables.describe(catalog, table).data_location == f"file://{tmp_path}/elsewhere"


@pytest.mark.parametrize("form", ["/a/b", "file:/a/b", "file:///a/b"])
def test_L8_every_form_of_a_local_path_is_one_uri(form: str) -> None:
    assert full_uri(form) == "file:///a/b"
    assert full_uri("s3://bucket/a%20b") == "s3://bucket/a%20b"


def test_L7_a_format_that_cannot_be_written_is_refused_at_planning(catalog: Catalog) -> None:
    path = Path(make_table(catalog).metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text()) | {"format-version": 3, "next-row-id": 0}
    path.write_text(json.dumps(metadata))
    with pytest.raises(RefusedError, match="format version 3"):
        tables.describe(catalog, tables.load(catalog, IDENTIFIER))


def test_L7_making_a_table_of_a_format_that_cannot_be_written_fails_for_good(catalog: Catalog) -> None:
    with pytest.raises(PermanentError, match="V3"):
        make_table(catalog, properties={"format-version": "3"})


def test_L7_a_table_whose_metadata_is_no_iceberg_is_an_error_of_ours(catalog: Catalog) -> None:
    table = make_table(catalog)
    Path(table.metadata_location.removeprefix("file://")).write_text('{"format-version": 2}')
    with pytest.raises(CalveError, match=r"loading table ns\.events"):
        tables.load(catalog, IDENTIFIER)


NESTED = Schema(
    NestedField(1, "s", StructType(NestedField(2, "a", IntegerType()), NestedField(3, "b", StringType()))),
    NestedField(4, "l", ListType(5, IntegerType(), element_required=False)),
    NestedField(6, "m", MapType(7, StringType(), 8, IntegerType(), value_required=False)),
)


def test_an_optional_nested_field_added_later_is_fine_and_a_dropped_one_is_not(catalog: Catalog) -> None:
    tables.create(catalog, IDENTIFIER, NESTED)
    plan = make_work(catalog, []).plan
    with catalog.load_table(IDENTIFIER).update_schema() as change:
        change.add_column(("s", "c"), StringType())
    tables.check(plan, tables.load(catalog, IDENTIFIER))
    with catalog.load_table(IDENTIFIER).update_schema() as change:
        change.delete_column(("s", "b"))
    with pytest.raises(PermanentError, match=r"column s\.b was dropped"):
        tables.check(plan, tables.load(catalog, IDENTIFIER))
