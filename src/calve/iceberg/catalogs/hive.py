"""PyIceberg's Hive catalog, with calls that end, a connection for each, and a change that is refused if the lock was lost.

PyIceberg 0.12 gives its Thrift socket no timeout, and lets all threads share one transport. Its commits rest on
a lock, which a metastore takes away after some minutes of silence: a program that was stopped meanwhile
would then overwrite the commits of others. So the change also carries the metadata file that was read. Metastores with
HIVE-26882 (2.3.10, 4.0 and newer) compare it in the same transaction; older ones, such as 3.1.3, ignore it.
"""

from collections.abc import Mapping
from threading import local
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import EnvironmentContext, LockState, MetaException, UnlockRequest
from hive_metastore.ttypes import Table as HiveTable
from pyiceberg.catalog.hive import (
    HIVE_KERBEROS_AUTH,
    HIVE_KERBEROS_AUTH_DEFAULT,
    HIVE_KERBEROS_SERVICE_NAME,
    HIVE_KERBEROS_SERVICE_NAME_DEFAULT,
    PROP_METADATA_LOCATION,
    PROP_PREVIOUS_METADATA_LOCATION,
    HiveCatalog,
    _HiveClient,
)
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.typedef import Identifier
from pyiceberg.utils.properties import property_as_bool
from thrift.protocol import TBinaryProtocol
from thrift.transport import TSocket, TTransport

from calve.iceberg.catalogs.guards import CommitGuard
from calve.model.limits import Limits

_MODIFIED = "has been modified. The parameter value for key"  # a metastore's words


class BoundedHiveCatalog(HiveCatalog):
    """Opens no connection before its first call."""

    def __init__(self, name: str, limits: Limits, properties: Mapping[str, str]) -> None:
        super().__init__(name, **properties)
        self._client = Connections(properties, limits)  # type: ignore[assignment]

    def guard(self, identifier: Identifier) -> CommitGuard:
        """The table as it is, with a metadata file as expected that is not its own. Under its lock, since a metastore
        that does not compare takes the change."""
        database, name = self.identifier_to_database_and_table(identifier)
        with self._client as client:
            lock = client.lock(self._create_lock_request(database, name))
            # If we die here, the metastore takes the lock away.
            try:
                if lock.state != LockState.ACQUIRED:
                    self._wait_for_lock(database, name, lock.lockid, client)
                table = self._get_hive_table(client, database, name)
                table.parameters[PROP_PREVIOUS_METADATA_LOCATION] = "calve doctor"
                client.alter_table_with_environment_context(
                    database, name, table, EnvironmentContext(properties={})
                )
            except CommitFailedException:
                return CommitGuard.VERSION
            finally:
                client.unlock(UnlockRequest(lockid=lock.lockid))
        return CommitGuard.LOCK


class Connections:
    """`with connections as client:`, for any number of threads. Several metastores are tried in their order."""

    def __init__(self, properties: Mapping[str, str], limits: Limits) -> None:
        self._properties, self._limits = properties, limits
        self._open = local()

    def __enter__(self) -> Client:
        *others, last = (uri.strip() for uri in self._properties["uri"].split(","))
        for uri in others:
            try:
                return self._entered(uri)
            except (TTransport.TTransportException, OSError):
                continue
        return self._entered(last)

    def _entered(self, uri: str) -> Client:
        connection = _Connection(uri, self._properties, self._limits)
        client = connection.__enter__()
        self._stack().append(connection)
        return client

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack().pop().__exit__(kind, error, trace)

    def _stack(self) -> list["_Connection"]:
        if not hasattr(self._open, "stack"):
            self._open.stack = []
        stack: list[_Connection] = self._open.stack
        return stack


class _Connection(_HiveClient):
    """One, bounded."""

    def __init__(self, uri: str, properties: Mapping[str, str], limits: Limits) -> None:
        self._limits = limits
        super().__init__(
            uri,
            properties.get("ugi"),
            property_as_bool(dict(properties), HIVE_KERBEROS_AUTH, HIVE_KERBEROS_AUTH_DEFAULT),
            properties.get(HIVE_KERBEROS_SERVICE_NAME, HIVE_KERBEROS_SERVICE_NAME_DEFAULT),
        )

    def _init_thrift_transport(self) -> Any:
        address = urlsplit(self._uri)
        self._socket = TSocket.TSocket(address.hostname, address.port)
        self._socket.setTimeout(self._limits.connect_seconds * 1000)
        if self._kerberos_auth:
            service = self._kerberos_service_name
            return TTransport.TSaslClientTransport(self._socket, host=address.hostname, service=service)
        return TTransport.TBufferedTransport(self._socket)

    def _client(self) -> Client:
        self._socket.setTimeout(self._limits.call_seconds * 1000)
        client = _CheckingClient(TBinaryProtocol.TBinaryProtocol(self._transport))
        if self._ugi:
            client.set_ugi(*self._ugi)
        return client


class _CheckingClient(Client):  # type: ignore[misc]  # it has no types
    """Changes a table's metadata file only if it is still the one that was read, where the metastore can tell."""

    def alter_table_with_environment_context(
        self, dbname: str, tbl_name: str, new_tbl: HiveTable, environment_context: EnvironmentContext
    ) -> None:
        read = new_tbl.parameters.get(PROP_PREVIOUS_METADATA_LOCATION)
        if read and (dbname, tbl_name) == (new_tbl.dbName, new_tbl.tableName):  # not when it is renamed
            environment_context.properties = environment_context.properties | {
                "expected_parameter_key": PROP_METADATA_LOCATION,
                "expected_parameter_value": read,
            }
        try:
            super().alter_table_with_environment_context(dbname, tbl_name, new_tbl, environment_context)
        except MetaException as cause:
            if _MODIFIED not in str(cause.message):
                raise
            raise CommitFailedException(f"{dbname}.{tbl_name} was changed by another commit") from cause
