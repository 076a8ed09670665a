"""Modelled object storage: one dictionary for all buckets, with outages, lost answers and writes that land late.

It keeps the promises of `objects.storage.ObjectStore`, and hands out bytes alone. A file that somebody's table still
refers to must never be deleted: the moment it happens is a failure of the history.
"""

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

from calve.model.errors import NotFoundError, RefusedError, UnavailableError
from calve.objects.storage import Pieces, Storage, UploadCleanup
from support.simulator.weather import Weather

T = TypeVar("T")
SERVICE = "objects"


def _away() -> UnavailableError:
    return UnavailableError("the storage does not answer", code="storage_unreachable", service="")


@dataclass
class ModelledObjects:
    weather: Weather
    held: dict[str, bytes] = field(default_factory=dict)
    made_at: dict[str, float] = field(default_factory=dict)  # seconds of virtual time
    ever: dict[str, bytes] = field(default_factory=dict)  # data files, deleted ones too
    deleted: set[str] = field(default_factory=set)
    before_delete: list[Callable[[str], None]] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    manifests: dict[str, dict[str, Any]] = field(default_factory=dict)  # of backups, every one that ever was

    def _call(self, kind: str, work: Callable[[], T], latency: float = 0.0) -> T:
        return self.weather.call(f"objects.{kind}", work, failed=_away, latency=latency, service=SERVICE)

    def put_if_absent(self, uri: str, data: bytes) -> bool:
        def put() -> bool:
            if uri in self.held:
                return False
            self._put(uri, data)
            if "/backups/" in uri and uri.endswith(".json"):
                self.manifests.setdefault(uri, json.loads(data))
            return True

        aimed = "objects.manifest" in self.weather.rates and "/calve/backups/" in uri
        return self._call("manifest" if aimed else "write", put, 0.01)

    def upload(self, local: Path, uri: str, *, flush: bool = True) -> None:
        data = local.read_bytes()
        self.write(lambda: (data,), uri)

    def write(self, pieces: Pieces, uri: str, *, flush: bool = True) -> None:
        data = b"".join(pieces())
        self._call("write", lambda: self._put(uri, data), 0.01)

    def _put(self, uri: str, data: bytes) -> None:
        self.held[uri] = data
        self.made_at[uri] = self.weather.schedule.now
        if uri.endswith(".parquet"):
            self.ever[uri] = data

    def link(self, local: Path, uri: str) -> None:
        raise RefusedError("object storage has no hard links", code="no_hard_links")

    def flush(self, uris: Sequence[str]) -> None:
        """An acknowledged object is durable."""

    def read(self, uri: str) -> bytes:
        def read() -> bytes:
            if uri not in self.held:
                raise NotFoundError(f"{uri} does not exist", code="no_object")
            return self.held[uri]

        return self._call("read", read)

    def download(self, uri: str, local: Path) -> None:
        local.write_bytes(self.read(uri))

    def exists(self, uri: str) -> bool:
        return self._call("read", lambda: uri in self.held)

    def size(self, uri: str) -> int:
        return len(self.read(uri))

    def list(self, prefix_uri: str) -> list[str]:
        return sorted(self.sizes(prefix_uri))

    def sizes(self, prefix_uri: str) -> dict[str, int]:
        below = prefix_uri.rstrip("/") + "/"
        return self._call(
            "read",
            lambda: {uri: len(data) for uri, data in sorted(self.held.items()) if uri.startswith(below)},
        )

    def delete(self, uris: Sequence[str]) -> None:
        for uri in uris:
            self._call("delete", lambda uri=uri: self._delete(uri))  # type: ignore[misc]

    def _delete(self, uri: str) -> None:
        for look in self.before_delete:
            look(uri)
        if self.held.pop(uri, None) is not None:
            self.deleted.add(uri)

    def upload_cleanup(self, prefix_uri: str) -> UploadCleanup:
        return UploadCleanup(automatic=True, words="needs no rule")

    def storage(self) -> Storage:
        """As what the product takes."""
        return cast(Storage, self)


class _Input(InputFile):
    def __init__(self, objects: ModelledObjects, location: str) -> None:
        super().__init__(location)
        self._objects = objects

    def __len__(self) -> int:
        return len(self._read())

    def exists(self) -> bool:
        return self._objects.exists(self.location)

    def open(self, seekable: bool = True) -> InputStream:
        return io.BytesIO(self._read())

    def _read(self) -> bytes:
        try:
            return self._objects.read(self.location)
        except NotFoundError as error:
            raise FileNotFoundError(error.message) from None
        except UnavailableError as error:
            raise ConnectionError(error.message) from None


class _Stream(io.BytesIO):
    """Becomes an object when it is closed, whole."""

    def __init__(self, objects: ModelledObjects, location: str) -> None:
        super().__init__()
        self._objects, self._location = objects, location

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            try:
                self._objects.write(lambda: (data,), self._location)
            except UnavailableError as error:
                raise ConnectionError(error.message) from None

    def __exit__(self, *failed: object) -> None:
        if failed[0] is None:
            self.close()
        else:
            super().close()

    def __del__(self) -> None:
        """Not an object: who dropped it has died."""


class _Output(OutputFile):
    def __init__(self, objects: ModelledObjects, location: str) -> None:
        super().__init__(location)
        self._objects = objects

    def __len__(self) -> int:
        return len(self._objects.read(self.location))

    def exists(self) -> bool:
        return self._objects.exists(self.location)

    def to_input_file(self) -> InputFile:
        return _Input(self._objects, self.location)

    def create(self, overwrite: bool = False) -> OutputStream:
        return _Stream(self._objects, self.location)


class ModelledFileIO(FileIO):
    """PyIceberg's access to the same objects."""

    def __init__(self, objects: ModelledObjects) -> None:
        super().__init__({})
        self._objects = objects

    def new_input(self, location: str) -> InputFile:
        return _Input(self._objects, location)

    def new_output(self, location: str) -> OutputFile:
        return _Output(self._objects, location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        uri = location if isinstance(location, str) else location.location
        try:
            self._objects.delete([uri])
        except UnavailableError as error:
            raise ConnectionError(error.message) from None
