"""A local folder as object storage: whole objects or none, also across a crash.

An object is written under a temporary name beside its place, flushed to disk, and then
linked (refused if the name is taken) or renamed (overwrites). Temporary names start with a
dot and end with `.calve-tmp`: no reader globs them, and a sweep can tell them.
"""

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from calve.model.errors import CalveError, NotFoundError, PermanentError, RefusedError, TemporaryError
from calve.objects.port import Upload, Uploads

SCHEME = "file://"
TEMPORARY_SUFFIX = ".calve-tmp"
_NO_ACCESS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_NO_COPY_RANGE = frozenset({errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class LocalStore:
    """Objects under `file:///…`."""

    def put_if_absent(self, uri: str, data: bytes) -> bool:
        target = local_path(uri)
        with _wrapped(uri), _temporary(target, lambda out: out.write(data)) as temporary:
            try:
                # If we die here, only the temporary file is left.
                os.link(temporary, target)
            except FileExistsError:
                return False
            _flush(target.parent)
            return True

    def upload(self, local: Path, uri: str, *, flush: bool = True) -> None:
        target = local_path(uri)

        def copy(out: BinaryIO) -> None:
            with local.open("rb") as source:
                _copy(source, out)

        with _wrapped(uri), _temporary(target, copy, flush=flush) as temporary:
            # If we die here, only the temporary file is left.
            temporary.replace(target)
            if flush:
                _flush(target.parent)

    def link(self, local: Path, uri: str) -> None:
        target = local_path(uri)
        with _wrapped(uri):
            target.parent.mkdir(parents=True, exist_ok=True)
        try:
            # If we die here, the link is there or not; nothing names it yet.
            os.link(local, target)
        except FileExistsError:
            return  # by this very call, made before
        except OSError as error:
            raise RefusedError(
                f"{local} cannot be hard-linked to {target}: {error.strerror}",
                code="no_hard_links",
                hint="hard links need one file system and the right to the files; set hard_links = false under [backup]",
            ) from None

    def flush(self, uris: Sequence[str]) -> None:
        paths = [local_path(uri) for uri in uris]
        for path in (*paths, *sorted({path.parent for path in paths})):
            with _wrapped(f"{SCHEME}{path}"):
                _flush(path)

    def read(self, uri: str) -> bytes:
        with _wrapped(uri):
            return local_path(uri).read_bytes()

    def download(self, uri: str, local: Path) -> None:
        with _wrapped(uri), local_path(uri).open("rb") as source, local.open("wb") as out:
            _copy(source, out)

    def exists(self, uri: str) -> bool:
        with _wrapped(uri):
            return local_path(uri).is_file()

    def size(self, uri: str) -> int:
        with _wrapped(uri):
            return local_path(uri).stat().st_size

    def list(self, prefix_uri: str) -> list[str]:
        with _wrapped(prefix_uri):
            return sorted(
                f"{SCHEME}{Path(folder) / name}"
                for folder, _, names in os.walk(local_path(prefix_uri), onerror=_raise_unless_missing)
                for name in names
                if not name.endswith(TEMPORARY_SUFFIX)
            )

    def sizes(self, prefix_uri: str) -> dict[str, int]:
        with _wrapped(prefix_uri):
            return {uri: local_path(uri).stat().st_size for uri in self.list(prefix_uri)}

    def delete(self, uris: Sequence[str]) -> None:
        for uri in uris:
            with _wrapped(uri):
                # If we die here, the rest is deleted by the next call.
                local_path(uri).unlink(missing_ok=True)

    def uploads(self, prefix_uri: str) -> Uploads:
        with _wrapped(prefix_uri):
            return [
                Upload(uri=f"{SCHEME}{Path(folder) / _begun(name)}", id=str(Path(folder) / name))
                for folder, _, names in os.walk(local_path(prefix_uri), onerror=_raise_unless_missing)
                for name in sorted(names)
                if name.endswith(TEMPORARY_SUFFIX)
            ]

    def abort(self, uploads: Sequence[Upload]) -> None:
        for upload in uploads:
            with _wrapped(upload.uri):
                Path(upload.id).unlink(missing_ok=True)


def _begun(temporary: str) -> str:
    """The name that a temporary file was begun for."""
    return temporary.removesuffix(TEMPORARY_SUFFIX).rpartition(".")[0].removeprefix(".")


def local_path(uri: str) -> Path:
    """The file that a `file://` URI names. Taken literally, and never upwards."""
    path = Path(uri.removeprefix(SCHEME))
    if not uri.startswith(SCHEME) or not path.is_absolute() or ".." in path.parts:
        raise PermanentError(
            f"not the URI of a local object: {uri}",
            code="storage_uri",
            hint="a local location is written file:///absolute/path",
        )
    return path


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
def _temporary(target: Path, fill: Callable[[BinaryIO], object], *, flush: bool = True) -> Iterator[Path]:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name[:150]}.{secrets.token_hex(6)}{TEMPORARY_SUFFIX}")
    try:
        # If we die here, the temporary file is left; nothing reads it.
        with temporary.open("xb") as out:
            fill(out)
            out.flush()
            if flush:
                os.fsync(out.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


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


@contextlib.contextmanager
def _wrapped(uri: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _calve_error(uri, error) from error


def _calve_error(uri: str, error: OSError) -> CalveError:
    cause = error.strerror or type(error).__name__
    if error.errno == errno.ENOENT:
        return NotFoundError(f"no such object: {uri}", code="object_missing")
    if error.errno in _NO_ACCESS:
        return PermanentError(
            f"no access to {uri}: {cause}",
            code="storage_denied",
            hint="give the user that runs the tasks the right to write there",
        )
    if error.errno in _FULL:
        return TemporaryError(f"no space left for {uri}: {cause}", code="storage_full", hint="free some disk")
    return TemporaryError(f"{uri}: {cause}", code="storage_failed")
