"""What every kind of object storage must offer. Comments are obligations; `calve.testing.contracts.objects`
holds every implementation to them.

Every location is a full URI and is taken literally (L8). For all calls:

- they raise CalveErrors only, as `errors` classifies them: NotFoundError for what is missing,
  PermanentError for what no retry can help, UnavailableError for an outage;
- each may be made twice: the second finds what the first did;
- each ends within the seconds that the store was opened with (streams: within those seconds for each
  chunk, whatever the size);
- an error other than a refusal leaves the outcome unknown: the object may be there. Look, or call again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Protocol, TypeVar

from calve.objects.uri import Uri

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """How long a call may take."""

    connect_seconds: float = 5.0
    call_seconds: float = 15.0


@dataclass(frozen=True, kw_only=True)
class UploadCleanup:
    """What becomes of the parts of an upload whose program was killed."""

    automatic: bool | None  # None: cannot be checked
    words: str
    remedy: str = ""


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
