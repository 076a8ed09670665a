"""What object storage answers, classified once: every read and every write goes through `translated`.

NotFoundError      no such object
PermanentError     refused, misconfigured, no such bucket: no retry helps (P9, T15)
UnavailableError   an outage: nothing answers in time, or with 5xx; uses no budget (T14)
TemporaryError     anything else that may pass
"""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

from obstore import exceptions

from calve.model.errors import (
    CalveError,
    NotFoundError,
    PermanentError,
    TemporaryError,
    UnavailableError,
)

DENIED = "storage_denied"
_NO_ACCESS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_BUCKET = re.compile(r"NoSuchBucket|bucket does not exist", re.IGNORECASE)
# Where clouds give a machine, or a container, the keys of its role.
_ROLE_PLACES = ("//169.254.169.254/", "//169.254.170.2/")
_CERTIFICATE = re.compile(r"InvalidCertificate|invalid peer certificate|certificate verify failed")
_REFUSED = re.compile(
    r"InvalidAccessKeyId|SignatureDoesNotMatch|AccessDenied|InvalidToken|ExpiredToken|"
    r"InvalidBucketName|\b40[013] |PermanentRedirect|credentials? (?:not|were not)",
    re.IGNORECASE,
)
_FOREIGN = (exceptions.BaseError, OSError, ValueError)


@contextmanager
def translated(uri: str, place: str = "") -> Iterator[None]:
    """Around every call of a storage library. `place` is the bucket; none for local files."""
    try:
        yield
    except _FOREIGN as error:
        raise (translate(error, uri, place) if place else translate_local(error, uri)) from error


def translate(error: Exception, uri: str, place: str) -> CalveError:
    """What a bucket's client raised."""
    text = first_line(error)
    if no_bucket(error):
        return PermanentError(
            f"no such bucket: {place}", code="bucket_missing", hint="create it, or correct the location"
        )
    if _CERTIFICATE.search(str(error)):
        return PermanentError(
            f"{place}: the certificate of its endpoint is not trusted",
            code="storage_certificate",
            hint='name the authority\'s certificates: ca_file in [storage."…"], or "s3.ca-file" in [catalog.…]',
        )
    denied = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError, PermissionError)
    if isinstance(error, denied) or _REFUSED.search(str(error)):
        return PermanentError(
            f"{place} refused the request for {uri}: {text}",
            code=DENIED,
            hint=_keys_hint(place, error)
            or "check the keys, the region and the bucket's policy in the configuration",
        )
    if isinstance(error, (exceptions.NotFoundError, FileNotFoundError)):
        return NotFoundError(f"no such object: {uri}", code="object_missing")
    if isinstance(error, ValueError) and not isinstance(error, exceptions.BaseError):
        return PermanentError(f"{place}: {text}", code="storage_config")
    if isinstance(error, exceptions.GenericError):
        return unavailable(place, text, _keys_hint(place, error))
    return TemporaryError(f"{uri}: {text}", code="storage_failed")


def translate_local(error: Exception, uri: str) -> CalveError:
    """What the file system raised."""
    if not isinstance(error, OSError):
        return PermanentError(f"{uri}: {first_line(error)}", code="storage_config")
    cause = error.strerror or type(error).__name__
    if error.errno == errno.ENOENT:
        return NotFoundError(f"no such object: {uri}", code="object_missing")
    if error.errno in _NO_ACCESS:
        return PermanentError(
            f"no access to {uri}: {cause}",
            code=DENIED,
            hint="give the user that runs the tasks the right to write there",
        )
    if error.errno in _FULL:
        return TemporaryError(f"no space left for {uri}: {cause}", code="storage_full", hint="free some disk")
    return TemporaryError(f"{uri}: {cause}", code="storage_failed")


def unavailable(place: str, text: str, hint: str = "") -> UnavailableError:
    return UnavailableError(
        f"{place} cannot be reached: {text}",
        code="storage_unavailable",
        hint=hint or "check the endpoint; waiting exports continue once it answers",
        service=f"storage:{place}",
    )


def no_bucket(error: Exception) -> bool:
    return _NO_BUCKET.search(str(error)) is not None


def first_line(error: Exception) -> str:
    """obstore appends a debug dump after the message; people need the first line of it."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _keys_hint(place: str, error: Exception) -> str:
    """For a bucket without keys, where the machine was asked for its role and has none to give."""
    if not any(address in str(error) for address in _ROLE_PLACES):
        return ""
    return (
        "no keys are configured, so the machine was asked for its role: give access_key_id and"
        f' secret_access_key_file in [storage."{place}"], or those of its catalog, or AWS_ACCESS_KEY_ID'
    )
