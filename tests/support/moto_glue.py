"""Glue on the loopback, by moto: its calls, and not its safety, since it does not check versions."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.catalog_libraries import import_them
from support.programs import Program, free_ports, listening

SECRET = "not-a-secret-of-anybody"


@dataclass(frozen=True, kw_only=True)
class MotoGlue:
    port: int
    program: Program

    def properties(self, warehouse: str) -> dict[str, str]:
        """For a catalog's entry."""
        return {
            "type": "glue",
            "warehouse": warehouse,
            "glue.endpoint": f"http://127.0.0.1:{self.port}",
            "glue.region": "eu-west-1",
            "glue.access-key-id": "calve-test",
            "glue.secret-access-key": SECRET,
        }


@contextmanager
def moto_glue(folder: Path) -> Iterator[MotoGlue]:
    libraries = import_them()
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    program = Program("moto", command, folder / "output.log", {"PYTHONPATH": str(libraries)})
    try:
        program.wait_ready(lambda: listening(port))
        yield MotoGlue(port=port, program=program)
    finally:
        program.kill()
