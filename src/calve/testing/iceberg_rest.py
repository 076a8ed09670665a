"""A real Iceberg REST catalog on this machine: Apache's own fixture, over SQLite and a local folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from calve.runner.jars import resolve
from calve.runner.java import java_home
from calve.testing.jars import ICEBERG_REST
from calve.testing.programs import Program, free_ports, listening


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
def apache_rest(folder: Path) -> Iterator[IcebergRest]:
    """Start Apache's REST catalog in `folder`; killed at the end of the block."""
    jar = resolve(ICEBERG_REST)
    (port,) = free_ports(1)
    (folder / "warehouse").mkdir(parents=True, exist_ok=True)
    settings = {
        "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
        "CATALOG_URI": f"jdbc:sqlite:file:{folder / 'catalog.db'}",
        "CATALOG_WAREHOUSE": f"file://{folder / 'warehouse'}",
        "CATALOG_IO__IMPL": "org.apache.iceberg.hadoop.HadoopFileIO",
        "CATALOG_REST_PORT": str(port),
        "CATALOG_JDBC_SCHEMA__VERSION": "V1",
        # One writer at a time, as SQLite has it; the others wait instead of failing.
        "CATALOG_CLIENTS": "1",
    }
    command = [str(java_home() / "bin" / "java"), "-Xmx512m", "-XX:+UseSerialGC", "-jar", str(jar)]
    program = Program("Apache's REST catalog", command, folder / "rest.log", settings)
    try:
        program.wait_ready(lambda: _answers(port), seconds=120)
        yield IcebergRest(port=port, folder=folder)
    finally:
        program.kill()


def _answers(port: int) -> bool:
    if not listening(port):
        return False
    try:
        with urlopen(f"http://127.0.0.1:{port}/v1/config", timeout=5) as response:
            return bool(response.status == 200)
    except (URLError, OSError):
        return False
