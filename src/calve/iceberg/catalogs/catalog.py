"""Opening Iceberg catalogs so that no call can hang and no commit is sent twice unseen.

Opening is lazy: no network, no file, no database is touched before the first call. PyIceberg
0.12 gives its REST session no timeout and its SQL engine no statement timeout; both get one, and
transport retries are off: a repeated commit is our decision, never the transport's.

A SQL catalog's metadata files are read at every load and parsed only if their bytes are new: a publish
loads a table three times, and a table of 1,000 snapshots takes 18 ms to parse and 29 ms to copy. Of a file
to be written, only what is not in the one before it is made anew.
"""

import operator
import time
from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from itertools import islice
from pathlib import Path
from threading import Lock, RLock
from typing import Any

from pyiceberg.catalog import (
    Catalog,
    CatalogType,
    MetastoreCatalog,
    _check_required_catalog_properties,
    infer_catalog_type,
    load_catalog,
)
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import NotInstalledError
from pyiceberg.io import FileIO, InputFile, OutputFile, load_file_io
from pyiceberg.serializers import Compressor, FromByteStream
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import (
    TableRequirement,
    TableUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
    _update_table_metadata_log,
)
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from pyiceberg.utils.config import Config
from sqlalchemy import Engine, create_engine, inspect
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, OperationalError, ProgrammingError

import calve.iceberg.tables  # noqa: F401  # what it says of updates holds wherever a catalog is open
from calve.destination import file_io
from calve.destination.names import property_text
from calve.iceberg.catalogs.rest import BoundedRestCatalog
from calve.iceberg.errors import describe
from calve.model.errors import UsageError
from calve.model.limits import Limits
from calve.objects.credentials import CA_FILE, check_ca_file
from calve.objects.uri import full_uri

_PARSED_FILES, _PARSED_BYTES = 4, 100_000_000  # of a catalog, kept for the next load: 100,000 keys are 38 MB
_PIECE_BYTES = 1_000_000
_GROWING = {  # fields of metadata, with what stands around them in a file
    "properties": (b'"properties":{', b"}"),
    "snapshots": (b'"snapshots":[', b"]"),
    "snapshot_log": (b'"snapshot-log":[', b"]"),
    "refs": (b'"refs":{', b"}"),
}


def open_catalog(name: str, properties: Mapping[str, Any], limits: Limits | None = None) -> Catalog:
    """The catalog of `[catalog.<name>]`. Cheap; UsageError if the properties cannot be right."""
    limits = limits or Limits()
    given: dict[str, Any] = {
        key: value if isinstance(value, dict) else property_text(value) for key, value in properties.items()
    }
    given = _with_certificates(_with_file_timeouts(given, limits))
    try:
        kind = CatalogType(given["type"].lower()) if "type" in given else infer_catalog_type(name, given)
        if kind is not None:
            _check_required_catalog_properties(name, kind, given)
        if kind is not CatalogType.REST and given.get("warehouse"):
            # A REST catalog's is a name that its server knows: `main`, `team/lake`, an ARN.
            given["warehouse"] = full_uri(given["warehouse"])
        match kind:
            case CatalogType.SQL:
                return BoundedSqlCatalog(name, limits, given)
            case CatalogType.REST:
                return BoundedRestCatalog(name, limits, given)
            case CatalogType.HIVE:
                return _hive(name, limits, given)
            case CatalogType.GLUE:
                return _glue(name, limits, given)
            case _:
                return load_catalog(name, **given)
    except NotInstalledError as cause:
        kind_name = str(given.get("type", "")).lower()
        raise UsageError(
            f"catalog {name}: the libraries for catalogs of the type {kind_name} are not installed",
            code="catalog_not_installed",
            hint=f"pip install 'calve[{kind_name}]'",
        ) from cause
    except (ValueError, ArgumentError, ImportError) as cause:
        raise UsageError(
            f"catalog {name}: {describe(cause)}",
            code="catalog_config",
            hint=_hint(name, cause),
        ) from cause


def _hive(name: str, limits: Limits, properties: Mapping[str, Any]) -> Catalog:
    try:
        from calve.iceberg.catalogs.hive import BoundedHiveCatalog
    except ImportError as cause:
        raise NotInstalledError(str(cause)) from cause
    return BoundedHiveCatalog(name, limits, properties)


def _glue(name: str, limits: Limits, properties: Mapping[str, Any]) -> Catalog:
    try:
        from calve.iceberg.catalogs.glue import BoundedGlueCatalog
    except ImportError as cause:
        raise NotInstalledError(str(cause)) from cause
    return BoundedGlueCatalog(name, limits, properties)


def _hint(name: str, cause: Exception) -> str:
    if isinstance(cause, ModuleNotFoundError) and cause.name == "psycopg":
        return "pip install 'calve[postgres]'"
    if isinstance(cause, ModuleNotFoundError) and (cause.name or "").startswith("psycopg"):
        return f"write uri of [catalog.{name}] as postgresql://…, without a driver: Calve brings its own"
    return f"see [catalog.{name}] in calve.toml: type, uri, warehouse"


def _with_file_timeouts(properties: dict[str, Any], limits: Limits) -> dict[str, Any]:
    """Reading and writing metadata is part of a catalog call, so it is bounded too: the client tries
    three times, and an endpoint that never answers must be known within one call's time (L2)."""
    a_third = limits.call_seconds / 3
    return {
        "s3.connect-timeout": str(min(limits.connect_seconds, a_third)),
        "s3.request-timeout": str(a_third),  # of silence, not of the whole transfer
    } | properties


def _with_certificates(properties: dict[str, Any]) -> dict[str, Any]:
    """`ca_file` is the authority of the catalog's server, and of its storage unless that has its own."""
    found = dict(properties)
    ca_file = found.pop("ca_file", "") or found.pop("ca-file", "")
    if ca_file:
        check_ca_file(ca_file)
        found["ssl"] = {"cabundle": ca_file} | found.get("ssl", {})
        found.setdefault(CA_FILE, ca_file)
    return file_io.bounded(found)


class BoundedSqlCatalog(SqlCatalog):
    """PyIceberg's SQL catalog with timeouts, its tables made or found on first use."""

    _LATE = frozenset({"engine", "_schema_version"})

    def __init__(self, name: str, limits: Limits, properties: Mapping[str, str]) -> None:
        # Not SqlCatalog.__init__: it connects, and reads an unreachable database as an empty one.
        MetastoreCatalog.__init__(self, name, **properties)
        self._limits = limits
        self._connecting = RLock()
        self._parsed = ParsedMetadata()
        url = make_url(properties["uri"])
        if url.drivername in ("postgresql", "postgres"):
            url = url.set(drivername="postgresql+psycopg")
        self._engine = create_engine(
            url, pool_pre_ping=True, connect_args=self._bounds(url.get_backend_name())
        )

    def _bounds(self, backend: str) -> dict[str, Any]:
        match backend:
            case "sqlite":
                return {"timeout": self._limits.call_seconds}
            case "postgresql":
                milliseconds = int(self._limits.call_seconds * 1000)
                return {
                    "connect_timeout": max(1, int(self._limits.connect_seconds)),
                    "options": f"-c statement_timeout={milliseconds} -c lock_timeout={milliseconds}"
                    f" -c idle_in_transaction_session_timeout={milliseconds}",
                    "keepalives_idle": 5,
                    "tcp_user_timeout": milliseconds,
                }
            case _:
                return {}

    def __getattr__(self, name: str) -> Any:
        """Reached only for what is not there yet: the engine is, once the catalog's tables are."""
        if name not in self._LATE:
            raise AttributeError(name)
        with self._connecting:
            if "engine" not in self.__dict__:
                self._make_folder()
                self._schema_version = self._detect()
                self.engine: Engine = self._engine
        return self.__dict__[name]

    def _make_folder(self) -> None:
        path = self._engine.url.database
        if self._engine.url.get_backend_name() == "sqlite" and path and path != ":memory:":
            Path(path).parent.mkdir(parents=True, exist_ok=True)

    def _detect(self) -> str:
        """The schema's version. Missing tables are created; a program that loses the race to create them
        looks again. The race can be lost once for each of the two tables."""
        for last_try in (False, False, True):
            found = inspect(self._engine)
            if found.has_table("iceberg_tables") and found.has_table("iceberg_namespace_properties"):
                columns = {column["name"] for column in found.get_columns("iceberg_tables")}
                return "v1" if IcebergTables.iceberg_type.key in columns else "v0"
            try:
                # If we die here, the next opening finds some of the tables and makes the others.
                IcebergTables.metadata.create_all(self._engine)
            except (OperationalError, ProgrammingError):
                if last_try:
                    raise
        return "v1"

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        location = orm_table.metadata_location
        if not (location and orm_table.table_namespace and orm_table.table_name):
            return super()._convert_orm_to_iceberg(orm_table)  # which says what is missing
        file = load_file_io(properties=self.properties, location=location).new_input(location)
        metadata = self._parsed.read(file)
        return Table(
            identifier=(*Catalog.identifier_to_tuple(orm_table.table_namespace), orm_table.table_name),
            metadata=metadata,
            metadata_location=location,
            io=self._load_file_io(metadata.properties, location),
            catalog=self,
        )

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        """PyIceberg's, without its copy of a table's properties: there may be 100,000 keys among them."""
        return load_file_io(ChainMap(properties, self.properties), location)  # type: ignore[arg-type]

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        """PyIceberg's, without its deep copy: each update makes new metadata and changes none."""
        if current_table is None:
            return super()._update_and_stage_table(current_table, table_identifier, requirements, updates)
        base, location = current_table.metadata, current_table.metadata_location
        for requirement in requirements:
            requirement.validate(base)
        metadata, context = base, _TableMetadataUpdateContext()
        for update in updates:
            metadata = _apply_table_update(update, metadata, context)
        if context.has_changes():
            metadata = _update_table_metadata_log(metadata, location, base.last_updated_ms)
            if metadata.last_updated_ms == base.last_updated_ms:
                metadata = metadata.model_copy(update={"last_updated_ms": time.time_ns() // 1_000_000})
        metadata.spec().check_compatible(metadata.schema())
        metadata.sort_order().check_compatible(metadata.schema())
        provider = load_location_provider(metadata.location, metadata.properties)
        place = provider.new_table_metadata_file_location(self._parse_metadata_version(location) + 1)
        return StagedTable(
            identifier=table_identifier,
            metadata=metadata,
            metadata_location=place,
            io=self._load_file_io(properties=metadata.properties, location=place),
            catalog=self,
        )

    def _write_metadata(  # type: ignore[override]  # it is static there, and called as a method
        self, metadata: TableMetadata, io: FileIO, metadata_path: str
    ) -> None:
        self._parsed.write(metadata, io.new_output(metadata_path))

    def close(self) -> None:
        self._engine.dispose()


@dataclass(frozen=True, kw_only=True)
class MetadataFile:
    """Its bytes, what they mean, and the text of fields that grow, where it is known: what is between the brackets."""

    data: bytes
    metadata: TableMetadata
    texts: Mapping[str, memoryview] = field(default_factory=dict)

    def begins(self, metadata: TableMetadata, name: str) -> bool:
        """Whether the field has what it has here, the very same objects, and maybe more after them."""
        mine, others = _growing(self.metadata, name), _growing(metadata, name)
        if self.metadata.format_version != metadata.format_version or len(mine) > len(others):
            return False
        same = all(map(operator.is_, mine, others))
        return same and (isinstance(mine, list) or all(map(operator.is_, mine.values(), others.values())))


class ParsedMetadata:
    """Metadata of the files read or written last, each with its bytes: the same bytes mean the same.
    Shared by all who load a table, so nobody may change it; PyIceberg makes changed copies."""

    def __init__(self) -> None:
        self._without_none = not Config().get_bool("legacy-current-snapshot-id")
        self._kept: dict[str, MetadataFile] = {}
        self._keeping = Lock()

    def read(self, file: InputFile) -> TableMetadata:
        known = self._kept.get(file.location)
        if known is None or not _has(file, known.data):
            with file.open() as stream:
                data = bytes(stream.read())
            compression = Compressor.get_compressor(file.location)
            metadata = FromByteStream.table_metadata(BytesIO(data), compression=compression)
            known = MetadataFile(data=data, metadata=metadata)
        self._keep(file.location, known)
        return known.metadata

    def write(self, metadata: TableMetadata, file: OutputFile) -> None:
        """What PyIceberg writes, with the fields that grow last."""
        parts: list[bytes | memoryview] = [self._json(metadata, exclude=set(_GROWING)).removesuffix(b"}")]
        places = {}
        for name, (begin, end) in _GROWING.items():
            parts.append(b"," + begin)
            place = sum(map(len, parts))
            parts += self._text(metadata, name)
            places[name] = slice(place, sum(map(len, parts)))
            if name == "refs" and MAIN_BRANCH in metadata.refs:
                main = self._items(metadata, name, {MAIN_BRANCH: metadata.refs[MAIN_BRANCH]})
                parts += [b"," if len(metadata.refs) > 1 else b"", main]
            parts.append(end)
        plain = b"".join((*parts, b"}"))
        data = Compressor.get_compressor(file.location).bytes_compressor()(plain)
        # If we die here, a metadata file that no catalog names is left.
        with file.create() as stream:
            stream.write(data)
        texts = {name: memoryview(data)[place] for name, place in places.items()} if data is plain else {}
        self._keep(file.location, MetadataFile(data=data, metadata=metadata, texts=texts))

    def _text(self, metadata: TableMetadata, name: str) -> Iterator[bytes | memoryview]:
        """A commit adds little to what the file before it has, and writes all: what is in that file is taken from it.
        PyIceberg takes 4 µs for a snapshot."""
        with self._keeping:
            kept = [one for one in reversed(self._kept.values()) if one.texts.get(name)]
        base = next((one for one in kept if one.begins(metadata, name)), None)
        there = 0
        if base is not None:
            there = len(_growing(base.metadata, name))
            yield base.texts[name]
        value = _growing(metadata, name)
        added = value[there:] if isinstance(value, list) else dict(islice(value.items(), there, None))
        if added:
            yield b"," if there else b""
            yield self._items(metadata, name, added)

    def _items(self, metadata: TableMetadata, name: str, items: Any) -> bytes:
        """As text, what is between the brackets of a field that has these."""
        begin, end = _GROWING[name]
        text = self._json(metadata.model_copy(update={name: items}), include={name})
        return text.removeprefix(b"{" + begin).removesuffix(end + b"}")

    def _json(self, metadata: TableMetadata, **fields: Any) -> bytes:
        return metadata.model_dump_json(exclude_none=self._without_none, **fields).encode()

    def _keep(self, location: str, file: MetadataFile) -> None:
        with self._keeping:
            self._kept.pop(location, None)
            self._kept[location] = file
            while len(self._kept) > _PARSED_FILES or self._bytes() > _PARSED_BYTES:
                del self._kept[next(iter(self._kept))]

    def _bytes(self) -> int:
        return sum(len(file.data) for file in self._kept.values())


def _growing(metadata: TableMetadata, name: str) -> Any:
    """The field, of the refs all but the one that every commit moves."""
    value = getattr(metadata, name)
    return {ref: at for ref, at in value.items() if ref != MAIN_BRANCH} if name == "refs" else value


def _has(file: InputFile, data: bytes) -> bool:
    """Whether a file has these bytes. It is read in pieces: room for all of it takes the kernel longer than the read."""
    place = 0
    with file.open() as stream:
        while piece := stream.read(_PIECE_BYTES):
            if not data.startswith(piece, place):
                return False
            place += len(piece)
    return place == len(data)
