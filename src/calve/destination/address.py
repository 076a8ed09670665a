"""How a destination is written down. The only module that tells the forms apart: a catalog's name never
has a `/`, a folder's URI always does.

Stored requests and plans keep `catalog` and `identifier` as they are here.
"""

import re
from dataclasses import dataclass
from typing import Self

from calve.model import reach
from calve.model.errors import UsageError
from calve.model.reach import Service

ICEBERG = "iceberg"
PARQUET = "parquet"
_FOLDER_IDENTIFIER = ("files",)  # stored where an Iceberg table has its namespace and name
_BUCKET = re.compile(r"s3[an]?://[^/]+")


@dataclass(frozen=True, kw_only=True)
class DestinationAddress:
    """A table of a configured catalog, or a folder: `catalog` is then the folder's full URI."""

    catalog: str
    identifier: tuple[str, ...]  # namespace (one name or more) and table
    storage: str = ""  # a folder's: the [storage] section that a worker must have

    @classmethod
    def folder(cls, uri: str, storage: str = "") -> Self:
        return cls(catalog=uri.rstrip("/"), identifier=_FOLDER_IDENTIFIER, storage=storage)

    @property
    def form(self) -> str:
        """Which implementation serves it."""
        return PARQUET if is_folder(self.catalog) else ICEBERG

    @property
    def lane(self) -> Service:
        """What is down together waits together: a catalog, or the bucket that a folder is in."""
        if self.form == ICEBERG:
            return reach.catalog(self.catalog)
        bucket = _BUCKET.match(self.catalog)
        return reach.storage(bucket[0] if bucket else self.catalog)

    @property
    def needs(self) -> tuple[Service, ...]:
        """What a worker's configuration must have. A local folder, and a bucket whose keys come from
        the environment, are in no configuration: any worker that reaches the source may try."""
        if self.form == ICEBERG:
            return (reach.catalog(self.catalog),)
        return (reach.storage(self.storage),) if self.storage else ()

    def __str__(self) -> str:
        return f"{self.catalog}/" if self.form == PARQUET else ".".join((self.catalog, *self.identifier))


def is_folder(text: str) -> bool:
    """Whether DEST, as typed or as stored, is a folder of plain Parquet."""
    return "/" in text


def parse_table_name(text: str) -> DestinationAddress:
    """`catalog.namespace.table`. UsageError for anything else."""
    catalog, *identifier = text.split(".")
    if len(identifier) < 2 or not catalog or not all(identifier):
        raise UsageError(
            f"invalid destination {text!r}",
            code="destination_name",
            hint="use catalog.namespace.table, for example lake.ns.events,"
            " or a path with a / for plain Parquet",
        )
    return DestinationAddress(catalog=catalog, identifier=tuple(identifier))
