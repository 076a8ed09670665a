"""Opening is lazy, every call is bounded, and errors say which catalog and what to do."""

import contextlib
import socket
import sqlite3
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Barrier, Event, Thread

import pytest

from calve.iceberg import tables
from calve.iceberg.catalogs.catalog import BoundedSqlCatalog, open_catalog
from calve.iceberg.catalogs.rest import BoundedRestCatalog
from calve.model.errors import NotFoundError, PermanentError, TemporaryError, UnavailableError, UsageError
from calve.model.limits import Limits
from calve.store.database import make_engine
from support.lake import IDENTIFIER, SCHEMA, make_table, rows_of, sqlite_properties
from support.rest_front import Answer, Request, RestFront

QUICK = Limits(connect_seconds=0.5, call_seconds=0.5)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Somebody accepts the connection and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.fixture
def dead_port() -> int:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        return int(closed.getsockname()[1])


@pytest.mark.parametrize(
    "properties",
    [
        {"type": "sql", "uri": "sqlite:////nowhere/at/all/catalog.db", "warehouse": "/nowhere"},
        {"type": "sql", "uri": "postgresql://u:p@127.0.0.1:1/x", "warehouse": "/nowhere"},
        {"type": "rest", "uri": "http://127.0.0.1:1"},
    ],
    ids=["sqlite", "postgresql", "rest"],
)
def test_opening_touches_nothing(properties: dict[str, str]) -> None:
    open_catalog("lake", properties)
    assert not Path("/nowhere").exists()


def test_the_kind_is_told_by_the_uri_where_no_type_is_given() -> None:
    assert isinstance(open_catalog("lake", {"uri": "http://127.0.0.1:1"}), BoundedRestCatalog)
    found = open_catalog("lake", {"uri": "postgresql://u@127.0.0.1:1/x"})
    assert isinstance(found, BoundedSqlCatalog)
    assert found._engine.url.drivername == "postgresql+psycopg"


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"type": "nonsense", "uri": "http://x"}, "nonsense"),
        ({"type": "rest"}, "URI missing"),
        ({"type": "sql", "uri": "not a url"}, "parse"),
        ({"uri": "ftp://x"}, "infer"),
        ({}, "URI missing"),
    ],
)
def test_L7_a_configuration_that_cannot_be_right_is_a_usage_error(
    properties: dict[str, str], words: str
) -> None:
    with pytest.raises(UsageError, match=words) as raised:
        open_catalog("lake", properties)
    assert "[catalog.lake]" in raised.value.hint


def test_a_driver_that_is_not_installed_is_answered_with_the_uri_that_works() -> None:
    with pytest.raises(UsageError, match="psycopg2") as raised:
        open_catalog("lake", {"type": "sql", "uri": "postgresql+psycopg2://calve@host/lake"})
    assert "[catalog.lake] as postgresql://" in raised.value.hint


def test_T15_postgresql_without_its_extra_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    url = "postgresql://calve@host/lake"
    with pytest.raises(UsageError, match=r"catalog lake: .*psycopg") as of_catalog:
        open_catalog("lake", {"type": "sql", "uri": url})
    with pytest.raises(UsageError, match="a store in PostgreSQL needs psycopg") as of_store:
        make_engine(url, connect_seconds=1, call_seconds=1)
    assert of_catalog.value.hint == of_store.value.hint == "pip install 'calve[postgres]'"


@pytest.mark.parametrize("scheme", ["http", "postgresql"])
def test_a_dead_catalog_is_unavailable_and_named(dead_port: int, scheme: str) -> None:
    catalog = open_catalog("lake", {"uri": f"{scheme}://127.0.0.1:{dead_port}"}, QUICK)
    with pytest.raises(UnavailableError, match="catalog lake") as raised:
        tables.load(catalog, IDENTIFIER)
    assert raised.value.service == "catalog:lake"
    assert "refused" in raised.value.message and "Pool" not in raised.value.message


def test_a_dead_storage_behind_a_catalog_that_answers_is_what_the_hint_names(
    tmp_path: Path, dead_port: int
) -> None:
    """The table's entry is there; the file that it names cannot be fetched."""
    properties = sqlite_properties(tmp_path)
    make_table(open_catalog("lake", properties))
    with contextlib.closing(sqlite3.connect(tmp_path / "catalog.db")) as entries, entries:
        entries.execute("UPDATE iceberg_tables SET metadata_location = 's3://bucket/ns/t/1.metadata.json'")
    storage = {"s3.endpoint": f"http://127.0.0.1:{dead_port}", "s3.access-key-id": "a", "s3.region": "r"}
    catalog = open_catalog("lake", properties | storage | {"s3.secret-access-key": "b"}, QUICK)
    with pytest.raises(UnavailableError) as raised:
        tables.load(catalog, IDENTIFIER)
    assert '"s3.endpoint" under [catalog.lake]' in raised.value.hint


@pytest.mark.timeout(30)
@pytest.mark.parametrize("scheme", ["http", "postgresql"])
def test_a_catalog_that_accepts_and_never_answers_is_given_up(silent_port: int, scheme: str) -> None:
    catalog = open_catalog("lake", {"uri": f"{scheme}://127.0.0.1:{silent_port}"}, QUICK)
    with pytest.raises(UnavailableError):
        tables.load(catalog, IDENTIFIER)


@pytest.fixture
def dripping() -> Iterator[str]:
    """A server that begins to answer, and sends a byte of its answer now and then for ever."""
    over = Event()

    class Drip(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "1000000")
            self.end_headers()
            with contextlib.suppress(OSError):
                while not over.wait(0.05):
                    self.wfile.write(b" ")

        do_POST = do_GET  # noqa: N815

        def log_message(self, *args: object) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Drip)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    over.set()
    server.shutdown()
    server.server_close()


@pytest.mark.timeout(30)
def test_a_catalog_that_drips_its_answer_is_given_up(dripping: str) -> None:
    """Each byte comes in time, and the answer never does."""
    with pytest.raises(UnavailableError, match="not complete after"):
        tables.load(open_catalog("lake", {"uri": dripping}, QUICK), IDENTIFIER)


_CLIENT = {"client_id": "calve", "client_secret": "secret", "expires_in": 60}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("way", ["credential", "auth"])
@pytest.mark.parametrize("server", ["silent", "dripping"])
def test_a_server_of_tokens_that_never_answers_is_given_up(
    silent_port: int, dripping: str, way: str, server: str
) -> None:
    """It is asked before the catalog is: PyIceberg itself waits for ever there."""
    url = f"http://127.0.0.1:{silent_port}" if server == "silent" else dripping
    properties: dict[str, object] = {
        "credential": {"credential": "calve:secret", "oauth2-server-uri": url},
        "auth": {"auth": {"type": "oauth2", "oauth2": {**_CLIENT, "token_url": url}}},
    }[way]
    catalog = open_catalog("lake", {"uri": "http://127.0.0.1:1"} | properties, QUICK)
    with pytest.raises(UnavailableError) as raised:
        tables.load(catalog, IDENTIFIER)
    assert raised.value.service == "catalog:lake"
    assert "secret" not in raised.value.message


class RefusesAll(RestFront):
    def serve(self, request: Request) -> Answer:
        return Answer(status=401, body=b'{"error": {"message": "no", "type": "NotAuthorized", "code": 401}}')


def test_P9_wrong_credentials_are_permanent() -> None:
    with RefusesAll("http://127.0.0.1:1") as front:
        catalog = open_catalog("lake", {"uri": front.uri})
        with pytest.raises(PermanentError) as raised:
            tables.load(catalog, IDENTIFIER)
    assert raised.value.code == "catalog_credentials"


def test_a_missing_table_and_a_missing_namespace_are_not_found(tmp_path: Path) -> None:
    catalog = open_catalog("lake", sqlite_properties(tmp_path))
    with pytest.raises(NotFoundError, match=r"no table ns\.events"):
        tables.load(catalog, IDENTIFIER)
    assert not catalog.table_exists(IDENTIFIER)


def test_a_folder_as_warehouse_becomes_a_full_uri(tmp_path: Path) -> None:
    catalog = open_catalog("lake", sqlite_properties(tmp_path))
    assert catalog.properties["warehouse"] == f"file://{tmp_path}/warehouse"
    assert open_catalog("lake", {"uri": "http://x", "warehouse": "name"}).properties["warehouse"] == "name"


def test_many_that_open_an_empty_database_at_once_all_find_its_tables(tmp_path: Path) -> None:
    start = Barrier(4)
    failed: list[BaseException] = []

    def use() -> None:
        start.wait()
        try:
            catalog = open_catalog("lake", sqlite_properties(tmp_path))
            tables.create(catalog, IDENTIFIER, SCHEMA)
            catalog.close()
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    threads = [Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_a_database_that_is_locked_is_waited_for_and_then_temporary(tmp_path: Path) -> None:

    catalog = open_catalog("lake", sqlite_properties(tmp_path), QUICK)
    make_table(catalog)
    holder = sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(TemporaryError, match="locked"):
        tables.load(catalog, IDENTIFIER)
    holder.execute("ROLLBACK")
    holder.close()
    assert rows_of(catalog) == []
    catalog.close()


def test_secrets_of_a_catalog_are_in_no_error(dead_port: int) -> None:
    catalog = open_catalog("lake", {"uri": f"postgresql://user:hunter2@127.0.0.1:{dead_port}/x"}, QUICK)
    with pytest.raises(UnavailableError) as raised:
        tables.load(catalog, IDENTIFIER)
    assert "hunter2" not in str(raised.value.info)
