"""Azure Blob Storage and Data Lake Storage Gen2, which are one service: the Blob API serves both."""

from collections.abc import Mapping
from typing import Any

from obstore.store import AzureStore

from calve.objects.azure_access import AzureAccess
from calve.objects.remote import RemoteObjects
from calve.objects.storage import Bounds, UploadCleanup
from calve.objects.uri import Uri


class AzureObjects(RemoteObjects):
    def __init__(self, place: str, bounds: Bounds, properties: Mapping[str, str]) -> None:
        self._authority = Uri.parse(f"{place}/").bucket
        self._access = AzureAccess.of(properties, self._authority)
        super().__init__(place, bounds, ca_file=self._access.ca_file)

    def _open(self, client: dict[str, Any], retries: dict[str, Any]) -> AzureStore:
        access = self._access
        client |= {"allow_http": access.endpoint.startswith("http://")}
        return AzureStore(
            self._authority.partition("@")[0],
            config=obstore_config(access),
            client_options=client,
            retry_config=retries,
        )

    def upload_cleanup(self, prefix_uri: str) -> UploadCleanup:
        return UploadCleanup(
            automatic=True, words="Azure removes the blocks of incomplete uploads after a week"
        )


def obstore_config(access: AzureAccess) -> dict[str, Any]:
    """The one place that turns access into obstore's configuration."""
    config = {
        "account_name": access.account,
        "account_key": access.account_key,
        "sas_key": access.sas_token.removeprefix("?"),
        "tenant_id": access.tenant_id,
        "client_id": access.client_id,
        "client_secret": access.client_secret,
        "endpoint": access.endpoint,
    }
    return {name: value for name, value in config.items() if value} | {
        "credential_type": access.credential_type
    }
