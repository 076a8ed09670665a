"""Object storage by full URI: the registry of implementations, and keys that are lent for a while.

A `Storage` is opened with PyIceberg's own property names (`s3.endpoint`, …), a plain dict, so that what a
catalog is configured with also serves data files and receipts, on the driver and, shipped in a task's
payload, on executors.
"""

from collections.abc import Callable, Mapping
from functools import partial
from threading import Lock
from typing import Protocol

from calve.model.errors import DeniedError, PermanentError
from calve.objects.port import Bounds, ForwardingStore, ObjectStore, T
from calve.objects.uri import LOCAL, S3, Uri

Properties = Mapping[str, str]


def _local(_place: str, _bounds: Bounds, _properties: Properties) -> ObjectStore:
    from calve.objects.local import LocalObjects

    return LocalObjects()


def _s3(place: str, bounds: Bounds, properties: Properties) -> ObjectStore:
    from calve.objects.s3 import S3Objects

    return S3Objects(place, bounds, properties)


# A kind of storage (`uri`) and what opens one of its buckets. Imported when first needed.
_OPENERS: Mapping[str, Callable[[str, Bounds, Properties], ObjectStore]] = {LOCAL: _local, S3: _s3}


class LentKeys(Protocol):
    """Properties whose keys are lent for a while: `iceberg.catalogs.lent_keys.Lender`."""

    def properties(self) -> dict[str, str]: ...

    def renewed(self, refused: Mapping[str, str]) -> bool:
        """The storage refused those: are there others now?"""


class Storage(ForwardingStore):
    """Every object that the properties reach: see `port.ObjectStore`. Each bucket is opened on first use."""

    def __init__(
        self,
        properties: Properties | None = None,
        *,
        connect_seconds: float = Bounds.connect_seconds,
        call_seconds: float = Bounds.call_seconds,
        keys: LentKeys | None = None,
    ) -> None:
        """`keys` take the place of the properties where a catalog lends them."""
        self.properties = dict(properties or {})
        self._keys = keys
        self._bounds = Bounds(connect_seconds=connect_seconds, call_seconds=call_seconds)
        self._stores: dict[str, ObjectStore] = {}
        self._lock = Lock()

    def _call(self, uri: str, act: Callable[[ObjectStore], T]) -> T:
        return act(self._store(Uri.parse(uri)))

    def _store(self, uri: Uri) -> ObjectStore:
        with self._lock:
            if uri.place not in self._stores:
                self._stores[uri.place] = self._open(uri)
            return self._stores[uri.place]

    def _open(self, uri: Uri) -> ObjectStore:
        opener = _OPENERS.get(uri.kind)
        if opener is None:
            raise PermanentError(
                f"invalid location {str(uri)!r}: no storage for {uri.scheme}://",
                code="storage_uri",
                hint="give a full URI: file:///absolute/path or s3://bucket/path",
            )
        opened_with = partial(opener, uri.place, self._bounds)
        if self._keys is None or uri.kind == LOCAL:
            return opened_with(self.properties)
        return LentStore(self._keys, opened_with)


class LentStore(ForwardingStore):
    """A bucket reached with lent keys, renewed before they end and when they are refused.

    A request that was refused was not applied, so it is made once more with new keys, if there are any.
    If there are none, the refusal stands, at once (P9).
    """

    def __init__(self, keys: LentKeys, build: Callable[[Properties], ObjectStore]) -> None:
        self._keys = keys
        self._build = build
        self._lock = Lock()
        self._built: tuple[dict[str, str], ObjectStore] | None = None

    def _call(self, uri: str, act: Callable[[ObjectStore], T]) -> T:
        used, store = self._current()
        try:
            return act(store)
        except DeniedError:
            if not self._keys.renewed(used):
                raise
        return act(self._current()[1])

    def _current(self) -> tuple[dict[str, str], ObjectStore]:
        properties = self._keys.properties()
        with self._lock:
            if self._built is None or self._built[0] != properties:
                self._built = (properties, self._build(properties))
            return self._built
