"""What a catalog, its database, a token server or a proxy in between answers, and what each means (T14)."""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

import psycopg
import pytest
import requests
from pyiceberg import exceptions as iceberg
from pyiceberg.catalog import CommitTableResponse
from pyiceberg.catalog.rest.response import _handle_non_200_response
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import exc as sql

from calve.iceberg.errors import translate
from calve.iceberg.publish.commit import CommitAnswer, TableCommit, _classify, send
from calve.model.errors import CalveError, DeniedError, PermanentError, TemporaryError, UnavailableError
from calve.store.failures import translate as of_store


@dataclass(frozen=True)
class Row:
    status: int
    looked: type[CalveError]  # what a load or a create becomes
    committed: CommitAnswer


ANSWERS = [
    Row(400, PermanentError, CommitAnswer.CONFLICT),
    Row(401, DeniedError, CommitAnswer.REFUSED),
    Row(403, DeniedError, CommitAnswer.REFUSED),
    Row(408, UnavailableError, CommitAnswer.UNKNOWN),
    Row(419, DeniedError, CommitAnswer.REFUSED),
    Row(422, TemporaryError, CommitAnswer.UNKNOWN),
    Row(425, UnavailableError, CommitAnswer.UNKNOWN),
    Row(429, UnavailableError, CommitAnswer.UNKNOWN),
    Row(500, UnavailableError, CommitAnswer.UNKNOWN),
    Row(501, PermanentError, CommitAnswer.UNKNOWN),
    Row(502, UnavailableError, CommitAnswer.UNKNOWN),
    Row(503, UnavailableError, CommitAnswer.UNKNOWN),
    Row(504, UnavailableError, CommitAnswer.UNKNOWN),
    Row(507, UnavailableError, CommitAnswer.UNKNOWN),
]


def _raised(status: int, body: str) -> Exception:
    """What PyIceberg's client makes of an answer."""
    response = requests.Response()
    response.status_code, response._content = status, body.encode()
    try:
        _handle_non_200_response(requests.HTTPError(response=response), {})
    except Exception as error:  # noqa: BLE001 - it is the subject
        return error
    raise AssertionError("an answer of that status is an error")


@pytest.mark.parametrize("row", ANSWERS, ids=lambda row: str(row.status))
@pytest.mark.parametrize("body", ["", "<html>a proxy's page</html>"], ids=["empty", "html"])
def test_T14_a_status_means_one_thing(row: Row, body: str) -> None:
    error = _raised(row.status, body)
    assert type(translate("lake", "loading", error)) is row.looked
    assert _classify(error) is row.committed


def test_T15_a_catalog_that_keeps_no_tags_is_named_at_once() -> None:
    """As Nessie answers an assertion about a tag."""
    words = "Requirement failed: ref must be 'main', but is 'calve-abc'"
    error = iceberg.CommitFailedException(words)

    class Nessie(SqlCatalog):
        def commit_table(self, *_: object) -> CommitTableResponse:
            raise error

    catalog = Nessie("lake", uri="sqlite://", warehouse="file:///none")
    reply = send(catalog, None, TableCommit(requirements=(), updates=()), "publishing")  # type: ignore[arg-type]
    assert reply.answer is CommitAnswer.REFUSED
    assert isinstance(reply.error, PermanentError) and reply.error.code == "catalog_without_tags"
    assert words in reply.error.message and "docs/catalogs.md" in reply.error.hint


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_T14_a_token_server_that_fails_is_an_outage(status: int) -> None:
    response = requests.Response()
    response.status_code = status
    found = translate("lake", "fetching a token", requests.HTTPError(response=response))
    assert isinstance(found, UnavailableError) and found.service == "catalog:lake"


def _postgres(state: str, kind: type[psycopg.Error]) -> Exception:
    cause = kind("said the server")
    cause.sqlstate = state
    return cause


def _sqlite(name: str) -> Exception:
    cause = sqlite3.OperationalError("said SQLite")
    cause.sqlite_errorname = name  # type: ignore[attr-defined]
    return cause


DATABASES: list[tuple[Exception, type[sql.DBAPIError], type[CalveError]]] = [
    (_postgres("57P03", psycopg.OperationalError), sql.OperationalError, UnavailableError),  # starting up
    (
        _postgres("53300", psycopg.OperationalError),
        sql.OperationalError,
        UnavailableError,
    ),  # too many clients
    (_postgres("08006", psycopg.OperationalError), sql.OperationalError, UnavailableError),
    (_postgres("25006", psycopg.InternalError), sql.InternalError, UnavailableError),  # a standby
    (_postgres("28P01", psycopg.OperationalError), sql.OperationalError, DeniedError),
    (_postgres("42501", psycopg.ProgrammingError), sql.ProgrammingError, DeniedError),
    (_postgres("3D000", psycopg.OperationalError), sql.OperationalError, TemporaryError),  # no such database
    (_sqlite("SQLITE_BUSY"), sql.OperationalError, UnavailableError),
    (_sqlite("SQLITE_READONLY_DIRECTORY"), sql.OperationalError, DeniedError),
    (_sqlite("SQLITE_FULL"), sql.OperationalError, TemporaryError),
    (_sqlite("SQLITE_CANTOPEN"), sql.OperationalError, TemporaryError),
]


@pytest.mark.parametrize(("cause", "wrapper", "expected"), DATABASES)
def test_T14_a_catalog_s_database_is_down_only_where_waiting_helps(
    cause: Exception, wrapper: type[sql.DBAPIError], expected: type[CalveError]
) -> None:
    assert type(translate("lake", "loading", wrapper("SELECT 1", {}, cause))) is expected


@pytest.mark.parametrize(
    ("state", "kind", "wrapper", "code"),
    [
        ("57P01", psycopg.OperationalError, sql.OperationalError, "store_unavailable"),
        ("53300", psycopg.OperationalError, sql.OperationalError, "store_unavailable"),
        ("25006", psycopg.InternalError, sql.InternalError, "store_unavailable"),
        ("42703", psycopg.ProgrammingError, sql.ProgrammingError, "store_rejected"),
    ],
)
def test_T14_a_store_that_fails_over_is_unavailable(
    state: str, kind: type[psycopg.Error], wrapper: type[sql.DBAPIError], code: str
) -> None:
    from sqlalchemy import make_url

    url = make_url("postgresql://user@host/calve")
    assert of_store(wrapper("UPDATE", {}, _postgres(state, kind)), url).code == code


def test_T14_commits_whose_answer_is_lost_stay_unknown() -> None:
    lost: list[Callable[[], Exception]] = [
        lambda: requests.ReadTimeout("too slow"),
        lambda: requests.ConnectionError("reset"),
        lambda: iceberg.CommitStateUnknownException("502"),
        lambda: sql.OperationalError("COMMIT", {}, _postgres("08006", psycopg.OperationalError)),
        lambda: OSError("AWS Error UNKNOWN (HTTP status 503) during HeadObject operation"),
    ]
    assert {_classify(make()) for make in lost} == {CommitAnswer.UNKNOWN}
