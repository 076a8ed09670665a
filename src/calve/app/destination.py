"""DEST as a person types it: `catalog.namespace.table`, or, with a `/`, a place for plain Parquet."""

import re
from dataclasses import dataclass
from pathlib import Path

from calve.app.config import Config
from calve.app.config.places import location
from calve.app.storages import section_of
from calve.model.errors import UsageError

PARQUET = ("files",)  # what stands where an Iceberg table has its name
_SCHEMES = ("file://", "s3://", "s3a://", "s3n://")
_S3 = re.compile(r"s3[an]?://[^/]+")


@dataclass(frozen=True, kw_only=True)
class Destination:
    """A table of a catalog that is configured, or a folder: then `catalog` is its full URI."""

    catalog: str
    identifier: tuple[str, ...]  # namespace, of one or more names, and table
    storage: str = ""  # the `[storage]` section that a worker must have for it

    @property
    def plain(self) -> bool:
        return "/" in self.catalog

    def __str__(self) -> str:
        return f"{self.catalog}/" if self.plain else ".".join((self.catalog, *self.identifier))


def parse_destination(text: str, config: Config) -> Destination:
    """UsageError for what is no destination, or whose catalog is not configured."""
    if "/" in text:
        return _folder(text, config)
    if not _is_table(text):
        raise UsageError(
            f"{text!r} names no destination",
            code="destination_name",
            hint="give it as catalog.namespace.table, for instance lake.ns.events,"
            " or, for plain Parquet, a folder with a /",
        )
    catalog, *identifier = text.split(".")
    config.catalog(catalog)
    return Destination(catalog=catalog, identifier=tuple(identifier))


def parse_table(text: str, config: Config) -> Destination:
    """A destination that is an Iceberg table. UsageError for a folder of plain Parquet as well."""
    wrong = "is a folder of plain Parquet, and no Iceberg table" if "/" in text else ""
    if not wrong and not _is_table(text):
        wrong = "names no Iceberg table"
    if wrong:
        raise UsageError(
            f"{text!r} {wrong}",
            code="destination_name",
            hint="give it as catalog.namespace.table, for instance lake.ns.events",
        )
    return parse_destination(text, config)


def _is_table(text: str) -> bool:
    names = text.split(".")
    return len(names) >= 3 and all(names)


def _folder(text: str, config: Config) -> Destination:
    """A folder is relative to where the command runs: it is typed there, not in the configuration."""
    uri = location(text, Path.cwd()).rstrip("/")
    if not uri.startswith(_SCHEMES) or (uri.startswith("s3") and not _S3.match(uri)):
        raise UsageError(
            f"{text!r} is no place for plain Parquet",
            code="destination_name",
            hint="give a folder (./out/) or s3://bucket/prefix/",
        )
    if ".." in uri.split("/") or "?" in uri or "#" in uri:
        raise UsageError(
            f"{text!r} is no place for plain Parquet: it holds '..', '?' or '#'",
            code="destination_name",
            hint="give a plain path (./out/) or s3://bucket/prefix/",
        )
    return Destination(catalog=uri, identifier=PARQUET, storage=section_of(config, uri))
