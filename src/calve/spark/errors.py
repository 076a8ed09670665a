"""What the JVM threw, as CalveErrors: by the class of any cause, never by a localized message."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from calve.model import reach
from calve.model.errors import (
    CalveError,
    DeniedError,
    NotFoundError,
    TemporaryError,
    UnavailableError,
    UntrustedError,
)

_CONFLICT = ("ValidationException", "CommitFailedException", "AlreadyExistsException")
_MISSING = ("NoSuchTableException", "NoSuchNamespaceException", "NoSuchIcebergTableException")
_CERTIFICATE = ("SunCertPathBuilderException", "CertPathBuilderException", "CertPathValidatorException")
_CREDENTIALS = ("NotAuthorizedException", "ForbiddenException")
_UNREACHABLE = (
    "ConnectException", "UnknownHostException", "SocketTimeoutException", "HttpHostConnectException",
    "ServiceUnavailableException", "ServiceFailureException", "SdkClientException", "NoRouteToHostException",
)  # fmt: skip
_STATUS = re.compile(
    r"\bcode: (\d{3})\b|\(Service: \w+, Status Code: (\d{3})"
)  # of Iceberg's REST client; of AWS's
_OUTAGE_STATUS = (408, 425, 429)
_CANCELLED = ("SparkJobCancelled", "cancelled job", "cancelled part of")
_MOST_CAUSES = 20


@contextmanager
def translated(catalog: str, doing: str) -> Iterator[None]:
    """Around every call into the JVM: raises CalveErrors only."""
    from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

    try:
        yield
    except Py4JJavaError as error:
        raise translate(catalog, doing, error.java_exception) from error
    except (Py4JNetworkError, ConnectionError) as error:
        raise TemporaryError(
            f"{doing}: the driver's JVM is gone", code="driver_lost", hint="it is retried"
        ) from error
    except Py4JError as error:
        raise TemporaryError(f"{doing}: {_line(str(error))}", code="driver_failed") from error
    except CalveError:
        raise
    except Exception as error:
        # pyspark turns some of the JVM's exceptions into its own, the original inside.
        origin = getattr(error, "_origin", None)
        if origin is None:
            raise
        raise translate(catalog, doing, origin) from error


def translate(catalog: str, doing: str, thrown: Any) -> CalveError:
    causes = list(_causes(thrown))
    names = {cause.getClass().getSimpleName() for cause in causes}
    said = _line(next((str(cause.getMessage()) for cause in reversed(causes) if cause.getMessage()), ""))
    message = f"{doing}: {said or type_name(thrown)}"
    if names & set(_CONFLICT):
        return TemporaryError(
            message,
            code="rewrite_conflict",
            hint="another writer was first; the rest is replanned",
        )
    if names & set(_MISSING):
        return NotFoundError(message, code="no_such_table", hint=f"`calve doctor` probes catalog {catalog}")
    if names & set(_CERTIFICATE):
        return UntrustedError(
            message,
            code="catalog_certificate",
            hint=f"name the authority's certificates as ca_file under [catalog.{catalog}]; the executors of"
            " a cluster take theirs from spark.executor.extraJavaOptions (see docs/object-storage.md)",
        )
    if names & set(_CREDENTIALS):
        return DeniedError(
            message,
            code="catalog_credentials",
            hint=f"check user, password or token under [catalog.{catalog}]",
        )
    if any(word in str(cause.getMessage()) for cause in causes for word in _CANCELLED):
        return TemporaryError(message, code="cancelled", hint="it was cancelled")
    if names & set(_UNREACHABLE) or any(_is_outage(str(cause.getMessage())) for cause in causes):
        return UnavailableError(
            message,
            code="catalog_unreachable",
            hint=f"check that catalog {catalog} and its storage are up: `calve doctor`",
            service=reach.catalog(catalog),
        )
    return TemporaryError(message, code="rewrite_failed", hint="see Spark's log")


def _is_outage(message: str) -> bool:
    """An answer of a catalog, a storage or a proxy that says: not now."""
    found = _STATUS.search(message)
    status = int(found[1] or found[2]) if found else 0
    return status >= 500 or status in _OUTAGE_STATUS


def type_name(thrown: Any) -> str:
    return str(thrown.getClass().getName())


def _causes(thrown: Any) -> Iterator[Any]:
    for _ in range(_MOST_CAUSES):
        if thrown is None:
            return
        yield thrown
        thrown = thrown.getCause()


def _line(text: str) -> str:
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return first if len(first) <= 300 else f"{first[:297]}..."
