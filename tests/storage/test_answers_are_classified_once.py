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
        (exceptions.GenericError(S3_SAYS + "502 Bad Gateway"), Fault.OUTAGE),
        (exceptions.GenericError(S3_SAYS + "504 Gateway Timeout"), Fault.OUTAGE),
        (exceptions.GenericError(S3_SAYS + "429 Too Many Requests"), Fault.OUTAGE),
        (exceptions.GenericError(S3_SAYS + "408 Request Timeout"), Fault.OUTAGE),
        (exceptions.GenericError(S3_SAYS + "400 Bad Request: <Code>RequestTimeout</Code>"), Fault.OUTAGE),
        (exceptions.GenericError("Generic S3 error: Error performing GET http://s3/b/400 x/k"), Fault.OUTAGE),
        (exceptions.GenericError(S3_SAYS + "400 Bad Request: <Code>InvalidRequest</Code>"), Fault.DENIED),
        (exceptions.GenericError(S3_SAYS + "405 Method Not Allowed"), None),
        (exceptions.GenericError(S3_SAYS + "416 Range Not Satisfiable"), None),
        (exceptions.GenericError(S3_SAYS + "403 Forbidden: <Code>AccessDenied</Code>"), Fault.DENIED),
        (exceptions.UnauthenticatedError("no"), Fault.DENIED),
        (exceptions.NotFoundError("Object at location x not found: <Code>NoSuchKey</Code>"), Fault.MISSING),
        (exceptions.NotFoundError("not found: <Code>NoSuchBucket</Code>"), Fault.NO_BUCKET),
        (FileNotFoundError("not found: <Code>NoSuchBucket</Code>"), Fault.NO_BUCKET),
        (exceptions.GenericError("invalid peer certificate: UnknownIssuer"), Fault.CERTIFICATE),
        (exceptions.InvalidPathError("x//y"), None),
        (OSError("When reading: AWS Error ACCESS_DENIED during GetObject operation"), Fault.DENIED),
        (OSError("When reading: AWS Error NETWORK_CONNECTION during GetObject: curlCode: 7"), Fault.OUTAGE),
        *(
            (OSError(f"AWS Error UNKNOWN (HTTP status {n}) during HeadObject operation"), Fault.OUTAGE)
            for n in (408, 429, 500, 502, 503, 504)
        ),
        *(
            (OSError(f"AWS Error {word} during CompleteMultipartUpload operation: busy"), Fault.OUTAGE)
            for word in (
                "SLOW_DOWN",
                "THROTTLING",
                "SERVICE_UNAVAILABLE",
                "INTERNAL_FAILURE",
                "REQUEST_TIMEOUT",
            )
        ),
        (OSError("AWS Error UNKNOWN (HTTP status 405) during HeadObject operation"), None),
        (OSError("AWS Error REQUEST_TIME_TOO_SKEWED (HTTP status 403): ACCESS_DENIED"), Fault.DENIED),
        (OSError("AWS Error NO_SUCH_BUCKET during CreateMultipartUpload operation"), Fault.NO_BUCKET),
        (OSError("no such bucket: s3://nowhere"), Fault.NO_BUCKET),
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
def test_T14_a_fault_is_told_by_class_number_or_words(error: Exception, fault: Fault | None) -> None:
    assert fault_of(error) is fault


def test_each_fault_has_its_error() -> None:
    def made(error: Exception, place: str = "s3://bucket") -> Exception:
        return translate(error, "s3://bucket/x", place)

    assert isinstance(made(exceptions.GenericError(S3_SAYS + "503 x")), UnavailableError)
    assert isinstance(made(exceptions.NotFoundError("x")), NotFoundError)
    assert isinstance(made(exceptions.PermissionDeniedError("x")), PermanentError)
    assert isinstance(made(OSError(errno.ENOSPC, "No space left on device")), TemporaryError)
    assert type(made(OSError(errno.EIO, "Input/output error"), "")) is TemporaryError
