"""What every kind of object storage must offer. Comments are obligations.

All locations are full URIs, taken literally: nothing is percent-decoded, because no reader
of Iceberg does so either (L8).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class Upload:
    """One that was begun, and neither finished nor aborted."""

    uri: str  # of the object that it would have become
    id: str
    begun_at: datetime | None = None


Uploads = list[Upload]  # by a name: inside the classes, `list` is a method


class ObjectStore(Protocol):
    """Raises only CalveErrors. Every call may be made twice."""

    def put_if_absent(self, uri: str, data: bytes) -> bool:
        """Make the object whole or not at all; False, and no change, if the name is taken."""

    def upload(self, local: Path, uri: str, *, flush: bool = True) -> None:
        """Copy a local file, streaming. An upload that is given up leaves no visible object. Without
        `flush` a crash of the machine may leave one that is not whole, until `flush` was called: for
        objects that nothing names before."""

    def link(self, local: Path, uri: str) -> None:
        """A second name for a local file that never changes, where the storage can; RefusedError
        elsewhere. Durable once `flush` was called."""

    def flush(self, uris: Sequence[str]) -> None:
        """Make uploads and links durable that were not yet."""

    def read(self, uri: str) -> bytes: ...  # NotFoundError

    def download(self, uri: str, local: Path) -> None:
        """Copy an object to a local file, streaming. NotFoundError. Cut short, it leaves a file that
        is not whole: give it a name that nobody takes for whole."""

    def exists(self, uri: str) -> bool: ...

    def size(self, uri: str) -> int: ...  # NotFoundError

    def list(self, prefix_uri: str) -> list[str]:
        """Every object below a folder, as full URIs, sorted; nothing for a folder that is missing."""

    def sizes(self, prefix_uri: str) -> dict[str, int]:
        """The same with the bytes of each."""

    def delete(self, uris: Sequence[str]) -> None:
        """Delete; an object that is gone already is no error."""

    def uploads(self, prefix_uri: str) -> Uploads:
        """Those below a folder that are not whole yet: under way, or left by somebody who was killed."""

    def abort(self, uploads: Sequence[Upload]) -> None:
        """End them, so that nothing of them stays. One that is gone already is no error; one that is
        still under way fails for whoever makes it."""
