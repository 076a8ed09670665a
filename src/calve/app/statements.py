"""How to read a destination with other engines: a statement for each, without secrets."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from calve.app.config import Config
from calve.model.reach import is_folder


def statements(destination: str, location: str, config: Config) -> list[dict[str, str]]:
    """`location` is where an Iceberg table lies, as it was last seen; "" if nobody has looked."""
    if is_folder(destination):
        return [{"engine": engine, "text": text} for engine, text in _parquet(destination, config)]
    catalog, _, table = destination.partition(".")
    properties = config.catalogs.get(catalog, {})
    return [
        {"engine": engine, "text": text} for engine, text in _iceberg(catalog, table, location, properties)
    ]


def _iceberg(
    catalog: str, table: str, location: str, properties: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    function = _function(location, str(properties.get("s3.endpoint", "")), ("icebergLocal", "icebergS3"))
    if function:
        yield "ClickHouse", f"SELECT * FROM {function}"
    yield "Spark", f"SELECT * FROM {'.'.join(map(_spark, (catalog, *table.split('.'))))}"
    parts = ", ".join(map(repr, table.split(".")))
    yield (
        "PyIceberg",
        "from pyiceberg.catalog import load_catalog\n"
        f"load_catalog({catalog!r}).load_table(({parts})).scan().to_arrow()",
    )
    if location:
        path = _path(location)
        yield (
            "DuckDB",
            f"SET unsafe_enable_version_guessing = true;\nSELECT * FROM iceberg_scan({_quoted(path)})",
        )


def _parquet(destination: str, config: Config) -> Iterator[tuple[str, str]]:
    """By the commits, as docs/parquet.md says: what is not committed is not read."""
    place = destination.rstrip("/")
    endpoint = next(
        (one.get("endpoint", "") for prefix, one in config.storages.items() if place.startswith(prefix)), ""
    )
    path, remote = _path(place), not place.startswith("file:")
    data = _function(f"{place}/**/*.parquet", endpoint, ("file", "s3"), ", Parquet")
    form = ", JSONEachRow, 'key String, generation UInt32, tombstone Bool, files Array(Tuple(path String))'"
    commits = _function(f"{place}/_calve/commits/*.json", endpoint, ("file", "s3"), form)
    if data and commits:
        yield (
            "ClickHouse",
            f"SELECT * FROM {data}\nWHERE concat('{'s3' if remote else 'file'}://', _path) IN (\n"
            "    SELECT arrayJoin(argMax(arrayMap(file -> file.path, files), generation))\n"
            f"    FROM {commits}\n    WHERE NOT tombstone GROUP BY key)",
        )
    files = "file.path" if remote else "file.path[8:]"
    yield (
        "DuckDB",
        f"SET VARIABLE files = (SELECT list({files}) FROM (\n"
        "    SELECT unnest(max_by(files, generation)) AS file\n"
        f"    FROM read_json({_quoted(f'{path}/_calve/commits/*.json')}) WHERE NOT tombstone GROUP BY key));\n"
        "SELECT * FROM read_parquet(getvariable('files'))",
    )


def _function(location: str, endpoint: str, names: tuple[str, str], more: str = "") -> str:
    """ClickHouse's table function for a folder or an object storage; "" for another."""
    local, remote = names
    parts = urlsplit(location)
    if parts.scheme in ("", "file") and location:
        return f"{local}({_quoted(_path(location))}{more})"
    if parts.scheme not in ("s3", "s3a"):
        return ""
    key = parts.path.lstrip("/")
    base = (
        f"{endpoint.rstrip('/')}/{parts.netloc}" if endpoint else f"https://{parts.netloc}.s3.amazonaws.com"
    )
    return f"{remote}({_quoted(f'{base}/{key}')}{more})"


def _path(location: str) -> str:
    return unquote(urlsplit(location).path) if location.startswith("file:") else location


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _spark(name: str) -> str:
    return name if name.isidentifier() else "`" + name.replace("`", "``") + "`"
