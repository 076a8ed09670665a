"""A bucket of our own client as Arrow's filesystem: what PyIceberg reads and writes where Arrow's client will not do.

Arrow's clients of Azure and Google know neither our bounds nor the account in a location, and find keys of their own.
Every request here is bounded, and its errors are those that PyIceberg's callers know.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileSystemHandler, FileType, PyFileSystem

from calve.destination.file_io import as_os_error
from calve.model.errors import CalveError, NotFoundError
from calve.objects.remote import CHUNK_BYTES, RemoteObjects
from calve.objects.storage import Storage
from calve.objects.uri import Uri


def filesystem(scheme: str, bucket: str, storage: Storage) -> PyFileSystem:
    """Paths are as PyIceberg has them: the bucket, or the container with its account, and the key."""
    objects = storage.bucket(Uri(scheme, bucket, ""))
    assert isinstance(objects, RemoteObjects)
    return PyFileSystem(_Handler(scheme, objects))


@contextmanager
def _as_arrow() -> Iterator[None]:
    try:
        yield
    except CalveError as error:
        raise as_os_error(error) from error


class _Handler(FileSystemHandler):  # type: ignore[misc]
    def __init__(self, scheme: str, objects: RemoteObjects) -> None:
        self._scheme = scheme
        self._objects = objects

    def get_type_name(self) -> str:
        return self._scheme

    def normalize_path(self, path: str) -> str:
        return path

    def _uri(self, path: str) -> str:
        return f"{self._scheme}://{path}"

    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        with _as_arrow():
            return [self._info(path) for path in paths]

    def _info(self, path: str) -> FileInfo:
        try:
            return FileInfo(path, FileType.File, size=self._objects.size(self._uri(path)))
        except NotFoundError:
            return FileInfo(path, FileType.NotFound)

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        """All files below; there are no folders, so none is ever missing."""
        assert selector.recursive, "only whole trees are asked for"
        with _as_arrow():
            return [
                FileInfo(
                    found.uri.removeprefix(f"{self._scheme}://"),
                    FileType.File,
                    size=found.bytes,
                    mtime=found.modified_at,
                )
                for found in self._objects.listed(self._uri(selector.base_dir))
            ]

    def open_input_file(self, path: str) -> pa.PythonFile:
        with _as_arrow():
            uri = self._uri(path)
            return pa.PythonFile(_Ranges(self._objects, uri, self._objects.size(uri)), mode="r")

    def open_input_stream(self, path: str) -> pa.PythonFile:
        return self.open_input_file(path)

    def open_output_stream(self, path: str, metadata: Any) -> pa.PythonFile:
        return pa.PythonFile(_Written(self._objects, self._uri(path)), mode="w")

    def delete_file(self, path: str) -> None:
        with _as_arrow():
            self._objects.delete([self._uri(path)])

    def create_dir(self, path: str, recursive: bool) -> None:
        """There are no folders."""

    def _refused(self, *_: Any) -> Any:
        raise NotImplementedError("object storage has no such call")

    copy_file = delete_dir = delete_dir_contents = delete_root_dir_contents = move = _refused
    open_append_stream = _refused


class _Ranges(io.RawIOBase):
    """An object, read where it is asked for, in requests of a bounded size."""

    def __init__(self, objects: RemoteObjects, uri: str, size: int) -> None:
        self._objects = objects
        self._uri = uri
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._size, self._at + size)
        pieces = []
        with _as_arrow():
            while self._at < end:
                until = min(end, self._at + CHUNK_BYTES)
                pieces.append(self._objects.read_range(self._uri, self._at, until))
                self._at = until
        return b"".join(pieces)


class _Written(io.BytesIO):
    """Metadata, which fits into memory: put when it is closed."""

    def __init__(self, objects: RemoteObjects, uri: str) -> None:
        super().__init__()
        self._objects = objects
        self._uri = uri

    def close(self) -> None:
        if self.closed:
            return
        data = self.getvalue()
        super().close()
        with _as_arrow():
            # If we die here, a file that no snapshot names is there, or not.
            self._objects.write(lambda: iter([data]), self._uri)
