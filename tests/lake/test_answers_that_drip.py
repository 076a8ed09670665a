"""Every call ends by its bound, whatever the server sends and however slowly: catalog, tokens, storage, source."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.io import load_file_io

from calve.clickhouse.server.client import Address, Credentials, ReplicaClient, Statement
from calve.destination import file_io
from calve.iceberg import tables
from calve.iceberg.catalogs.catalog import open_catalog
from calve.model.errors import CalveError, UnavailableError
from calve.model.limits import Limits
from calve.objects.storage import Storage
from support.dripping import Drip, dripping

pytestmark = [pytest.mark.timeout(30), pytest.mark.programs]

SECONDS = 0.4  # that a call has
LIMITS = Limits(connect_seconds=SECONDS, call_seconds=SECONDS)
IDENTIFIER = ("ns", "events")


EVERYWHERE = pytest.mark.parametrize("drip", list(Drip), ids=lambda drip: drip.name.lower())
HERE_AND_THERE = pytest.mark.parametrize(
    "drip", [Drip.HEADERS, Drip.BODY, Drip.REFUSAL], ids=lambda drip: drip.name.lower()
)
IN_ITS_HEADERS = pytest.mark.parametrize("drip", [Drip.HEADERS], ids=["headers"])


@pytest.fixture
def port(drip: Drip) -> Iterator[int]:
    with dripping(drip) as port:
        yield port


@EVERYWHERE
def test_a_catalog_is_given_up(port: int) -> None:
    catalog = open_catalog("lake", {"uri": f"http://127.0.0.1:{port}"}, LIMITS)
    with pytest.raises(UnavailableError) as raised:
        tables.load(catalog, IDENTIFIER)
    assert raised.value.service == "catalog:lake"


@IN_ITS_HEADERS
def test_a_catalog_behind_a_proxy_is_given_up(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy itself drips, when it is asked to connect."""
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
    catalog = open_catalog("lake", {"uri": "https://catalog.example.org"}, LIMITS)
    with pytest.raises(UnavailableError):
        tables.load(catalog, IDENTIFIER)


@IN_ITS_HEADERS
@pytest.mark.parametrize("way", ["credential", "auth"])
def test_a_server_of_tokens_is_given_up(port: int, way: str) -> None:
    url = f"http://127.0.0.1:{port}"
    client = {"client_id": "calve", "client_secret": "secret", "expires_in": 60, "token_url": url}
    properties: dict[str, object] = {
        "credential": {"credential": "calve:secret", "oauth2-server-uri": url},
        "auth": {"auth": {"type": "oauth2", "oauth2": client}},
    }[way]
    catalog = open_catalog("lake", {"uri": "http://127.0.0.1:1"} | properties, LIMITS)
    with pytest.raises(UnavailableError):
        tables.load(catalog, IDENTIFIER)


@HERE_AND_THERE
@pytest.mark.parametrize("call", ["put", "upload", "read", "list"])
def test_a_storage_is_given_up(port: int, call: str, tmp_path: Path) -> None:
    properties = {
        "s3.endpoint": f"http://127.0.0.1:{port}",
        "s3.access-key-id": "key",
        "s3.secret-access-key": "secret",
    }
    storage = Storage(properties, connect_seconds=SECONDS, call_seconds=SECONDS)
    large, uri = tmp_path / "large", "s3://bucket/folder/x"
    large.write_bytes(bytes(6_000_000))
    calls = {
        "put": lambda: storage.put_if_absent(uri, b"x"),
        "upload": lambda: storage.upload(large, uri),
        "read": lambda: storage.read(uri),
        "list": lambda: storage.list("s3://bucket/folder"),
    }
    with pytest.raises(CalveError) as raised:
        calls[call]()
    assert raised.value.info.retryable, raised.value


@HERE_AND_THERE
def test_a_bucket_that_is_asked_for_its_rules_is_given_up(port: int) -> None:
    properties = {
        "s3.endpoint": f"http://127.0.0.1:{port}",
        "s3.access-key-id": "key",
        "s3.secret-access-key": "secret",
    }
    storage = Storage(properties, connect_seconds=SECONDS, call_seconds=SECONDS)
    assert storage.upload_cleanup("s3://bucket/folder").automatic is None


@HERE_AND_THERE
def test_metadata_in_a_storage_is_given_up(port: int) -> None:
    """As PyIceberg reads it: Arrow alone goes on for ever while a body drips."""
    properties = {
        "s3.endpoint": f"http://127.0.0.1:{port}",
        "s3.access-key-id": "key",
        "s3.secret-access-key": "secret",
        "s3.connect-timeout": str(SECONDS),
        "s3.request-timeout": str(SECONDS / 3),
    }
    location = "s3://bucket/t/metadata/00000-x.metadata.json"
    found = load_file_io(file_io.bounded(properties), location).new_input(location)
    with pytest.raises(OSError, match="cannot be reached"):
        found.open()


@EVERYWHERE
def test_a_clickhouse_server_is_given_up(port: int) -> None:
    address = Address(scheme="http", host="127.0.0.1", port=port)
    client = ReplicaClient(
        address, source="main", credentials=Credentials(), database="default", connect_seconds=1
    )
    with pytest.raises(CalveError) as raised:
        client.ask(Statement(sql="SELECT 1", what="asking", seconds=SECONDS, query_id="q"))
    assert raised.value.info.retryable and "main" in raised.value.message
