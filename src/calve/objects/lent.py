"""Object storage with keys that are lent for a while: renewed before they end, and when refused.

A request that was refused was not applied, and every call of an `ObjectStore` may be made twice; so it
is made once more with new keys, if there are any. If there are none, the refusal stands, at once (P9).
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Protocol, TypeVar

from calve.model.errors import PermanentError
from calve.objects.port import ObjectStore, Upload, Uploads

T = TypeVar("T")
REFUSED = "storage_denied"


class Keys(Protocol):
    """See `lake.access.lending.Lender`."""

    def properties(self) -> dict[str, str]: ...

    def renewed(self, refused: Mapping[str, str]) -> bool: ...


class LentStore:
    """See `ObjectStore`."""

    def __init__(self, keys: Keys, build: Callable[[Mapping[str, str]], ObjectStore]) -> None:
        self._keys = keys
        self._build = build
        self._lock = Lock()
        self._built: tuple[dict[str, str], ObjectStore] | None = None

    def put_if_absent(self, uri: str, data: bytes) -> bool:
        return self._call(lambda store: store.put_if_absent(uri, data))

    def upload(self, local: Path, uri: str, *, flush: bool = True) -> None:
        self._call(lambda store: store.upload(local, uri, flush=flush))

    def link(self, local: Path, uri: str) -> None:
        self._call(lambda store: store.link(local, uri))

    def flush(self, uris: Sequence[str]) -> None:
        self._call(lambda store: store.flush(uris))

    def read(self, uri: str) -> bytes:
        return self._call(lambda store: store.read(uri))

    def download(self, uri: str, local: Path) -> None:
        self._call(lambda store: store.download(uri, local))

    def exists(self, uri: str) -> bool:
        return self._call(lambda store: store.exists(uri))

    def size(self, uri: str) -> int:
        return self._call(lambda store: store.size(uri))

    def list(self, prefix_uri: str) -> list[str]:
        return self._call(lambda store: store.list(prefix_uri))

    def sizes(self, prefix_uri: str) -> dict[str, int]:
        return self._call(lambda store: store.sizes(prefix_uri))

    def delete(self, uris: Sequence[str]) -> None:
        self._call(lambda store: store.delete(uris))

    def uploads(self, prefix_uri: str) -> Uploads:
        return self._call(lambda store: store.uploads(prefix_uri))

    def abort(self, uploads: Sequence[Upload]) -> None:
        self._call(lambda store: store.abort(uploads))

    def _call(self, act: Callable[[ObjectStore], T]) -> T:
        used, store = self._store()
        try:
            return act(store)
        except PermanentError as error:
            if error.code != REFUSED or not self._keys.renewed(used):
                raise
        return act(self._store()[1])

    def _store(self) -> tuple[dict[str, str], ObjectStore]:
        properties = self._keys.properties()
        with self._lock:
            if self._built is None or self._built[0] != properties:
                self._built = (properties, self._build(properties))
            return self._built
