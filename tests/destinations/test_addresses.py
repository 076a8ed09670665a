"""What is typed and what is stored lead to the same destination, of the right form."""

import json

import pytest

from calve.destination.names import ICEBERG, PARQUET, DestinationAddress, parse_table_name
from calve.export.request import ExportRequest
from calve.model.errors import UsageError
from calve.model.reach import is_folder

TABLE = DestinationAddress(catalog="lake", identifier=("a", "b", "events"))
BUCKET = DestinationAddress.folder("s3://bucket/out/", storage="s3://bucket")
LOCAL = DestinationAddress.folder("file:///data/out")


@pytest.mark.parametrize(
    ("address", "form", "text", "lane", "needs"),
    [
        (TABLE, ICEBERG, "lake.a.b.events", "catalog:lake", ("catalog:lake",)),
        (BUCKET, PARQUET, "s3://bucket/out/", "storage:s3://bucket", ("storage:s3://bucket",)),
        (LOCAL, PARQUET, "file:///data/out/", "storage:file:///data/out", ()),
    ],
    ids=["a table", "a folder in a bucket", "a local folder"],
)
def test_an_address_says_what_serves_it_and_what_it_needs(
    address: DestinationAddress, form: str, text: str, lane: str, needs: tuple[str, ...]
) -> None:
    assert (address.form, str(address), address.lane, address.needs) == (form, text, lane, needs)
    assert is_folder(text) == (form == PARQUET)


def test_L12_a_request_of_the_first_release_leads_to_its_folder() -> None:
    """As it was stored then: a folder's URI stands where a catalog's name does."""
    stored = {
        "source": "main", "database": "db", "table": "events", "catalog": "file:///data/out",
        "identifier": ["files"], "partitions": ["202401"], "parts": [], "where": "", "force": False,
        "a_field_of_later": 1,
    }  # fmt: skip
    request = ExportRequest.from_json(json.dumps(stored))
    assert request.address == LOCAL
    assert request.destination == "file:///data/out/"
    assert json.loads(request.to_json())["catalog"] == "file:///data/out"
    assert json.loads(request.to_json())["identifier"] == ["files"]


def test_a_table_is_named_by_catalog_namespace_and_table() -> None:
    assert parse_table_name("lake.a.b.events") == TABLE


@pytest.mark.parametrize("text", ["lake", "lake.events", "lake..events", ".ns.events", "lake.ns.", ""])
def test_what_names_no_table_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_table_name(text)
    assert refused.value.code == "destination_name"
