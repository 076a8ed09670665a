"""Google Cloud Storage, by its XML API."""

from collections.abc import Mapping
from typing import Any

from obstore.store import GCSStore

from calve.objects.gcs_access import GcsAccess
from calve.objects.remote import RemoteObjects
from calve.objects.storage import Bounds, UploadCleanup
from calve.objects.uri import Uri


class GcsObjects(RemoteObjects):
    def __init__(self, place: str, bounds: Bounds, properties: Mapping[str, str]) -> None:
        self._access = GcsAccess.of(properties)
        super().__init__(place, bounds, ca_file=self._access.ca_file)

    def _open(self, client: dict[str, Any], retries: dict[str, Any]) -> GCSStore:
        client |= {"allow_http": self._access.endpoint.startswith("http://")}
        return GCSStore(
            Uri.parse(f"{self._place}/").bucket,
            config=obstore_config(self._access),
            client_options=client,
            retry_config=retries,
        )

    def upload_cleanup(self, prefix_uri: str) -> UploadCleanup:
        bucket = Uri.parse(prefix_uri).bucket
        rule = '{"rule": [{"action": {"type": "AbortIncompleteMultipartUpload"}, "condition": {"age": 2}}]}'
        return UploadCleanup(
            automatic=None,
            words="whether incomplete multipart uploads are aborted is not asked of Google Cloud Storage",
            remedy=f"make sure that the bucket has such a rule: echo '{rule}' > rule.json &&"
            f" gcloud storage buckets update gs://{bucket} --lifecycle-file=rule.json"
            " (it replaces the rules that the bucket has: add yours to it)",
        )


def obstore_config(access: GcsAccess) -> dict[str, Any]:
    """The one place that turns access into obstore's configuration."""
    config = {
        "service_account_key": access.service_account_key,
        "bearer_token": access.token,
        "base_url": access.endpoint,
    }
    return {name: value for name, value in config.items() if value}
