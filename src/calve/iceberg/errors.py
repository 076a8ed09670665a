"""Other libraries' errors, turned into ours at the port to a catalog.

Says only what the call met. Whether a commit's error leaves its outcome unknown is decided in
`publish.commit`, where it is known that one was sent.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import requests
from pyiceberg import exceptions as iceberg
from sqlalchemy import exc as sql

from calve.model import reach
from calve.model.errors import (
    CalveError,
    DeniedError,
    NotFoundError,
    PermanentError,
    TemporaryError,
    UnavailableError,
    UntrustedError,
    UsageError,
)
from calve.objects.errors import Fault, fault_of

_SQL_CREDENTIALS = ("28000", "28P01", "42501")  # invalid authorization, wrong password, no privilege
_SQL_NO_DATABASE = ("3D000",)
# A standby: during a fail-over the primary is read-only for a while.
_SQL_STANDBY = ("25006",)
# SQLite's own errors that no waiting cures; what it calls busy or locked is another program's turn.
_SQLITE_NOT_OUTAGE = ("SQLITE_CANTOPEN", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_ERROR")
_AWS_CREDENTIALS = (
    "AccessDeniedException", "ExpiredTokenException", "IncompleteSignatureException", "InvalidClientTokenId",
    "InvalidSignatureException", "MissingAuthenticationTokenException", "UnrecognizedClientException",
)  # fmt: skip
_AWS_BUSY = ("ThrottlingException", "Throttling", "TooManyRequestsException", "OperationTimeoutException")
_OUTAGE_STATUS = (408, 425, 429)
_STORAGE_WORDS = ("AWS Error", "Generic S3 error")  # how Arrow and obstore begin what they say of S3
_OS_WORDS = re.compile(r"\[Errno -?\d+\] ([^\"')]+)")


@contextmanager
def catalog_call(catalog: str, doing: str, entry: str = "") -> Iterator[None]:
    """Whatever a call to a catalog raises leaves as a CalveError that names the catalog and the act.
    `entry` is what to fix in the configuration, where it is not the catalog's own section."""
    try:
        yield
    except CalveError:
        raise
    except Exception as cause:
        raise translate(catalog, doing, cause, entry) from cause


def translate(catalog: str, doing: str, cause: Exception, entry: str = "") -> CalveError:
    """The CalveError for what a catalog's client raised."""
    entry = entry or f"[catalog.{catalog}]"
    message = f"catalog {catalog}: {doing}: {describe(cause)}"
    if isinstance(
        cause, iceberg.NoSuchTableError | iceberg.NoSuchNamespaceError | iceberg.NoSuchIdentifierError
    ):
        return NotFoundError(
            message, code="not_found", hint=f"check the name; `calve doctor` probes catalog {catalog}"
        )
    if fault_of(cause) is Fault.NO_BUCKET:
        return PermanentError(message, code="bucket_missing", hint="create it, or correct the location")
    if _is_certificate(cause):
        return UntrustedError(
            message,
            code="catalog_certificate",
            hint=f"name the authority's certificates as ca_file under {entry}",
        )
    if _is_credentials(cause):
        return DeniedError(
            message,
            code="catalog_credentials",
            hint=f"check user, password, token or keys under {entry}",
        )
    if _is_unreachable(cause):
        return UnavailableError(
            message,
            code="catalog_unreachable",
            hint=_check_that(catalog, entry, cause),
            service=reach.catalog(catalog),
        )
    if isinstance(cause, iceberg.NotInstalledError | ModuleNotFoundError):
        return UsageError(
            message,
            code="catalog_not_installed",
            hint="install the client library that this catalog type needs",
        )
    if isinstance(cause, iceberg.NoSuchPropertyException):
        return UsageError(message, code="catalog_config", hint=f"see [catalog.{catalog}] in calve.toml")
    if isinstance(cause, iceberg.BadRequestError | iceberg.ValidationError | NotImplementedError):
        return PermanentError(
            message, code="catalog_refused", hint="the catalog refused the request as it is"
        )
    return TemporaryError(message, code="catalog_error", hint=f"`calve doctor` probes catalog {catalog}")


def _check_that(catalog: str, entry: str, cause: Exception) -> str:
    """What does not answer: the catalog, or, with it in good health, the storage of its metadata files."""
    if any(word in str(cause) for word in _STORAGE_WORDS):
        return f'check that the storage is up, and "s3.endpoint" under {entry}: `calve doctor`'
    return f"check that catalog {catalog} is up and its uri right: `calve doctor`"


def describe(cause: BaseException) -> str:
    """One line, with the root cause, and without the connection URL that some drivers print."""
    if isinstance(cause, sql.DBAPIError) and cause.orig is not None:
        cause = cause.orig
    text = " ".join(str(cause).split()) or type(cause).__name__
    if isinstance(cause, requests.ConnectionError) and (root := _OS_WORDS.search(text)):
        asked = cause.request.url if cause.request is not None else None
        # Without the furniture of two libraries.
        text = f"{asked}: {root[1]}" if isinstance(asked, str) else root[1]
    return text if len(text) <= 300 else f"{text[:297]}..."


def _is_certificate(cause: Exception) -> bool:
    """The server's certificate is not trusted: waiting does not help."""
    return isinstance(cause, OSError) and fault_of(cause) is Fault.CERTIFICATE


def _is_credentials(cause: Exception) -> bool:
    if isinstance(
        cause,
        iceberg.UnauthorizedError
        | iceberg.ForbiddenError
        | iceberg.OAuthError
        | iceberg.AuthorizationExpiredError,
    ):
        return True
    if _aws_code(cause) in _AWS_CREDENTIALS or _is_aws(
        cause, "NoCredentialsError", "PartialCredentialsError"
    ):
        return True
    if isinstance(cause, requests.HTTPError):  # of the server that gives out tokens
        return _http_status(cause) in (400, 401, 403)
    if isinstance(cause, OSError) and fault_of(cause) is Fault.DENIED:
        return True
    if not isinstance(cause, sql.DBAPIError):
        return False
    # A failed login has no SQLSTATE on the client side of psycopg: only its words tell.
    text = str(cause.orig)
    if _sqlite_error(cause).startswith("SQLITE_READONLY"):
        return True
    return _sqlstate(cause) in _SQL_CREDENTIALS or "authentication failed" in text


def _is_unreachable(cause: Exception) -> bool:
    if isinstance(cause, requests.ConnectionError | requests.Timeout | ConnectionError | TimeoutError):
        return True
    if isinstance(
        cause, iceberg.ServiceUnavailableError | iceberg.ServerError | iceberg.TooManyRequestsError
    ):
        return True
    if isinstance(cause, iceberg.CommitStateUnknownException):
        return True
    if isinstance(cause, requests.HTTPError | iceberg.RESTError):
        return _http_status(cause) in _OUTAGE_STATUS or _http_status(cause) >= 500
    if _is_thrift_transport(cause) or _is_aws(cause, "HTTPClientError", "ConnectionError"):
        return True
    if _aws_code(cause):
        return _aws_status(cause) >= 500 or _aws_code(cause) in _AWS_BUSY
    if isinstance(cause, sql.DBAPIError):
        return _is_unreachable_database(cause)
    if isinstance(cause, sql.TimeoutError):
        return True
    # Reading and writing metadata files is part of a catalog call.
    return isinstance(cause, OSError) and fault_of(cause) is Fault.OUTAGE


def _is_unreachable_database(cause: sql.DBAPIError) -> bool:
    if _sqlstate(cause) in _SQL_NO_DATABASE or _sqlite_error(cause).startswith(_SQLITE_NOT_OUTAGE):
        return False
    return isinstance(cause, sql.OperationalError | sql.InterfaceError) or _sqlstate(cause) in _SQL_STANDBY


def _is_thrift_transport(cause: Exception) -> bool:
    """Of a Hive metastore's client, which is an extra."""
    return any(one.__name__ == "TTransportException" for one in type(cause).__mro__)


def _is_aws(cause: Exception, *names: str) -> bool:
    """Errors of Glue's client, which is an extra."""
    found = {one.__name__ for one in type(cause).__mro__ if one.__module__ == "botocore.exceptions"}
    return not found.isdisjoint(names)


def _aws_code(cause: Exception) -> str:
    """Of an answer of Glue; "" for everything else."""
    answer = getattr(cause, "response", None) if _is_aws(cause, "ClientError") else None
    return str(answer.get("Error", {}).get("Code", "")) if answer else ""


def _aws_status(cause: Exception) -> int:
    answer = getattr(cause, "response", None) or {}
    return int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _sqlstate(cause: sql.DBAPIError) -> str:
    return getattr(cause.orig, "sqlstate", None) or ""


def _sqlite_error(cause: sql.DBAPIError) -> str:
    return getattr(cause.orig, "sqlite_errorname", None) or ""


def _http_status(cause: BaseException) -> int:
    """Of the answer: PyIceberg keeps it below its own error."""
    answer = getattr(cause, "response", None)
    if answer is None:
        answer = getattr(cause.__cause__, "response", None)
    return 0 if answer is None else int(answer.status_code)
