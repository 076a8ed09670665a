"""S3 and what speaks its protocol."""

from collections.abc import Mapping
from typing import Any

from obstore.store import S3Store

from calve.objects import lifecycle
from calve.objects.credentials import S3Access
from calve.objects.remote import RemoteObjects
from calve.objects.storage import Bounds, UploadCleanup
from calve.objects.uri import Uri


class S3Objects(RemoteObjects):
    def __init__(self, place: str, bounds: Bounds, properties: Mapping[str, str]) -> None:
        self._access = S3Access.of(properties)
        self._deletes_in_bulk = True
        super().__init__(place, bounds, ca_file=self._access.ca_file)

    def _open(self, client: dict[str, Any], retries: dict[str, Any]) -> S3Store:
        access = self._access
        client |= {"allow_http": access.endpoint.startswith("http://")}
        if access.proxy:
            client["proxy_url"] = access.proxy
        return S3Store(
            Uri.parse(f"{self._place}/").bucket,
            config=obstore_config(access) | {"disable_bulk_delete": not self._deletes_in_bulk},
            client_options=client,
            retry_config=retries,
        )

    def _deleting_singly(self) -> S3Store:
        self._deletes_in_bulk = False
        return self._opened()

    def upload_cleanup(self, prefix_uri: str) -> UploadCleanup:
        return lifecycle.upload_cleanup(Uri.parse(prefix_uri), self._access, self._bounds)


def obstore_config(access: S3Access) -> dict[str, Any]:
    """The one place that turns access into obstore's configuration."""
    config: dict[str, Any] = {
        "endpoint": access.endpoint,
        "access_key_id": access.access_key_id,
        "secret_access_key": access.secret_access_key,
        "session_token": access.session_token,
        "role_arn": access.role_arn,
        "role_session_name": access.role_session_name,
        "server_side_encryption": access.encryption,
        "sse_kms_key_id": access.kms_key_id,
    }
    config = {name: value for name, value in config.items() if value}
    if access.access_key_id:
        # Otherwise a token of the environment, which belongs to other keys, is sent along.
        config.setdefault("session_token", "")
    if access.anonymous:
        config["skip_signature"] = True
    return config | {
        "region": access.some_region,
        "virtual_hosted_style_request": access.virtual_addressing,
        "conditional_put": "etag",
    }
