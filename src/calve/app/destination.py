"""DEST as a person types it, and the keys, endpoint and certificates that serve it.

DEST is `catalog.namespace.table` or, with a `/`, a folder of plain Parquet. A location takes the keys of the
longest `[storage."…"]` that it lies in, a catalog those of its own entry. What is not given there comes from
the environment and AWS profiles (`objects.credentials`).
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calve.app.config import Config
from calve.app.config.values import location
from calve.destination.names import DestinationAddress, catalog_type, parse_table_name
from calve.model.errors import CalveError, UsageError
from calve.model.reach import is_folder
from calve.objects.credentials import resolve, section_properties
from calve.objects.uri import LOCAL, is_below, is_served, kind_of

if TYPE_CHECKING:
    from calve.clickhouse.sql.tokens import TableName


def section_of(config: Config, location: str) -> str:
    """The prefix of the section; "" where there is none."""
    fitting = [prefix for prefix in config.storages if is_below(location, prefix)]
    return max(fitting, key=len, default="")


def properties_of(config: Config, location: str) -> dict[str, str]:
    """PyIceberg's own names, as `objects.storage.Storage` takes them."""
    if kind_of(location) == LOCAL:
        return {}
    section = section_of(config, location)
    where = f'[storage."{section}"]' if section else location
    try:
        given = section_properties(config.storages[section], location) if section else {}
        return resolve(given, os.environ, kind=kind_of(location))
    except CalveError as error:
        raise _named(error, where) from error


def backup_properties(config: Config) -> dict[str, str]:
    """How to open the location of backups: with the keys of its storage, and its own."""
    from calve.archive import vault

    return properties_of(config, config.backup_url) | vault.properties(
        keys=config.backup_encryption_key,
        compression=config.backup_compression,
        level=config.backup_compression_level,
    )


def catalog_properties(config: Config, name: str) -> dict[str, Any]:
    """A catalog's entry, completed for the storage of its files."""
    given = config.catalog(name)
    warehouse = str(given.get("warehouse", ""))
    served = catalog_type(given) == "rest"  # its warehouse is a name that the server knows
    if not served and "/" in warehouse and kind_of(warehouse) == LOCAL:
        return dict(given)
    if warehouse.startswith("az://"):
        raise UsageError(
            f"[catalog.{name}]: no reader of Iceberg knows az:// locations",
            code="config_bad_value",
            hint='warehouse = "abfss://container@account.dfs.core.windows.net/path"',
        )
    kind = kind_of(warehouse) if not served and "://" in warehouse else ""
    try:
        return resolve(given, os.environ, kind=kind, keys_may_be_lent=served)
    except CalveError as error:
        raise _named(error, f"[catalog.{name}]") from error


def _named(error: CalveError, where: str) -> CalveError:
    return type(error)(f"{where}: {error.message}", code=error.code, hint=error.hint)


def parse_source_table(text: str, config: Config) -> "TableName":
    """A table of a source as a person names it: `[source:][db.]table`."""
    from calve.clickhouse.sql.tokens import parse

    def database(source: str | None) -> str:
        given = source or config.default_source
        return config.sources[given].database if given in config.sources else ""

    return parse(text, database)


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
