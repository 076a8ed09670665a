"""PyIceberg's Arrow file system, with an authority of one's own, and with an end to every read of metadata.

PyIceberg hands on everything but the file of certificates; Arrow itself takes it. Arrow bounds the
silence between two bytes and not the request (tried: a body that drips is read for ever), so metadata
in S3, which every catalog call reads, is read by the client that data files are written with. Data
files, which `calve verify` reads, are Arrow's as before.
"""

import io
from collections.abc import Mapping
from typing import Any

from pyarrow.fs import FileSystem, S3FileSystem
from pyiceberg.io import InputFile, InputStream
from pyiceberg.io.pyarrow import PyArrowFileIO

from calve.model.errors import CalveError, NotFoundError, UnavailableError
from calve.objects.credentials import CA_FILE
from calve.objects.s3 import SCHEMES as S3_SCHEMES
from calve.objects.storage import Storage

IMPLEMENTATION = "calve.iceberg.catalogs.file_io.BoundedFileIO"
_METADATA = (".json", ".avro", ".json.gz")
_TRIES = 3  # that Arrow's client has in the time of a call
_COPIED = {
    "s3.endpoint": "endpoint_override",
    "s3.access-key-id": "access_key",
    "s3.secret-access-key": "secret_key",
    "s3.session-token": "session_token",
    "s3.region": "region",
    "s3.proxy-uri": "proxy_options",
    "s3.role-arn": "role_arn",
    "s3.role-session-name": "session_name",
    CA_FILE: "tls_ca_file_path",
}


def bounded(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The properties, with this file access in them unless they name another."""
    return {"py-io-impl": IMPLEMENTATION} | dict(properties)


class BoundedFileIO(PyArrowFileIO):
    """What S3 answers with is checked against `s3.ca-file`, and its metadata is there in time."""

    def new_input(self, location: str) -> Any:
        found = super().new_input(location)
        if location.startswith(tuple(S3_SCHEMES)) and location.endswith(_METADATA):
            return _Metadata(found, self._storage())
        return found

    def _storage(self) -> Storage:
        storage: Storage | None = self.__dict__.get("_opened")
        if storage is None:
            given = self.properties
            storage = Storage(
                given,
                connect_seconds=float(given.get("s3.connect-timeout") or 5.0),
                call_seconds=float(given.get("s3.request-timeout") or 5.0) * _TRIES,
            )
            self.__dict__["_opened"] = storage
        return storage

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_opened"}

    def _initialize_s3_fs(self, netloc: str | None) -> FileSystem:
        given = self.properties
        if not given.get(CA_FILE):
            return super()._initialize_s3_fs(netloc)
        options: dict[str, Any] = {ours: given[name] for name, ours in _COPIED.items() if given.get(name)}
        for name in ("connect", "request"):
            if seconds := given.get(f"s3.{name}-timeout"):
                options[f"{name}_timeout"] = float(seconds)
        for name, option in (("force-virtual-addressing", "force_virtual_addressing"), ("anonymous",) * 2):
            options[option] = str(given.get(f"s3.{name}", "false")).lower() == "true"
        return S3FileSystem(**options)


class _Metadata(InputFile):
    """One file of metadata, read whole. Errors are those that PyIceberg's callers know."""

    def __init__(self, arrow: InputFile, storage: Storage) -> None:
        super().__init__(arrow.location)
        self._arrow = arrow
        self._storage = storage

    def __len__(self) -> int:
        return len(self._arrow)

    def exists(self) -> bool:
        return self._arrow.exists()

    def open(self, seekable: bool = True) -> InputStream:
        try:
            return io.BytesIO(self._storage.read(self.location))
        except CalveError as error:
            raise _known(error) from error


def _known(error: CalveError) -> OSError:
    """What `lake.errors` makes the same of as of Arrow's error."""
    if isinstance(error, NotFoundError):
        return FileNotFoundError(error.message)
    if isinstance(error, UnavailableError):
        return ConnectionError(error.message)
    if error.code == "storage_denied":
        return PermissionError(error.message)
    if error.code == "storage_certificate":
        return OSError(f"certificate verify failed: {error.message}")
    return OSError(error.message)
