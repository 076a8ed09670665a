"""Every client's words for one fault mean the same: obstore's, Arrow's and the file system's."""

import errno

import pytest
from obstore import exceptions

from calve.model.errors import NotFoundError, PermanentError, TemporaryError, UnavailableError
from calve.objects.errors import Fault, fault_of, translate

S3_SAYS = (
    "Generic S3 error: Error performing PUT http://s3/bucket/x in 1s - Server returned non-2xx status code: "
)


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (exceptions.GenericError(S3_SAYS + "503 Service Unavailable: <Code>SlowDown</Code>"), Fault.OUTAGE),
        (exceptions.GenericError(S3_SAYS + "500 Internal Server Error"), Fault.OUTAGE),
        (exceptions.GenericError(S3_SAYS + "403 Forbidden: <Code>AccessDenied</Code>"), Fault.DENIED),
        (exceptions.UnauthenticatedError("no"), Fault.DENIED),
        (exceptions.NotFoundError("Object at location x not found: <Code>NoSuchKey</Code>"), Fault.MISSING),
        (exceptions.NotFoundError("not found: <Code>NoSuchBucket</Code>"), Fault.NO_BUCKET),
        (FileNotFoundError("not found: <Code>NoSuchBucket</Code>"), Fault.NO_BUCKET),
        (exceptions.GenericError("invalid peer certificate: UnknownIssuer"), Fault.CERTIFICATE),
        (exceptions.InvalidPathError("x//y"), None),
        (OSError("When reading: AWS Error ACCESS_DENIED during GetObject operation"), Fault.DENIED),
        (OSError("When reading: AWS Error NETWORK_CONNECTION during GetObject: curlCode: 7"), Fault.OUTAGE),
        (OSError("AWS Error NETWORK_CONNECTION: curlCode: 60, SSL peer certificate"), Fault.CERTIFICATE),
        (FileNotFoundError("Path does not exist 'bucket/x'"), Fault.MISSING),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), Fault.DENIED),
        (OSError(errno.EROFS, "Read-only file system", "/x"), Fault.DENIED),
        (OSError(errno.ENOSPC, "No space left on device", "/x"), Fault.FULL),
        (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), Fault.OUTAGE),
        (OSError(errno.EIO, "Input/output error", "/x"), None),
        (ValueError("Invalid endpoint"), Fault.CONFIG),
    ],
)
def test_a_fault_is_told_by_class_number_or_words(error: Exception, fault: Fault | None) -> None:
    assert fault_of(error) is fault


def test_each_fault_has_its_error() -> None:
    def made(error: Exception, place: str = "s3://bucket") -> Exception:
        return translate(error, "s3://bucket/x", place)

    assert isinstance(made(exceptions.GenericError(S3_SAYS + "503 x")), UnavailableError)
    assert isinstance(made(exceptions.NotFoundError("x")), NotFoundError)
    assert isinstance(made(exceptions.PermissionDeniedError("x")), PermanentError)
    assert isinstance(made(OSError(errno.ENOSPC, "No space left on device")), TemporaryError)
    assert type(made(OSError(errno.EIO, "Input/output error"), "")) is TemporaryError
