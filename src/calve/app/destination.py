"""DEST as a person types it: `catalog.namespace.table`, or, with a `/`, a place for plain Parquet."""

from dataclasses import dataclass

from calve.app.config import Config
from calve.model.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Destination:
    """A table of a catalog that is configured."""

    catalog: str
    identifier: tuple[str, ...]  # namespace, of one or more names, and table

    def __str__(self) -> str:
        return ".".join((self.catalog, *self.identifier))


def parse_destination(text: str, config: Config) -> Destination:
    """UsageError for what is no destination, or whose catalog is not configured."""
    if "/" in text:
        raise UsageError(
            f"{text}: plain Parquet destinations are not supported yet",
            code="destination_kind",
            hint="give an Iceberg table: --to catalog.namespace.table",
        )
    catalog, *identifier = text.split(".")
    if len(identifier) < 2 or not all((catalog, *identifier)):
        raise UsageError(
            f"{text!r} names no destination",
            code="destination_name",
            hint="give it as catalog.namespace.table, for instance lake.ns.events",
        )
    config.catalog(catalog)
    return Destination(catalog=catalog, identifier=tuple(identifier))
