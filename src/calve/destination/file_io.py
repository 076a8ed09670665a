"""PyIceberg's file access through Arrow, with certificates of one's own and a bound on every metadata read.

PyIceberg hands on everything but the file of certificates, which Arrow itself takes. Arrow bounds the
silence between two bytes and not the request (tried: a body that drips is read for ever), so metadata in
object storage, which every catalog call reads, is read by the client that writes data files. Data files, which
`calve verify` reads, are still Arrow's in S3; other clouds are ours altogether (`cloud_files`).
"""

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyarrow.fs import FileSystem, S3FileSystem
from pyiceberg.io import InputFile, InputStream
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from calve.model.errors import (
    CalveError,
    DeniedError,
    NotFoundError,
    TemporaryError,
    UnavailableError,
    UntrustedError,
)
from calve.objects.credentials import CA_FILE, S3Access
from calve.objects.storage import Storage
from calve.objects.uri import AZURE, GCS, LOCAL, is_served, kind_of

IMPLEMENTATION = "calve.destination.file_io.BoundedFileIO"
_METADATA = (".json", ".avro", ".json.gz")
_KEY = "s3.access-key-id"
_TRIES = 3  # that Arrow's client has in the time of a call


def bounded(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The properties, with this file access in them unless they name another."""
    return {"py-io-impl": IMPLEMENTATION} | dict(properties)


class BoundedFileIO(PyArrowFileIO):
    """Checks S3's certificate against `s3.ca-file`, and bounds reads of metadata."""

    def new_input(self, location: str) -> Any:
        found = super().new_input(location)
        if kind_of(location) != LOCAL and is_served(location) and location.endswith(_METADATA):
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

    def _initialize_fs(self, scheme: str, netloc: str | None = None) -> FileSystem:
        if kind_of(f"{scheme}://") not in (AZURE, GCS):
            return super()._initialize_fs(scheme, netloc)
        from calve.destination.cloud_files import filesystem

        return filesystem(scheme, netloc or "", self._storage())

    def _initialize_s3_fs(self, netloc: str | None) -> FileSystem:
        given = self.properties
        if not given.get(CA_FILE):
            return super()._initialize_s3_fs(netloc)
        return S3FileSystem(**arrow_options(given))


def arrow_options(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The one place that turns access into the options of Arrow's S3 client."""
    access = S3Access.of(properties)
    options: dict[str, Any] = {
        "endpoint_override": access.endpoint,
        "access_key": access.access_key_id,
        "secret_key": access.secret_access_key,
        "session_token": access.session_token,
        "region": access.region,
        "proxy_options": access.proxy,
        "role_arn": access.role_arn,
        "session_name": access.role_session_name,
        "tls_ca_file_path": access.ca_file,
    }
    for name in ("connect", "request"):
        options[f"{name}_timeout"] = float(properties.get(f"s3.{name}-timeout") or 0)
    return {name: value for name, value in options.items() if value} | {
        "force_virtual_addressing": access.virtual_addressing,
        "anonymous": access.anonymous,
    }


class _Metadata(InputFile):
    """One file of metadata, read whole. Its errors are those that PyIceberg's callers know."""

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
            raise as_os_error(error) from error


def as_os_error(error: CalveError) -> OSError:
    """As `iceberg.errors` classifies Arrow's error of the same cause."""
    if isinstance(error, NotFoundError):
        return FileNotFoundError(error.message)
    if isinstance(error, UnavailableError):
        return ConnectionError(error.message)
    if isinstance(error, DeniedError):
        return PermissionError(error.message)
    if isinstance(error, UntrustedError):
        return OSError(f"certificate verify failed: {error.message}")
    return OSError(error.message)


@contextmanager
def lent_to(table: Table) -> Iterator[None]:
    """Around work on a table's metadata files. Keys that were lent with the table may be refused before
    their time; the next attempt loads the table again, and with it other keys."""
    try:
        yield
    except DeniedError as error:
        own = table.catalog.properties.get(_KEY)
        if table.io.properties.get(_KEY) == own:
            raise
        raise TemporaryError(
            error.message,
            code="lent_keys_refused",
            hint="the catalog lends new keys each time the table is loaded; it is retried",
        ) from error
