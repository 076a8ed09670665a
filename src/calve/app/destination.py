"""DEST as a person types it: `catalog.namespace.table`, or, with a `/`, a place for plain Parquet."""

from pathlib import Path

from calve.app.config import Config
from calve.app.config.values import location
from calve.app.storages import section_of
from calve.destination.address import DestinationAddress, is_folder, parse_table_name
from calve.model.errors import UsageError
from calve.objects.uri import is_served


def parse_destination(text: str, config: Config) -> DestinationAddress:
    """UsageError for what is not a destination, or whose catalog is not configured."""
    if is_folder(text):
        return _folder(text, config)
    address = parse_table_name(text)
    config.catalog(address.catalog)
    return address


def parse_table(text: str, config: Config) -> DestinationAddress:
    """A destination that is an Iceberg table. UsageError for a folder of plain Parquet as well."""
    wrong = f"{text!r} is a folder of plain Parquet, not an Iceberg table" if is_folder(text) else ""
    if not wrong and text.count(".") < 2:
        wrong = f"invalid table {text!r}"
    if wrong:
        raise UsageError(
            wrong, code="destination_name", hint="use catalog.namespace.table, for example lake.ns.events"
        )
    return parse_destination(text, config)


def as_stored(text: str, config: Config) -> str:
    """A destination as processes have it: a folder by its full URI, a table by its name, configured or not."""
    return str(_folder(text, config)) if is_folder(text) else text


def _folder(text: str, config: Config) -> DestinationAddress:
    """A folder is relative to where the command runs: it is typed there, not in the configuration."""
    uri = location(text, Path.cwd()).rstrip("/")
    if not is_served(uri):
        raise UsageError(
            f"invalid folder {text!r}",
            code="destination_name",
            hint="use a folder (./out/) or s3://bucket/prefix/",
        )
    if ".." in uri.split("/") or "?" in uri or "#" in uri:
        raise UsageError(
            f"invalid folder {text!r}: it contains '..', '?' or '#'",
            code="destination_name",
            hint="use a plain path (./out/) or s3://bucket/prefix/",
        )
    return DestinationAddress.folder(uri, storage=section_of(config, uri))
