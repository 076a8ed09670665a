"""A local folder as object storage: whole objects or none, also across a crash.

An object is written to a file without a name, flushed to disk, and then linked to its place (refused if
the name is taken) or, to replace another, renamed. So a program that is killed leaves nothing behind.
Where the file system has no nameless files (NFS), the file has a temporary name beside its place, which
starts with a dot and ends with `.calve-tmp`: no reader globs those, and no listing shows them.
"""

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from calve.model.errors import RefusedError
from calve.objects.errors import translated
from calve.objects.storage import Pieces, UploadCleanup
from calve.objects.uri import Uri

if TYPE_CHECKING:
    from calve.objects.pace import Pace

TEMPORARY_SUFFIX = ".calve-tmp"
_HANDLES = Path("/proc/self/fd")
_NAMELESS = getattr(os, "O_TMPFILE", 0) if _HANDLES.is_dir() else 0
_NO_NAMELESS = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS})
_NO_COPY_RANGE = frozenset({errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM})


class LocalObjects:
    """Objects under `file:///…`: see `port.ObjectStore`."""

    def __init__(self, pace: "Pace | None" = None) -> None:
        self._pace = pace

    def put_if_absent(self, uri: str, data: bytes) -> bool:
        target = _path(uri)
        with translated(uri), _written(target, lambda out: out.write(data)) as link:
            try:
                # If we die here, there is no object.
                link(target)
            except FileExistsError:
                return False
            _flush(target.parent)
            return True

    def upload(self, local: Path, uri: str, *, flush: bool = True) -> None:
        def copy(out: BinaryIO) -> None:
            with local.open("rb") as source:
                if self._pace is None:
                    _copy(source, out)
                else:
                    out.writelines(self._pace.pieces(source))

        self._replace(uri, copy, flush=flush)

    def write(self, pieces: Pieces, uri: str, *, flush: bool = True) -> None:
        self._replace(uri, lambda out: out.writelines(pieces()), flush=flush)

    def _replace(self, uri: str, fill: Callable[[BinaryIO], object], *, flush: bool) -> None:
        target = _path(uri)
        with translated(uri), _written(target, fill, flush=flush) as link:
            try:
                # If we die here, there is no object.
                link(target)
            except FileExistsError:
                beside = _temporary(target)
                link(beside)
                # If we die here, the old object and a temporary file are there.
                beside.replace(target)
            if flush:
                _flush(target.parent)

    def link(self, local: Path, uri: str) -> None:
        target = _path(uri)
        with translated(uri):
            target.parent.mkdir(parents=True, exist_ok=True)
        try:
            # If we die here, the link is there or not; nothing refers to it yet.
            os.link(local, target)
        except FileExistsError:
            return  # made by an earlier call
        except OSError as error:
            raise RefusedError(
                f"{local} cannot be hard-linked to {target}: {error.strerror}",
                code="no_hard_links",
                hint="hard links need one file system and the right to the files; set hard_links = false under [backup]",
            ) from None

    def flush(self, uris: Sequence[str]) -> None:
        paths = [_path(uri) for uri in uris]
        for path in (*paths, *sorted({path.parent for path in paths})):
            with translated(path.as_posix()):
                _flush(path)

    def read(self, uri: str) -> bytes:
        with translated(uri):
            return _path(uri).read_bytes()

    def download(self, uri: str, local: Path) -> None:
        with translated(uri), _path(uri).open("rb") as source, local.open("wb") as out:
            _copy(source, out)

    def exists(self, uri: str) -> bool:
        with translated(uri):
            return _path(uri).is_file()

    def size(self, uri: str) -> int:
        with translated(uri):
            return _path(uri).stat().st_size

    def list(self, prefix_uri: str) -> list[str]:
        with translated(prefix_uri):
            return sorted(
                f"file://{Path(folder) / name}"
                for folder, _, names in os.walk(_path(prefix_uri), onerror=_raise_unless_missing)
                for name in names
                if not name.endswith(TEMPORARY_SUFFIX)
            )

    def sizes(self, prefix_uri: str) -> dict[str, int]:
        with translated(prefix_uri):
            return {uri: _path(uri).stat().st_size for uri in self.list(prefix_uri)}

    def delete(self, uris: Sequence[str]) -> None:
        for uri in uris:
            with translated(uri):
                # If we die here, the next call deletes the rest.
                _path(uri).unlink(missing_ok=True)

    def upload_cleanup(self, prefix_uri: str) -> UploadCleanup:
        return UploadCleanup(automatic=True, words="needs no rule")


def _path(uri: str) -> Path:
    return Uri.parse(uri).path


def _copy(source: BinaryIO, out: BinaryIO) -> None:
    """By the kernel, which shares blocks where the file system can; through memory where it cannot."""
    try:
        while os.copy_file_range(source.fileno(), out.fileno(), 1 << 30):
            pass
    except OSError as error:
        if error.errno not in _NO_COPY_RANGE:
            raise
        shutil.copyfileobj(source, out, 1 << 20)


@contextlib.contextmanager
def _written(
    target: Path, fill: Callable[[BinaryIO], object], *, flush: bool = True
) -> Iterator[Callable[[Path], None]]:
    """A filled file, by what gives it a name: that fails if the name is taken."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = _open(target)
    try:
        with os.fdopen(handle, "wb") as out:
            fill(out)
            out.flush()
            if flush:
                os.fsync(handle)

            def link(name: Path) -> None:
                if temporary is not None:
                    os.link(temporary, name)
                else:
                    # `src_dir_fd` makes Python follow the link that /proc has for the file.
                    os.link(_HANDLES / str(handle), name, src_dir_fd=handle, follow_symlinks=True)

            yield link
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _open(target: Path) -> tuple[int, Path | None]:
    """A new file in the target's folder, and its temporary name if it had to have one."""
    if _NAMELESS:
        try:
            return os.open(target.parent, _NAMELESS | os.O_RDWR, 0o666), None
        except OSError as error:
            if error.errno not in _NO_NAMELESS:
                raise
    temporary = _temporary(target)
    # If we die here, the temporary file stays; nothing reads it.
    return os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666), temporary


def _temporary(target: Path) -> Path:
    return target.with_name(f".{target.name[:150]}.{secrets.token_hex(6)}{TEMPORARY_SUFFIX}")


def _flush(path: Path) -> None:
    """A file, or a folder: a name is durable only once its folder is."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _raise_unless_missing(error: OSError) -> None:
    if error.errno != errno.ENOENT:
        raise error
