"""Object storage by full URI: one form of path everywhere (L8), one set of properties.

`Storage` is built from PyIceberg's own property names (`s3.endpoint`, …), a plain dict, so
that what a catalog is configured with also serves data files and receipts, on the driver
and, shipped in a task's payload, on executors.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from threading import Lock

from calve.model.errors import PermanentError
from calve.objects.lent import Keys, LentStore
from calve.objects.local import SCHEME as LOCAL_SCHEME
from calve.objects.local import LocalStore
from calve.objects.port import ObjectStore, Upload, Uploads
from calve.objects.s3 import SCHEMES as S3_SCHEMES
from calve.objects.s3 import S3ObjectStore


class Storage:
    """Every object that the properties reach. Thread-safe; connections are made when first needed."""

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        *,
        connect_seconds: float = 5.0,
        call_seconds: float = 15.0,
        keys: Keys | None = None,
    ) -> None:
        """`keys`: where the properties come from instead, if they are lent for a while."""
        self.properties = dict(properties or {})
        self._keys = keys
        self._connect_seconds = connect_seconds
        self._call_seconds = call_seconds
        self._stores: dict[str, ObjectStore] = {LOCAL_SCHEME: LocalStore()}
        self._lock = Lock()

    def put_if_absent(self, uri: str, data: bytes) -> bool:
        """Make a whole object, or answer False if the name is taken. Of racing callers one wins.

        After a lost acknowledgement the answer may be False for one's own object: compare.
        """
        return self._store(uri).put_if_absent(uri, data)

    def upload(self, local_path: Path, uri: str, *, flush: bool = True) -> None:
        """Copy a local file, streaming; an upload that is given up leaves no visible object. Without
        `flush` it is durable only once that was called: many files are faster that way."""
        self._store(uri).upload(local_path, uri, flush=flush)

    def link(self, local_path: Path, uri: str) -> None:
        """A hard link in place of a copy: of a file that never changes, where the storage is a folder
        of the same file system; RefusedError elsewhere."""
        self._store(uri).link(local_path, uri)

    def flush(self, uris: Sequence[str]) -> None:
        """Make durable what was uploaded without it, or linked."""
        for place, group in groupby(sorted(uris), key=_place):
            self._at(place).flush(list(group))

    def read(self, uri: str) -> bytes:
        return self._store(uri).read(uri)

    def download(self, uri: str, local_path: Path) -> None:
        """Copy an object to a local file, streaming: memory does not grow with it."""
        self._store(uri).download(uri, local_path)

    def exists(self, uri: str) -> bool:
        return self._store(uri).exists(uri)

    def size(self, uri: str) -> int:
        return self._store(uri).size(uri)

    def list(self, prefix_uri: str) -> list[str]:
        """The full URIs of all objects below a folder, sorted."""
        return self._store(prefix_uri).list(prefix_uri)

    def sizes(self, prefix_uri: str) -> dict[str, int]:
        """The bytes of all objects below a folder, by full URI."""
        return self._store(prefix_uri).sizes(prefix_uri)

    def delete(self, uris: Sequence[str]) -> None:
        """Delete; what is gone already is no error."""
        for place, group in groupby(sorted(uris), key=_place):
            self._at(place).delete(list(group))

    def uploads(self, prefix_uri: str) -> Uploads:
        """Those below a folder that are not whole yet: under way, or left by somebody who was killed."""
        return self._store(prefix_uri).uploads(prefix_uri)

    def abort(self, uploads: Sequence[Upload]) -> None:
        """End them; one that is gone already is no error."""
        for place, group in groupby(
            sorted(uploads, key=lambda one: one.uri), key=lambda one: _place(one.uri)
        ):
            self._at(place).abort(list(group))

    def _store(self, uri: str) -> ObjectStore:
        return self._at(_place(uri))

    def _at(self, place: str) -> ObjectStore:
        with self._lock:
            if place not in self._stores:
                self._stores[place] = (
                    self._s3(place, self.properties)
                    if self._keys is None
                    else LentStore(self._keys, partial(self._s3, place))
                )
            return self._stores[place]

    def _s3(self, place: str, properties: Mapping[str, str]) -> ObjectStore:
        return S3ObjectStore(
            place, properties, connect_seconds=self._connect_seconds, call_seconds=self._call_seconds
        )


def _place(uri: str) -> str:
    """The bucket of an S3 URI; all local folders are one place."""
    if uri.startswith(LOCAL_SCHEME):
        return LOCAL_SCHEME
    for scheme in S3_SCHEMES:
        bucket = uri.removeprefix(scheme).split("/", 1)[0]
        if uri.startswith(scheme) and bucket:
            return scheme + bucket
    raise PermanentError(
        f"not a location that can be written: {uri}",
        code="storage_uri",
        hint="locations are full URIs: file:///absolute/path or s3://bucket/path",
    )
