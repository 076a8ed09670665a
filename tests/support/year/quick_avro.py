"""PyIceberg makes its readers of Avro anew for each manifest, which is most of the time of a year. The few schemas there are get one
reader each. And nothing that it keeps of one history's manifests is left for the next."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

from pyiceberg import manifest
from pyiceberg.avro import file
from pyiceberg.avro.resolver import construct_reader, resolve_reader
from pyiceberg.schema import Schema

_Key = tuple[Any, ...]
_KEPT: dict[_Key, tuple[_Key, Any]] = {}  # with what the ids in its key are of
_resolve: Callable[..., Any] = resolve_reader
_construct: Callable[..., Any] = construct_reader
_schema_of: Callable[[file.AvroFileHeader], Schema] = file.AvroFileHeader.get_schema


def _once(make: Callable[..., Any], *given: Any) -> Any:
    key = (make, *(id(one) if isinstance(one, Schema) else str(one) for one in given))
    if key not in _KEPT:
        _KEPT[key] = (given, make(*given))
    return _KEPT[key][1]


@cache
def _schema(text: str) -> Schema:
    header = file.AvroFileHeader(b"", {"avro.schema": text}, b"")
    return _schema_of(header)


def _remembering() -> Callable[..., list[manifest.ManifestEntry]]:
    """Manifests never change: each is read once a history, and opened each time, so that it can fail."""
    fetch: Callable[..., list[manifest.ManifestEntry]] = manifest.ManifestFile.fetch_manifest_entry
    known: dict[tuple[str, bool], list[manifest.ManifestEntry]] = {}

    def fetched(
        self: manifest.ManifestFile, io: Any, discard_deleted: bool = True
    ) -> list[manifest.ManifestEntry]:
        key = self.manifest_path, discard_deleted
        if key not in known:
            known[key] = fetch(self, io, discard_deleted)
        else:
            io.new_input(self.manifest_path).open()
        return list(known[key])

    return fetched


@contextmanager
def quick_avro() -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(patch.object(file, "resolve_reader", lambda *given: _once(_resolve, *given)))
        stack.enter_context(patch.object(file, "construct_reader", lambda *given: _once(_construct, *given)))
        stack.enter_context(
            patch.object(file.AvroFileHeader, "get_schema", lambda self: _schema(self.meta["avro.schema"]))
        )
        stack.enter_context(patch.object(manifest.ManifestFile, "fetch_manifest_entry", _remembering()))
        manifest.clear_manifest_cache()
        yield
        manifest.clear_manifest_cache()
