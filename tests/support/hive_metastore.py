"""A real Hive metastore on the loopback, of two versions: the one that PySpark brings along, which compares the metadata
file in a change, and 3.1.3, which does not."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from calve.spark.java import Jar, resolve
from support.programs import Program, free_ports, listening

# Every version needs it, and PySpark has none.
_COLLECTIONS = Jar(
    group="commons-collections",
    artifact="commons-collections",
    version="3.2.2",
    sha256="eeeae917917144a68a741d4c0dff66aa5c5c5fd85593ff217bced3fc8ca783b8",
)
_HIVE_3 = (
    Jar(
        group="org.apache.hive",
        artifact="hive-standalone-metastore",
        version="3.1.3",
        sha256="779d11d856d9f41b5f78658fdf7ddf1626f03c7ae5d808582484c3744597a1f3",
    ),
    Jar(
        group="org.apache.thrift",
        artifact="libthrift",
        version="0.9.3",
        sha256="bca5e8cdee1e0fbf563de7d41c452385e7bed69723fa28225a9ce718a8ee3419",
    ),
)
VERSIONS = {"2.3.10": (_COLLECTIONS,), "3.1.3": (*_HIVE_3, _COLLECTIONS)}


@dataclass(frozen=True, kw_only=True)
class HiveMetastore:
    port: int
    folder: Path
    version: str
    program: Program

    @property
    def uri(self) -> str:
        return f"thrift://127.0.0.1:{self.port}"

    def properties(self, uri: str = "") -> dict[str, str]:
        """For a catalog's entry; another uri where something stands in front."""
        old = {"hive.hive2-compatible": "true"} if self.version.startswith("2") else {}
        return {"type": "hive", "uri": uri or self.uri, "warehouse": f"file://{self.folder}/warehouse"} | old


@contextmanager
def hive_metastore(folder: Path, version: str) -> Iterator[HiveMetastore]:
    jars = [str(resolve(jar)) for jar in VERSIONS[version]]
    (port,) = free_ports(1)
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "support.hive_metastore_server", str(port), str(folder), *jars]
    program = Program(f"Hive's metastore {version}", command, folder / "output.log")
    try:
        program.wait_ready(lambda: listening(port), seconds=120)
        yield HiveMetastore(port=port, folder=folder, version=version, program=program)
    finally:
        program.kill()
