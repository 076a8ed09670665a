"""What every kind of object storage must offer. Comments are obligations.

All locations are full URIs, taken literally: nothing is percent-decoded, because no reader
of Iceberg does so either (L8).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol


class ObjectStore(Protocol):
    """Raises only CalveErrors. Every call may be made twice."""

    def put_if_absent(self, uri: str, data: bytes) -> bool:
        """Make the object whole or not at all; False, and no change, if the name is taken."""

    def upload(self, local: Path, uri: str) -> None:
        """Copy a local file, streaming. An upload that is given up leaves no visible object."""

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
