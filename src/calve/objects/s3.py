"""S3 and what speaks its protocol, through obstore.

Bounded by seconds, not by counts (L2): an endpoint that is dead, or that accepts and never
answers, is known within `call_seconds`. A large upload that fails is aborted by one more request,
which meets the same endpoint; so one request may take less than half of that time, and no retry
starts after the first third.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
from obstore import exceptions
from obstore.store import S3Store

from calve.model.errors import (
    CalveError,
    NotFoundError,
    PermanentError,
    RefusedError,
    TemporaryError,
    UnavailableError,
)
from calve.objects.credentials import CA_FILE, check_ca_file
from calve.objects.port import Upload, Uploads
from calve.objects.s3_uploads import S3Uploads
from calve.objects.trust import trusting

SCHEMES = ("s3://", "s3a://", "s3n://")
# Both bound memory (10 MB an upload) and the bandwidth that the timeouts presume (1.5 MB/s by default).
CHUNK_BYTES = 5 << 20  # the least that S3 takes
CHUNKS_AT_ONCE = 2
_DEFAULT_REGION = "us-east-1"
_COPIED = {
    "s3.endpoint": "endpoint",
    "s3.access-key-id": "access_key_id",
    "s3.secret-access-key": "secret_access_key",
    "s3.session-token": "session_token",
    "s3.region": "region",
    "s3.role-arn": "role_arn",
    "s3.role-session-name": "role_session_name",
    "s3.server-side-encryption": "server_side_encryption",
    "s3.sse-kms-key-id": "sse_kms_key_id",
}
_NO_BUCKET = re.compile(r"NoSuchBucket|bucket does not exist", re.IGNORECASE)
# Where clouds give a machine, or a container, the keys of its role.
_ROLE_PLACES = ("//169.254.169.254/", "//169.254.170.2/")
_CERTIFICATE = re.compile(r"InvalidCertificate|invalid peer certificate|certificate verify failed")
_REFUSED = re.compile(
    r"InvalidAccessKeyId|SignatureDoesNotMatch|AccessDenied|InvalidToken|ExpiredToken|"
    r"InvalidBucketName|\b40[013] |PermanentRedirect|credentials? (?:not|were not)",
    re.IGNORECASE,
)


class S3ObjectStore:
    """Objects of one bucket."""

    def __init__(
        self, bucket_uri: str, properties: Mapping[str, str], *, connect_seconds: float, call_seconds: float
    ) -> None:
        self._bucket_uri = bucket_uri
        bucket = bucket_uri.split("://", 1)[1]
        ca_file = properties.get(CA_FILE, "")
        if ca_file:
            check_ca_file(ca_file)  # an executor may not have it
        self._uploads = S3Uploads(
            bucket_uri, properties, connect_seconds=connect_seconds, call_seconds=call_seconds
        )
        with self._wrapped(bucket_uri), trusting(ca_file):
            self._store = S3Store(
                bucket,
                config=_config(properties),
                client_options=_client(properties, connect_seconds, call_seconds),
                retry_config={
                    "max_retries": 10,
                    "retry_timeout": timedelta(seconds=call_seconds / 3),
                    "backoff": {
                        "init_backoff": timedelta(milliseconds=100),
                        "max_backoff": timedelta(seconds=2),
                        "base": 2,
                    },
                },
            )

    def put_if_absent(self, uri: str, data: bytes) -> bool:
        with self._wrapped(uri):
            try:
                # If we die here, the object is there or not; a second call finds out.
                obstore.put(self._store, self._key(uri), data, mode="create")
            except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
                return False
        return True

    def upload(self, local: Path, uri: str, *, flush: bool = True) -> None:
        large = local.stat().st_size > CHUNK_BYTES
        with self._wrapped(uri), self._not_forgotten(uri):
            # If we die here, parts of a multipart upload stay invisible until the bucket's
            # lifecycle rule ends it; no object appears.
            obstore.put(
                self._store,
                self._key(uri),
                local,
                use_multipart=large,
                chunk_size=CHUNK_BYTES,
                max_concurrency=CHUNKS_AT_ONCE,
            )

    def link(self, local: Path, uri: str) -> None:
        raise RefusedError(
            f"{uri}: object storage has no hard links",
            code="no_hard_links",
            hint="set hard_links = false under [backup]",
        )

    def flush(self, uris: Sequence[str]) -> None:
        """What was acknowledged is durable."""

    def read(self, uri: str) -> bytes:
        with self._wrapped(uri):
            found = obstore.get(self._store, self._key(uri))
            size = int(found.meta["size"])
            if size <= CHUNK_BYTES:
                return bytes(found.bytes())
            return b"".join(self._pieces(uri, size))

    def download(self, uri: str, local: Path) -> None:
        size = self.size(uri)
        with self._wrapped(uri), local.open("wb") as out:
            for piece in self._pieces(uri, size):
                out.write(piece)

    def _pieces(self, uri: str, size: int) -> Iterator[bytes]:
        """In ranges: a request's timeout counts its body too, and one for all would presume a bandwidth
        that grows with the object."""
        for start in range(0, size, CHUNK_BYTES):
            end = min(size, start + CHUNK_BYTES)
            yield bytes(obstore.get_range(self._store, self._key(uri), start=start, end=end))

    def exists(self, uri: str) -> bool:
        try:
            self.size(uri)
        except NotFoundError:
            return False
        return True

    def size(self, uri: str) -> int:
        with self._wrapped(uri):
            return int(obstore.head(self._store, self._key(uri))["size"])

    def list(self, prefix_uri: str) -> list[str]:
        return sorted(self.sizes(prefix_uri))

    def sizes(self, prefix_uri: str) -> dict[str, int]:
        prefix = self._key(prefix_uri.rstrip("/"), may_be_root=True)
        with self._wrapped(prefix_uri):
            return {
                f"{self._bucket_uri}/{item['path']}": int(item["size"])
                for batch in obstore.list(self._store, prefix or None)
                for item in batch
            }

    def delete(self, uris: Sequence[str]) -> None:
        if not uris:
            return
        keys = [self._key(uri) for uri in uris]
        gone = (exceptions.NotFoundError, FileNotFoundError)
        with self._wrapped(uris[0]):
            try:
                # If we die here, the rest is deleted by the next call.
                obstore.delete(self._store, keys)
            except gone:  # some servers tell; one at a time, then
                for key in keys:
                    with contextlib.suppress(*gone):
                        obstore.delete(self._store, key)

    def uploads(self, prefix_uri: str) -> Uploads:
        return self._uploads.below(f"{self._key(prefix_uri.rstrip('/'), may_be_root=True)}/".lstrip("/"))

    def abort(self, uploads: Sequence[Upload]) -> None:
        # Some servers still list an upload that was finished, and would take its object's data along.
        self._uploads.abort([upload for upload in uploads if not self.exists(upload.uri)])

    def _key(self, uri: str, *, may_be_root: bool = False) -> str:
        key = uri.removeprefix(self._bucket_uri).removeprefix("/")
        if not uri.startswith(self._bucket_uri) or (not key and not may_be_root) or ".." in key.split("/"):
            raise PermanentError(f"not the URI of an object in {self._bucket_uri}: {uri}", code="storage_uri")
        return key

    @contextlib.contextmanager
    def _not_forgotten(self, uri: str) -> Iterator[None]:
        """A server that was restarted may not know an upload in parts any more, and says "not found": of
        the upload, for the object's name is new. The next attempt begins anew."""
        try:
            yield
        except exceptions.NotFoundError as error:
            if _NO_BUCKET.search(str(error)):
                raise
            raise TemporaryError(
                f"{self._bucket_uri} knows nothing of the upload of {uri}: {_first_line(error)}",
                code="upload_forgotten",
                hint="it is tried again by itself",
            ) from error

    @contextlib.contextmanager
    def _wrapped(self, uri: str) -> Iterator[None]:
        try:
            yield
        except (exceptions.BaseError, FileNotFoundError, PermissionError, OSError, ValueError) as error:
            raise _calve_error(uri, self._bucket_uri, error) from error


def _config(properties: Mapping[str, str]) -> dict[str, Any]:
    config: dict[str, Any] = {
        ours: properties[theirs] for theirs, ours in _COPIED.items() if properties.get(theirs)
    }
    config.setdefault("region", properties.get("client.region", _DEFAULT_REGION))
    if "access_key_id" in config:
        # Otherwise a token of the environment, which belongs to other keys, is sent along.
        config.setdefault("session_token", "")
    config["virtual_hosted_style_request"] = _virtual_addressing(properties)
    config["conditional_put"] = "etag"
    if _flag(properties, "s3.anonymous"):
        config["skip_signature"] = True
    return config


def _client(properties: Mapping[str, str], connect_seconds: float, call_seconds: float) -> dict[str, Any]:
    client: dict[str, Any] = {
        "connect_timeout": timedelta(seconds=min(connect_seconds, call_seconds / 3)),
        "timeout": timedelta(seconds=call_seconds * 0.45),
        "allow_http": properties.get("s3.endpoint", "").startswith("http://"),
    }
    if proxy := properties.get("s3.proxy-uri"):
        client["proxy_url"] = proxy
    return client


def _virtual_addressing(properties: Mapping[str, str]) -> bool:
    """A catalog's server says it in Java's words."""
    if "s3.force-virtual-addressing" in properties:
        return _flag(properties, "s3.force-virtual-addressing")
    return properties.get("s3.path-style-access", "").lower() == "false"


def _flag(properties: Mapping[str, str], name: str) -> bool:
    return str(properties.get(name, "false")).lower() == "true"


def _keys_hint(bucket_uri: str, error: Exception) -> str:
    """For a bucket without keys, where the machine was asked for its role, and has none to give."""
    if not any(place in str(error) for place in _ROLE_PLACES):
        return ""
    return (
        "no keys are configured, so the machine was asked for its role: give access_key_id and"
        f' secret_access_key_file in [storage."{bucket_uri}"], or those of its catalog, or AWS_ACCESS_KEY_ID'
    )


def _calve_error(uri: str, bucket_uri: str, error: Exception) -> CalveError:
    text = _first_line(error)
    if _NO_BUCKET.search(str(error)):
        return PermanentError(
            f"no such bucket: {bucket_uri}", code="bucket_missing", hint="create it, or mend the location"
        )
    if _CERTIFICATE.search(str(error)):
        return PermanentError(
            f"{bucket_uri}: nobody that is trusted vouches for the certificate of its endpoint",
            code="storage_certificate",
            hint='name the authority\'s certificates: ca_file in [storage."…"], or "s3.ca-file" in [catalog.…]',
        )
    denied = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError, PermissionError)
    if isinstance(error, denied) or _REFUSED.search(str(error)):
        return PermanentError(
            f"{bucket_uri} refused the request for {uri}: {text}",
            code="storage_denied",
            hint=_keys_hint(bucket_uri, error)
            or "check the keys, the region and the bucket's policy in the configuration",
        )
    if isinstance(error, (exceptions.NotFoundError, FileNotFoundError)):
        return NotFoundError(f"no such object: {uri}", code="object_missing")
    if isinstance(error, ValueError) and not isinstance(error, exceptions.BaseError):
        return PermanentError(f"{bucket_uri}: {text}", code="storage_config")
    if isinstance(error, exceptions.GenericError):
        return UnavailableError(
            f"{bucket_uri} cannot be reached: {text}",
            code="storage_unavailable",
            hint=_keys_hint(bucket_uri, error)
            or "check the endpoint; waiting exports go on by themselves once it answers",
            service=f"storage:{bucket_uri}",
        )
    return TemporaryError(f"{uri}: {text}", code="storage_failed")


def _first_line(error: Exception) -> str:
    """obstore appends a debug dump after the message; people need the first line of it."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
