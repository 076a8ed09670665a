"""What object storage answers, classified once (`fault_of`), for every client and every read and write.

NotFoundError      no such object
PermanentError     refused, misconfigured, no such bucket: no retry helps (P9, T15)
UnavailableError   an outage: nothing answers in time, or with 5xx, 408, 429, `SlowDown`; uses no budget (T14)
TemporaryError     anything else that may pass

A worker's or executor's own disk without room: one error, wherever it is met.
"""

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from obstore import exceptions

from calve.model import reach
from calve.model.errors import (
    CalveError,
    DeniedError,
    NotFoundError,
    PermanentError,
    TemporaryError,
    UnavailableError,
    UntrustedError,
)
from calve.objects.uri import AZURE, GCS, S3, kind_of

_NO_ACCESS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_BUCKET = re.compile(
    r"NoSuchBucket|NO_SUCH_BUCKET|bucket does not exist|no such bucket|ContainerNotFound", re.IGNORECASE
)
# Where clouds give a machine, or a container, the keys of its role.
_ROLE_PLACES = ("//169.254.169.254/", "//169.254.170.2/", "//metadata.google.internal/")
# In the words of obstore; of Arrow and `requests`, whose errors differ in words only.
_CERTIFICATE = re.compile(
    r"InvalidCertificate|invalid peer certificate|certificate verify failed|CERTIFICATE_VERIFY_FAILED|"
    r"curlCode: (?:60|77)\b"
)
_REFUSED = re.compile(
    r"InvalidAccessKeyId|SignatureDoesNotMatch|AccessDenied|InvalidToken|ExpiredToken|"
    r"InvalidBucketName|status(?: code)?:? 40[013]\b|PermanentRedirect|credentials? (?:not|were not)",
    re.IGNORECASE,
)
# A 400 that means: try again.
_BUSY = re.compile(r"\b(?:RequestTimeout|SlowDown|InternalError|ServiceUnavailable)\b")
# A 5xx that no waiting cures: a storage that is nearly S3.
_UNSUPPORTED = re.compile(r"\bNotImplemented\b|status(?: code)?:? 501\b")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_CLIENT_ERROR = re.compile(r"status(?: code)?:? 4(?!08|29)\d\d\b")
_REFUSED_BY_ARROW = re.compile(
    r"ACCESS_DENIED|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|INVALID_SIGNATURE|"
    r"INVALID_CLIENT_TOKEN_ID|UNRECOGNIZED_CLIENT|EXPIRED_TOKEN"
)
_OUTAGE_BY_ARROW = re.compile(
    r"NETWORK_CONNECTION|curlCode|timed out|Connection refused|Connection reset|HTTP status (?:408|429|5\d\d)\b|"
    r"SLOW_DOWN|THROTTLING|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|REQUEST_TIMEOUT"
)
# What to configure, and the variable that says it.
_KEYS = {
    S3: ("access_key_id and secret_access_key_file", "AWS_ACCESS_KEY_ID"),
    AZURE: ("account_key_file or sas_token_file", "AZURE_STORAGE_ACCOUNT_KEY"),
    GCS: ("service_account_key_file", "GOOGLE_APPLICATION_CREDENTIALS"),
}
_FOREIGN = (exceptions.BaseError, OSError, ValueError)


class Fault(StrEnum):
    """What an answer, or the lack of one, means."""

    NO_BUCKET = "no such bucket"
    CERTIFICATE = "certificate not trusted"
    DENIED = "refused"
    MISSING = "no such object"
    CONFIG = "misconfigured"
    UNSUPPORTED = "not supported"
    OUTAGE = "cannot be reached"
    FULL = "no space left"


def fault_of(error: Exception) -> Fault | None:
    """The classification of a storage client's error: obstore's, Arrow's or the file system's. None if it
    is anything else."""
    if isinstance(error, exceptions.BaseError):
        return _fault_of_obstore(error)
    if isinstance(error, OSError):
        return _fault_of_os(error)
    return Fault.CONFIG if isinstance(error, ValueError) else None


def _fault_of_obstore(error: Exception) -> Fault | None:
    text = str(error)
    if _NO_BUCKET.search(text):
        return Fault.NO_BUCKET
    if _CERTIFICATE.search(text):
        return Fault.CERTIFICATE
    if _BUSY.search(text):
        return Fault.OUTAGE
    if _UNSUPPORTED.search(text):
        return Fault.UNSUPPORTED
    denied = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
    if isinstance(error, denied) or _REFUSED.search(text):
        return Fault.DENIED
    if isinstance(error, exceptions.NotFoundError):
        return Fault.MISSING
    if _CLIENT_ERROR.search(text):
        return None  # it answers, and objects to the request
    return Fault.OUTAGE if isinstance(error, exceptions.GenericError) else None


def _fault_of_os(error: OSError) -> Fault | None:
    text = str(error)
    if error.errno is None and _NO_BUCKET.search(text):  # obstore raises some of Python's own
        return Fault.NO_BUCKET
    if error.errno == errno.ENOENT or isinstance(error, FileNotFoundError):
        return Fault.MISSING
    if error.errno in _FULL:
        return Fault.FULL
    if _CERTIFICATE.search(text):
        return Fault.CERTIFICATE
    if error.errno in _NO_ACCESS or isinstance(error, PermissionError) or _REFUSED_BY_ARROW.search(text):
        return Fault.DENIED
    outage = isinstance(error, ConnectionError | TimeoutError) or _OUTAGE_BY_ARROW.search(text)
    return Fault.OUTAGE if outage else None


@contextmanager
def translated(uri: str, place: str = "") -> Iterator[None]:
    """Around every call of a storage library. `place` is the bucket; none for local files."""
    try:
        yield
    except _FOREIGN as error:
        raise translate(error, uri, place) from error


def translate(error: Exception, uri: str, place: str = "") -> CalveError:
    """What a storage library raised, as ours."""
    text = _words(error)
    match fault_of(error):
        case Fault.NO_BUCKET:
            return PermanentError(
                f"no such bucket: {place}",
                code="bucket_missing",
                hint="create it, or correct the location"
                + (
                    ", or virtual_addressing if the endpoint has the other style"
                    if kind_of(place) == S3
                    else ""
                ),
            )
        case Fault.CERTIFICATE:
            return UntrustedError(
                f"{place}: the certificate of its endpoint is not trusted",
                code="storage_certificate",
                hint='name the authority\'s certificates: ca_file in [storage."…"], or "s3.ca-file" in [catalog.…]',
            )
        case Fault.DENIED if place:
            return DeniedError(
                f"{place} refused the request for {uri}: {text}",
                code="storage_denied",
                hint=_keys_hint(place, error)
                or "check the keys, the region and the bucket's policy in the configuration",
            )
        case Fault.DENIED:
            return DeniedError(
                f"no access to {uri}: {text}",
                code="storage_denied",
                hint="give the user that runs the tasks the right to write there",
            )
        case Fault.MISSING:
            return NotFoundError(f"no such object: {uri}", code="object_missing")
        case Fault.CONFIG:
            return PermanentError(f"{place or uri}: {text}", code="storage_config")
        case Fault.UNSUPPORTED:
            return PermanentError(
                f"{place or uri} does not support a request that Calve needs: {text}",
                code="storage_unsupported",
                hint="see docs/object-storage.md#nearly-s3 for what a storage must be able to do",
            )
        case Fault.OUTAGE if place:
            return unavailable(place, text, _keys_hint(place, error))
        case Fault.FULL:
            return TemporaryError(
                f"no space left for {uri}: {text}", code="storage_full", hint="free some disk"
            )
        case _:
            return TemporaryError(f"{uri}: {text}", code="storage_failed")


def unavailable(place: str, text: str, hint: str = "") -> UnavailableError:
    return UnavailableError(
        f"{place} cannot be reached: {text}",
        code="storage_unavailable",
        hint=hint or "check the endpoint; waiting exports continue once it answers",
        service=reach.storage(place),
    )


def first_line(error: Exception) -> str:
    """obstore appends a debug dump after the message; people need the first line of it, and of the storage's own
    XML the code."""
    text = str(error).strip()
    line, xml, _ = (text.splitlines() or [type(error).__name__])[0].partition("<?xml ")
    code = _CODE.search(text) if xml else None
    return f"{line.strip()} {code[1]}" if code else f"{line}{xml}"[:300]


def _words(error: Exception) -> str:
    """Without the number and the path that Python adds to what the system says."""
    return (isinstance(error, OSError) and error.strerror) or first_line(error)


def _keys_hint(place: str, error: Exception) -> str:
    """For a bucket without keys, where the machine was asked for its role and has none to give."""
    if not any(address in str(error) for address in _ROLE_PLACES):
        return ""
    keys, variable = _KEYS.get(kind_of(place), _KEYS[S3])
    return (
        f"no keys are configured, so the machine was asked for its role: give {keys} in"
        f' [storage."{place}"], or those of its catalog, or {variable}'
    )


CODE = "disk_full"
# EFBIG: a limit on the size of files says no in other words.


def is_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in _FULL


def full_disk(path: str | Path, cause: str) -> TemporaryError:
    """`path` is what could not be written, or the folder for such files."""
    return TemporaryError(
        f"no room on this worker's disk for {path}{_free(Path(path))}: {cause}",
        code=CODE,
        hint="make room there, or set TMPDIR of the workers and executors to a larger disk; the task is"
        " tried again by itself, and `calve retry` goes on where it stopped",
    )


def as_full_disk(error: OSError, folder: Path) -> TemporaryError:
    """For an error that `is_full`."""
    return full_disk(error.filename or folder, error.strerror or os.strerror(error.errno or errno.ENOSPC))


def _free(path: Path) -> str:
    for folder in (path, *path.parents):
        try:
            return f" ({shutil.disk_usage(folder).free / 1e6:.0f} MB are free)"
        except OSError:
            continue  # it is gone, or not ours to see: its parent tells as much
    return ""
