"""PyIceberg's Arrow file system with an authority of one's own.

PyIceberg hands on everything but the file of certificates; Arrow itself takes it.
"""

from collections.abc import Mapping
from typing import Any

from pyarrow.fs import FileSystem, S3FileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO

from calve.lake.access.resolve import CA_FILE

IMPLEMENTATION = "calve.lake.file_io.TrustingFileIO"
_COPIED = {
    "s3.endpoint": "endpoint_override",
    "s3.access-key-id": "access_key",
    "s3.secret-access-key": "secret_key",
    "s3.session-token": "session_token",
    "s3.region": "region",
    "s3.proxy-uri": "proxy_options",
    "s3.role-arn": "role_arn",
    "s3.role-session-name": "session_name",
    CA_FILE: "tls_ca_file_path",
}


def trusting(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The properties, with this file access in them where an authority is named."""
    chosen = {"py-io-impl": IMPLEMENTATION} if properties.get(CA_FILE) else {}
    return chosen | dict(properties)


class TrustingFileIO(PyArrowFileIO):
    """What S3 answers with is checked against `s3.ca-file`."""

    def _initialize_s3_fs(self, netloc: str | None) -> FileSystem:
        given = self.properties
        options: dict[str, Any] = {ours: given[name] for name, ours in _COPIED.items() if given.get(name)}
        for name in ("connect", "request"):
            if seconds := given.get(f"s3.{name}-timeout"):
                options[f"{name}_timeout"] = float(seconds)
        for name, option in (("force-virtual-addressing", "force_virtual_addressing"), ("anonymous",) * 2):
            options[option] = str(given.get(f"s3.{name}", "false")).lower() == "true"
        return S3FileSystem(**options)
