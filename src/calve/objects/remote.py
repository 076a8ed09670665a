"""A bucket, or a container, of any cloud, through obstore: what its clouds have in common.

Bounded by seconds, not by counts (L2): an endpoint that is dead, or that accepts and never
answers, is known within `call_seconds`. A large upload that fails is aborted by one more request,
which meets the same endpoint; so one request may take less than half of that time, and no retry
starts after the first third.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import Any

import obstore
from obstore import exceptions

from calve.model.errors import NotFoundError, PermanentError, RefusedError, TemporaryError
from calve.objects.credentials import check_ca_file
from calve.objects.errors import Fault, fault_of, first_line, translated
from calve.objects.storage import Bounds, Pieces, UploadCleanup
from calve.objects.uri import Uri

# Both bound memory (10 MB an upload) and the bandwidth that the timeouts presume (1.5 MB/s by default).
CHUNK_BYTES = 5 << 20  # the least that S3 takes
CHUNKS_AT_ONCE = 2
_CA_VARIABLE = "SSL_CERT_FILE"
_CA_OF_THE_PROGRAM = os.environ.get(_CA_VARIABLE, "")  # before anything changed it
_ca_lock = Lock()


@dataclass(frozen=True, kw_only=True)
class ListedObject:
    """An object, as its bucket lists it."""

    uri: str
    bytes: int
    modified_at: datetime


class RemoteObjects:
    """Objects of one bucket: see `storage.ObjectStore`. Subclasses open it, and know its rules."""

    def __init__(self, place: str, bounds: Bounds, *, ca_file: str = "") -> None:
        self._place = place
        self._bounds = bounds
        self._ca_file = ca_file
        if ca_file:
            check_ca_file(ca_file)  # an executor may not have it
        self._store = self._opened()

    def _opened(self) -> Any:
        with self._translated(self._place), trusting(self._ca_file):
            return self._open(self._client_options(), _retries(self._bounds))

    def _deleting_singly(self) -> Any:
        """The store, asked to delete one object in each request."""
        return self._store

    def _open(self, client: dict[str, Any], retries: dict[str, Any]) -> Any:
        """obstore's store of the place. Sends no request."""
        raise NotImplementedError

    def upload_cleanup(self, prefix_uri: str) -> UploadCleanup:
        raise NotImplementedError

    def _client_options(self) -> dict[str, Any]:
        bounds = self._bounds
        return {
            "connect_timeout": timedelta(seconds=min(bounds.connect_seconds, bounds.call_seconds / 3)),
            "timeout": timedelta(seconds=bounds.call_seconds * 0.45),
        }

    def put_if_absent(self, uri: str, data: bytes) -> bool:
        with self._translated(uri):
            try:
                # If we die here, the object is there or not; a second call finds out.
                obstore.put(self._store, self._key(uri), data, mode="create")
            except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
                return False
        return True

    def upload(self, local: Path, uri: str, *, flush: bool = True) -> None:
        with self._translated(uri), self._not_forgotten(uri):
            large = local.stat().st_size > CHUNK_BYTES
            # If we die here, no object appears; parts that were sent stay, invisible, until the bucket's
            # lifecycle rule aborts the upload. If it fails, obstore aborts it.
            with local.open("rb") as source:
                pace = self._bounds.pace
                obstore.put(
                    self._store,
                    self._key(uri),
                    local if pace is None else pace.pieces(source),
                    use_multipart=large,
                    chunk_size=CHUNK_BYTES,
                    max_concurrency=CHUNKS_AT_ONCE,
                )

    def write(self, pieces: Pieces, uri: str, *, flush: bool = True) -> None:
        with self._translated(uri), self._not_forgotten(uri):
            # If we die here: see `upload`.
            obstore.put(
                self._store,
                self._key(uri),
                iter(pieces()),
                use_multipart=True,
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
        """An acknowledged object is durable."""

    def read(self, uri: str) -> bytes:
        with self._translated(uri):
            found = obstore.get(self._store, self._key(uri))
            size = int(found.meta["size"])
            if size <= CHUNK_BYTES:
                return bytes(found.bytes())
            return b"".join(self._pieces(uri, size))

    def download(self, uri: str, local: Path) -> None:
        size = self.size(uri)
        with self._translated(uri), local.open("wb") as out:
            for piece in self._pieces(uri, size):
                out.write(piece)

    def _pieces(self, uri: str, size: int) -> Iterator[bytes]:
        """In ranges: a request's timeout counts its body too, and one for all would presume a bandwidth
        that grows with the object."""
        for start in range(0, size, CHUNK_BYTES):
            yield self.read_range(uri, start, min(size, start + CHUNK_BYTES))

    def read_range(self, uri: str, start: int, end: int) -> bytes:
        """From one byte to before another. NotFoundError."""
        with self._translated(uri):
            return bytes(obstore.get_range(self._store, self._key(uri), start=start, end=end))

    def exists(self, uri: str) -> bool:
        try:
            self.size(uri)
        except NotFoundError:
            return False
        return True

    def size(self, uri: str) -> int:
        with self._translated(uri):
            return int(obstore.head(self._store, self._key(uri))["size"])

    def list(self, prefix_uri: str) -> list[str]:
        return sorted(self.sizes(prefix_uri))

    def sizes(self, prefix_uri: str) -> dict[str, int]:
        return {found.uri: found.bytes for found in self.listed(prefix_uri)}

    def listed(self, prefix_uri: str) -> Iterator[ListedObject]:
        """The objects below a folder, with the time of their last change."""
        prefix = self._key(prefix_uri.rstrip("/"), may_be_root=True)
        with self._translated(prefix_uri):
            for batch in obstore.list(self._store, prefix or None):
                for item in batch:
                    yield ListedObject(
                        uri=f"{self._place}/{item['path']}",
                        bytes=int(item["size"]),
                        modified_at=item["last_modified"],
                    )

    def delete(self, uris: Sequence[str]) -> None:
        if not uris:
            return
        keys = [self._key(uri) for uri in uris]
        gone = (exceptions.NotFoundError, FileNotFoundError)
        with self._translated(uris[0]):
            try:
                # If we die here, the rest is deleted by the next call.
                obstore.delete(self._store, keys)
            except (*gone, exceptions.GenericError) as error:
                # Some servers say so, and some cannot delete several at once; then one at a time.
                if not isinstance(error, gone):
                    if fault_of(error) is not Fault.UNSUPPORTED:
                        raise
                    self._store = self._deleting_singly()
                for key in keys:
                    with contextlib.suppress(*gone):
                        obstore.delete(self._store, key)

    def _key(self, uri: str, *, may_be_root: bool = False) -> str:
        found = Uri.parse(uri)
        if found.place != self._place or not (found.key or may_be_root):
            raise PermanentError(
                f"invalid location {uri!r}: not an object of {self._place}", code="storage_uri"
            )
        return found.key

    @contextlib.contextmanager
    def _not_forgotten(self, uri: str) -> Iterator[None]:
        """A server that was restarted may have forgotten a multipart upload and answer "not found", which
        means the upload: the object's name is new. The next attempt starts again."""
        try:
            yield
        except exceptions.NotFoundError as error:
            if fault_of(error) is not Fault.MISSING:
                raise
            raise TemporaryError(
                f"{self._place} lost the upload of {uri}: {first_line(error)}",
                code="upload_forgotten",
                hint="it is retried",
            ) from error

    def _translated(self, uri: str) -> contextlib.AbstractContextManager[None]:
        return translated(uri, self._place)


def _retries(bounds: Bounds) -> dict[str, Any]:
    return {
        "max_retries": 10,
        "retry_timeout": timedelta(seconds=bounds.call_seconds / 3),
        "backoff": {
            "init_backoff": timedelta(milliseconds=100),
            "max_backoff": timedelta(seconds=2),
            "base": 2,
        },
    }


@contextlib.contextmanager
def trusting(ca_file: str) -> Iterator[None]:
    """A client that is built inside trusts that file alone; without one, what the program trusts.

    obstore takes no file of certificates: its TLS reads SSL_CERT_FILE while a client is built, and never
    again. So the variable is set for that moment only. ClickHouse's engine, in the same process, has a
    value of its own in it (`clickhouse.server.trust`), which must be neither lost nor used here.
    """
    with _ca_lock:
        before = os.environ.get(_CA_VARIABLE, "")
        _set_ca(ca_file or _CA_OF_THE_PROGRAM)
        try:
            yield
        finally:
            _set_ca(before)


def _set_ca(value: str) -> None:
    if value:
        os.environ[_CA_VARIABLE] = value
    else:
        os.environ.pop(_CA_VARIABLE, None)
