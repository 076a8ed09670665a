"""How containers of Azure are reached: which account, which keys, found once (see `credentials`).

A location names container and account, `abfss://container@account.dfs.core.windows.net/path`, as every
reader of Iceberg takes it. `az://container/path` is short for it where only Calve reads and writes; the
account is then the configuration's.

The order: the configuration, then a connection string, a key or a signature in AZURE_STORAGE_*, then a
service principal in AZURE_*. What is found nowhere stays open: each program asks for the identity of the
machine or the pod that it runs on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from calve.model.errors import PermanentError

# Of `[storage."…"]`, as PyIceberg names them where it has a name.
NAMES = {
    "account": "adls.account-name",
    "account_key": "adls.account-key",
    "sas_token": "adls.sas-token",
    "tenant_id": "adls.tenant-id",
    "client_id": "adls.client-id",
    "client_secret": "adls.client-secret",
    "endpoint": "adls.endpoint",
    "ca_file": "adls.ca-file",
}
CONNECTION = "adls.connection-string"
_AUTHORITY, _SCHEME = "adls.blob-storage-authority", "adls.blob-storage-scheme"
_OF_CONNECTION = {
    "AccountName": "account",
    "AccountKey": "account_key",
    "SharedAccessSignature": "sas_token",
    "BlobEndpoint": "endpoint",
}
_VARIABLES = {
    "account": ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT"),
    "account_key": ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCESS_KEY"),
    "sas_token": ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY"),
    "tenant_id": ("AZURE_TENANT_ID",),
    "client_id": ("AZURE_CLIENT_ID",),
    "client_secret": ("AZURE_CLIENT_SECRET",),
    "endpoint": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
# The public cloud, China's, the government's; private endpoints; OneLake.
_CLOUDS = (
    ".core.windows.net",
    ".core.chinacloudapi.cn",
    ".core.usgovcloudapi.net",
    ".storage.azure.net",
    ".fabric.microsoft.com",
)
_KEYS = ("account_key", "sas_token", "client_secret")


@dataclass(frozen=True, kw_only=True)
class AzureAccess:
    """How the containers of one account are reached. Empty: not given."""

    account: str = ""
    account_key: str = field(default="", repr=False)
    sas_token: str = field(default="", repr=False)
    tenant_id: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    endpoint: str = ""  # of the account's blobs
    ca_file: str = ""

    @classmethod
    def of(cls, properties: Mapping[str, Any], authority: str = "") -> Self:
        """From PyIceberg's properties. `authority` is a location's: `container@account.…`, or a container.
        PermanentError (`storage_account`) if the keys are another account's, or none is named."""
        given = {ours: str(properties.get(theirs) or "") for ours, theirs in NAMES.items()}
        for name, value in _of_connection(str(properties.get(CONNECTION) or "")).items():
            given[name] = given[name] or value
        host = authority.partition("@")[2]
        named = host.partition(".")[0]
        if named and given["account"] not in ("", named):
            raise PermanentError(
                f"{authority} is of the storage account {named}, and the keys are of {given['account']}",
                code="storage_account",
                hint='give that location a [storage."…"] of its own, or a catalog the account of its tables',
            )
        given["account"] = given["account"] or named
        if not given["account"]:
            raise PermanentError(
                f"no storage account for {authority or 'Azure'}",
                code="storage_account",
                hint="write abfss://container@account.dfs.core.windows.net/path, or give the account",
            )
        given["sas_token"] = given["sas_token"] or _lent(properties, given["account"], host)
        given["endpoint"] = given["endpoint"] or _endpoint(properties, given["account"], host)
        return cls(**given)

    @property
    def credential_type(self) -> str:
        """As obstore names it: of several, those that the search found, whatever the environment has."""
        if self.account_key:
            return "access_key"
        if self.sas_token:
            return "sas_token"
        return "client_secret" if self.client_secret else "auto"


def completed(properties: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """PyIceberg's properties, with what the environment has. Keys come from one of the two, never mixed."""
    found = dict(properties)
    given = _of_connection(str(found.get(CONNECTION) or ""))
    has_keys = any(found.get(NAMES[name]) or given.get(name) for name in _KEYS)
    variables = {name: _first(environ, names) for name, names in _VARIABLES.items()}
    variables = _of_connection(environ.get("AZURE_STORAGE_CONNECTION_STRING", "")) | {
        name: value for name, value in variables.items() if value
    }
    keys = ("tenant_id", "client_id", *_KEYS)
    for name, value in (variables | given).items():
        if name in given or name not in keys or not has_keys:
            found[NAMES[name]] = found.get(NAMES[name]) or value
    return found


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((environ[name] for name in names if environ.get(name)), "")


def _of_connection(text: str) -> dict[str, str]:
    """A connection string, `AccountName=…;AccountKey=…`, as the portal shows it."""
    parts = dict(part.split("=", 1) for part in text.split(";") if "=" in part)
    found = {ours: parts[theirs] for theirs, ours in _OF_CONNECTION.items() if parts.get(theirs)}
    if "endpoint" not in found and found.get("account") and parts.get("EndpointSuffix"):
        scheme = parts.get("DefaultEndpointsProtocol", "https")
        found["endpoint"] = f"{scheme}://{found['account']}.blob.{parts['EndpointSuffix']}"
    return found


def _lent(properties: Mapping[str, Any], account: str, host: str) -> str:
    """A signature that a REST catalog lends: the account, or its host, is part of the name."""
    names = (f"{NAMES['sas_token']}.{one}" for one in (host, account) if one)
    return next((str(properties[name]) for name in names if properties.get(name)), "")


def _endpoint(properties: Mapping[str, Any], account: str, host: str) -> str:
    """Where the account's blobs are, if not at the public cloud's address."""
    if authority := str(properties.get(_AUTHORITY) or ""):
        scheme = str(properties.get(_SCHEME) or "https")
        # As Arrow reads it: a domain that the account's name is put before, or a server of many accounts.
        if authority.startswith("."):
            return f"{scheme}://{account}{authority}"
        return f"{scheme}://{authority}/{account}"
    if not host:
        return ""
    if not host.endswith(_CLOUDS):  # a location may come from data: its host gets no keys unasked (T9)
        raise PermanentError(
            f"{host} is not an address of Azure",
            code="storage_account",
            hint="write abfss://container@account.dfs.core.windows.net/path, or give the endpoint",
        )
    return f"https://{host.replace('.dfs.', '.blob.', 1)}"
