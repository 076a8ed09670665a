"""Real Iceberg REST catalogs on this machine, of two makers.

`apache_rest` is Apache's own fixture over SQLite and a local folder, or S3. `seaweed_rest` is SeaweedFS's, over its own table buckets,
which take data and metadata files only: a receipt cannot be put there.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from calve.spark.java import resolve
from support.jars import ICEBERG_REST
from support.programs import Program, free_ports, listening
from support.s3 import Keys, S3Server


@dataclass(frozen=True, kw_only=True)
class IcebergRest:
    """A running server."""

    port: int
    folder: Path

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def properties(self, uri: str = "") -> dict[str, str]:
        """PyIceberg's own names, for a catalog's entry; another uri where a proxy stands in front."""
        return {"type": "rest", "uri": uri or self.uri}


@contextmanager
def apache_rest(
    folder: Path, warehouse: str = "", files: Mapping[str, str] | None = None
) -> Iterator[IcebergRest]:
    """Start Apache's REST catalog in `folder`; killed at the end of the block. With a warehouse in S3,
    `files` are the keys it writes its own metadata with: clients are told none of them."""
    jar = resolve(ICEBERG_REST)
    (port,) = free_ports(1)
    (folder / "warehouse").mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable, "-m", "support.apache_rest_server",
        str(jar), str(port), f"jdbc:sqlite:file:{folder / 'catalog.db'}",
        warehouse or f"file://{folder / 'warehouse'}", str(folder / "files.json"),
    ]  # fmt: skip
    (folder / "files.json").write_text(json.dumps(_java_files(files or {})), encoding="utf-8")
    program = Program("Apache's REST catalog", command, folder / "rest.log")
    try:
        program.wait_ready(lambda: _answers(port), seconds=120)
        yield IcebergRest(port=port, folder=folder)
    finally:
        program.kill()


def _java_files(files: Mapping[str, str]) -> dict[str, str]:
    """PyIceberg's names as Java's S3 client has them; {} for a local folder."""
    if not files:
        return {}
    handed_on = {name: value for name, value in files.items() if name != "s3.region"}
    return handed_on | {
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "client.region": files["s3.region"],
        "s3.path-style-access": "true",
    }


def _answers(port: int) -> bool:
    if not listening(port):
        return False
    try:
        with urlopen(f"http://127.0.0.1:{port}/v1/config", timeout=5) as response:
            return bool(response.status == 200)
    except (URLError, OSError):
        return False


_BUCKET = "tables"


class SeaweedRest(S3Server):
    """The S3 server with its Iceberg catalog on, and one table bucket."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, Keys(), "us-east-1")
        (self.catalog_port,) = free_ports(1)

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.catalog_port}"

    def catalog_properties(self, uri: str = "") -> dict[str, str]:
        """PyIceberg's own names; another uri where a proxy stands in front."""
        return {
            "type": "rest",
            "uri": uri or self.uri,
            "warehouse": f"s3://{_BUCKET}",
            "credential": f"{self.keys.access_key_id}:{self.keys.secret_access_key}",
            "oauth2-server-uri": f"{self.uri}/v1/oauth/tokens",
            **self.properties(),
        }

    def create_table_bucket(self) -> None:
        told = self.shell(f"s3tables.bucket -create -name {_BUCKET} -account calve")
        if "ARN:" not in told:
            raise RuntimeError(f"table bucket {_BUCKET} was not created: {told}")

    def _arguments(self) -> list[str]:
        off, on = "-s3.port.iceberg=0", f"-s3.port.iceberg={self.catalog_port}"
        return [on if argument == off else argument for argument in super()._arguments()]


@contextmanager
def seaweed_rest(folder: Path) -> Iterator[SeaweedRest]:
    """Start SeaweedFS with its REST catalog in `folder`; killed at the end of the block."""
    server = SeaweedRest(folder)
    server.start()
    try:
        server.program.wait_ready(lambda: listening(server.catalog_port))
        server.create_table_bucket()
        yield server
    finally:
        server.kill()
