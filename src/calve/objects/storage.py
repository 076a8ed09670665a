"""Object storage by full URI: what every kind of it must offer, the registry of kinds, and keys that are lent.

A `Storage` is opened with PyIceberg's own property names (`s3.endpoint`, `adls.account-key`, …), a plain dict, so that what a
catalog is configured with also serves data files and receipts, on the driver and, shipped in a task's
payload, on executors.

The docstrings of `ObjectStore` are obligations; `calve.testing.contracts.objects` holds every implementation
to them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Protocol, TypeVar

from calve.model.errors import DeniedError, PermanentError
from calve.objects.uri import AZURE, FORMS, GCS, LOCAL, S3, Uri

if TYPE_CHECKING:
    from calve.objects.pace import Pace

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """How long a call may take, and how fast uploads may be."""

    connect_seconds: float = 5.0
    call_seconds: float = 15.0
    pace: "Pace | None" = None  # None: as fast as can be


@dataclass(frozen=True, kw_only=True)
class UploadCleanup:
    """What becomes of the parts of an upload whose program was killed."""

    automatic: bool | None  # None: cannot be checked
    words: str
    remedy: str = ""


Pieces = Callable[[], Iterable[bytes]]


class ObjectStore(Protocol):
    """Thread-safe. Opening one sends no request."""

    def put_if_absent(self, uri: str, data: bytes) -> bool:
        """Create the object, whole or not at all. False, and no change, if the name is taken. Of racing
        callers exactly one gets True. After a lost answer a second call may return False for one's own
        object: compare its content."""

    def upload(self, local: Path, uri: str, *, flush: bool = True) -> None:
        """Copy a local file, streaming; an object of that name is replaced. Readers see the whole object
        or none. If it fails, nothing of it stays; if the program is killed, nothing visible does.
        Without `flush`, a crash of the machine may leave a partial object until `flush` was called: only
        for objects that nothing refers to before."""

    def write(self, pieces: Pieces, uri: str, *, flush: bool = True) -> None:
        """The same for bytes that are made on the way. `pieces` is called for each try."""

    def link(self, local: Path, uri: str) -> None:
        """A second name for a local file that never changes, where the storage can; RefusedError
        (`no_hard_links`) elsewhere. Durable once `flush` was called."""

    def flush(self, uris: Sequence[str]) -> None:
        """Make uploads and links durable that were made without it."""

    def read(self, uri: str) -> bytes:
        """The whole object. NotFoundError."""

    def download(self, uri: str, local: Path) -> None:
        """Copy an object to a local file, streaming. NotFoundError. If it fails, a partial file stays:
        give it a temporary name."""

    def exists(self, uri: str) -> bool: ...

    def size(self, uri: str) -> int:
        """In bytes. NotFoundError."""

    def list(self, prefix_uri: str) -> list[str]:
        """Every object below a folder, as full URIs, sorted; none for a folder that is missing. Objects
        whose `put_if_absent` or `upload` returned before are among them."""

    def sizes(self, prefix_uri: str) -> dict[str, int]:
        """The same with the bytes of each."""

    def delete(self, uris: Sequence[str]) -> None:
        """Delete; an object that is already gone is not an error. If it fails, some may be gone."""

    def upload_cleanup(self, prefix_uri: str) -> UploadCleanup:
        """Whether the storage itself removes, in time, what killed programs left below a folder."""


class ForwardingStore:
    """An ObjectStore that hands every call on: subclasses say to which store, and how, in `_call`."""

    def _call(self, uri: str, act: Callable[[ObjectStore], T]) -> T:
        raise NotImplementedError

    def put_if_absent(self, uri: str, data: bytes) -> bool:
        return self._call(uri, lambda store: store.put_if_absent(uri, data))

    def upload(self, local: Path, uri: str, *, flush: bool = True) -> None:
        self._call(uri, lambda store: store.upload(local, uri, flush=flush))

    def write(self, pieces: Pieces, uri: str, *, flush: bool = True) -> None:
        self._call(uri, lambda store: store.write(pieces, uri, flush=flush))

    def link(self, local: Path, uri: str) -> None:
        self._call(uri, lambda store: store.link(local, uri))

    def flush(self, uris: Sequence[str]) -> None:
        for group in _by_place(uris):
            self._call(group[0], lambda store, group=group: store.flush(group))  # type: ignore[misc]

    def read(self, uri: str) -> bytes:
        return self._call(uri, lambda store: store.read(uri))

    def download(self, uri: str, local: Path) -> None:
        self._call(uri, lambda store: store.download(uri, local))

    def exists(self, uri: str) -> bool:
        return self._call(uri, lambda store: store.exists(uri))

    def size(self, uri: str) -> int:
        return self._call(uri, lambda store: store.size(uri))

    def list(self, prefix_uri: str) -> list[str]:
        return self._call(prefix_uri, lambda store: store.list(prefix_uri))

    def sizes(self, prefix_uri: str) -> dict[str, int]:
        return self._call(prefix_uri, lambda store: store.sizes(prefix_uri))

    def delete(self, uris: Sequence[str]) -> None:
        for group in _by_place(uris):
            self._call(group[0], lambda store, group=group: store.delete(group))  # type: ignore[misc]

    def upload_cleanup(self, prefix_uri: str) -> UploadCleanup:
        return self._call(prefix_uri, lambda store: store.upload_cleanup(prefix_uri))


Uris = list[str]  # by a name: inside the classes, `list` is a method


def _by_place(uris: Sequence[str]) -> list[Uris]:
    return [list(group) for _, group in groupby(sorted(uris), key=lambda uri: Uri.parse(uri).place)]


Properties = Mapping[str, str]


def _local(_place: str, bounds: Bounds, _properties: Properties) -> ObjectStore:
    from calve.objects.local import LocalObjects

    return LocalObjects(bounds.pace)


def _s3(place: str, bounds: Bounds, properties: Properties) -> ObjectStore:
    from calve.objects.s3 import S3Objects

    return S3Objects(place, bounds, properties)


def _azure(place: str, bounds: Bounds, properties: Properties) -> ObjectStore:
    from calve.objects.azure import AzureObjects

    return AzureObjects(place, bounds, properties)


def _gcs(place: str, bounds: Bounds, properties: Properties) -> ObjectStore:
    from calve.objects.gcs import GcsObjects

    return GcsObjects(place, bounds, properties)


# A kind of storage (`uri`) and what opens one of its buckets. Imported when first needed.
_OPENERS: Mapping[str, Callable[[str, Bounds, Properties], ObjectStore]] = {
    LOCAL: _local,
    S3: _s3,
    AZURE: _azure,
    GCS: _gcs,
}


def _pace(given: str) -> "Pace":
    from calve.objects.pace import Pace

    return Pace(given)


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
        pace: str = "",
    ) -> None:
        """`keys` take the place of the properties where a catalog lends them. `pace` bounds what is uploaded
        (`objects.pace`)."""
        self.properties = dict(properties or {})
        self._keys = keys
        self._bounds = Bounds(
            connect_seconds=connect_seconds, call_seconds=call_seconds, pace=_pace(pace) if pace else None
        )
        self._stores: dict[str, ObjectStore] = {}
        self._lock = Lock()

    def _call(self, uri: str, act: Callable[[ObjectStore], T]) -> T:
        return act(self.bucket(Uri.parse(uri)))

    def bucket(self, uri: Uri) -> ObjectStore:
        """The storage of one location."""
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
                hint=f"give a full URI: {FORMS}",
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
