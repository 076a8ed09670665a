"""What lies at a table's location: names, sizes and ages, through PyIceberg's own file access."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlparse

from pyarrow import fs
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from calve.iceberg.errors import catalog_call
from calve.model.errors import RefusedError


class Found(NamedTuple):
    """One object. `path` is its full URI, in the spelling of the table's location."""

    path: str
    bytes: int
    modified_at: datetime


def list_files(table: Table, location: str) -> Iterator[Found]:
    """Every file below a location. RefusedError where ages cannot be had: nothing may be judged then."""
    io = table.io
    if not isinstance(io, PyArrowFileIO):
        raise RefusedError(
            f"the files of table {'.'.join(table.name())} cannot be listed through {type(io).__name__}",
            code="listing_unsupported",
            hint="leave `py-io-impl` out of the catalog's configuration, or skip the search for orphans",
        )
    with catalog_call(table.catalog.name, f"listing {location}"):
        parsed = urlparse(location)
        files = io.fs_by_scheme(parsed.scheme or "file", parsed.netloc)
        base = f"{parsed.netloc}{parsed.path}".rstrip("/")
        prefix = location.rstrip("/")
        for info in files.get_file_info(fs.FileSelector(base, recursive=True, allow_not_found=True)):
            if info.type == fs.FileType.File:
                yield Found(prefix + info.path.removeprefix(base), info.size, _modified(info))


def _modified(info: Any) -> datetime:
    """An object without a time counts as made now: never old enough."""
    at: datetime | None = info.mtime
    return datetime.now(UTC) if at is None else at.astimezone(UTC)
