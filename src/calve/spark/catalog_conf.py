"""One `[catalog.…]` entry for two clients: PyIceberg's properties as Spark's Iceberg catalog reads them.

Pure. A property that both name alike is handed on; what only one of them has is translated or left out. The catalog keeps its name: SQL catalogs store it in every row.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from calve.destination.names import catalog_type, property_text
from calve.model.errors import UsageError
from calve.objects import azure_access, gcs_access
from calve.objects.azure_access import AzureAccess
from calve.objects.credentials import S3Access
from calve.objects.uri import AZURE, GCS, S3, Uri, kind_of
from calve.spark.java import (
    ICEBERG_AWS,
    ICEBERG_AZURE,
    ICEBERG_GCP,
    POSTGRES_JDBC,
    SQLITE_JDBC,
    Jar,
    iceberg_spark,
)

SPARK_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
S3_FILE_IO = "org.apache.iceberg.aws.s3.S3FileIO"
GCS_FILE_IO = "org.apache.iceberg.gcp.gcs.GCSFileIO"
AZURE_FILE_IO = "org.apache.iceberg.azure.adlsv2.ADLSFileIO"
_BUSY_MS = 15_000  # SQLite: how long a writer waits for another

# Of Python's client only.
_NOT_HANDED_ON = (
    "type", "uri", "py-io-impl", "py-catalog-impl", "echo", "pool_pre_ping", "init_catalog_tables",
    "s3.connect-timeout", "s3.request-timeout", "s3.region", "s3.force-virtual-addressing", "s3.proxy-uri",
    "s3.role-arn", "s3.role-session-name", "s3.anonymous", "s3.profile-name", "client.profile-name",
    "ca_file", "ca-file", "s3.ca-file", *azure_access.NAMES.values(), azure_access.CONNECTION,
    *(set(gcs_access.NAMES.values()) - {"gcs.oauth2.token", "gcs.service.host"}),
)  # fmt: skip
_OURS = "calve."
# Python's client always asks for the keys of a table's files; Java's asks if this header says so.
_ASKS_FOR_KEYS = "header.X-Iceberg-Access-Delegation"


def spark_catalog(name: str, properties: Mapping[str, Any], location: str = "") -> dict[str, str]:
    """Spark's configuration for a catalog. `location` is a table's: it tells where the files are when
    the catalog's warehouse does not."""
    given = {key: property_text(value) for key, value in properties.items() if not isinstance(value, Mapping)}
    conf = {
        key: value for key, value in given.items() if key not in _NOT_HANDED_ON and not key.startswith(_OURS)
    }
    conf |= _connection(name, given)
    conf |= _files(given, location)
    conf["cache-enabled"] = "false"  # others write to these tables while we look
    prefix = f"spark.sql.catalog.{name}"
    return {prefix: SPARK_CATALOG} | {f"{prefix}.{key}": value for key, value in conf.items()}


def jars_for(conf: Mapping[str, str]) -> tuple[Jar, ...]:
    """What the JVM needs beside Spark's own for that configuration."""
    needed = [iceberg_spark()]
    values = set(conf.values())
    if any(value.startswith("jdbc:sqlite:") for value in values):
        needed.append(SQLITE_JDBC)
    if any(value.startswith("jdbc:postgresql:") for value in values):
        needed.append(POSTGRES_JDBC)
    if S3_FILE_IO in values or any(key.endswith(".type") and conf[key] == "glue" for key in conf):
        needed.append(ICEBERG_AWS)
    if GCS_FILE_IO in values:
        needed.append(ICEBERG_GCP)
    if AZURE_FILE_IO in values:
        needed.append(ICEBERG_AZURE)
    return tuple(needed)


def certificates_for(properties: Mapping[str, Any]) -> tuple[str, ...]:
    """Files with the authorities that the JVM must trust beside its own."""
    ssl = properties.get("ssl")
    named = [properties.get(key) for key in ("ca_file", "ca-file", "s3.ca-file")]
    named.append(ssl.get("cabundle") if isinstance(ssl, Mapping) else None)
    return tuple(dict.fromkeys(str(file) for file in named if file))


def _connection(name: str, given: Mapping[str, str]) -> dict[str, str]:
    uri = given.get("uri", "")
    match catalog_type(given):
        case "sql":
            return _jdbc(name, uri)
        case "rest":
            asks = given.get(_ASKS_FOR_KEYS, "vended-credentials")
            return {"type": "rest", "uri": uri, _ASKS_FOR_KEYS: asks}
        case "hive":
            return {"type": "hive", "uri": uri}
        case "glue":
            return {"type": "glue"}
        case other:
            raise UsageError(
                f"catalog {name}: Spark has no Iceberg catalog of type {other or 'unknown'!r}",
                code="catalog_not_for_spark",
                hint="tables of sql, rest, hive and glue catalogs can be optimized",
            )


def _jdbc(name: str, uri: str) -> dict[str, str]:
    parts = urlsplit(uri)
    base = {"type": "jdbc", "jdbc.schema-version": "V1"}
    match parts.scheme.partition("+")[0]:
        case "sqlite":
            path = uri.partition(":///")[2].partition("?")[0]
            return base | {"uri": f"jdbc:sqlite:{path}?busy_timeout={_BUSY_MS}"}
        case "postgresql" | "postgres":
            query = f"?{parts.query}" if parts.query else ""
            host = f"{parts.hostname or 'localhost'}:{parts.port or 5432}"
            found = base | {"uri": f"jdbc:postgresql://{host}{parts.path}{query}"}
            # Apart from the URL, which errors and logs print.
            if parts.username:
                found["jdbc.user"] = unquote(parts.username)
            if parts.password:
                found["jdbc.password"] = unquote(parts.password)
            return found
        case other:
            raise UsageError(
                f"catalog {name}: Spark cannot open a {other} database",
                code="catalog_not_for_spark",
                hint="tables of SQL catalogs in SQLite or PostgreSQL can be optimized",
            )


def _files(given: Mapping[str, str], location: str) -> dict[str, str]:
    """The one place that turns access to object storage into Spark's configuration. Keys have the same
    names in both clients."""
    warehouse = given.get("warehouse", "")
    kinds = (kind_of(warehouse), kind_of(location))
    if AZURE in kinds:
        return _azure(given, location if kinds[1] == AZURE else warehouse)
    if GCS in kinds:
        return {"io-impl": GCS_FILE_IO}
    if S3 not in kinds:
        return {}
    access = S3Access.of(given)
    return {
        "io-impl": S3_FILE_IO,
        "client.region": access.some_region,
        "s3.path-style-access": "false" if access.virtual_addressing else "true",
    }


def _azure(given: Mapping[str, str], location: str) -> dict[str, str]:
    """Iceberg's keys there carry the host that locations name. A service principal is the JVM's environment's."""
    authority = Uri.parse(location).bucket
    _, at, host = authority.partition("@")
    if not at:
        raise UsageError(
            f"Spark cannot read {location}: it names no storage account",
            code="catalog_not_for_spark",
            hint="tables at abfss://container@account.dfs.core.windows.net/path can be optimized",
        )
    access = AzureAccess.of(given, authority)
    found = {
        "io-impl": AZURE_FILE_IO,
        f"adls.connection-string.{host}": access.endpoint,
        f"adls.sas-token.{host}": "" if access.account_key else access.sas_token,
        "adls.auth.shared-key.account.name": access.account if access.account_key else "",
        "adls.auth.shared-key.account.key": access.account_key,
    }
    return {name: value for name, value in found.items() if value}
