"""A real Azure Blob Storage on the loopback: Azurite, Microsoft's own emulator, in memory."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import obstore
from obstore.store import AzureStore

from calve.objects.azure import obstore_config
from calve.objects.azure_access import AzureAccess
from support.programs import Program, free_ports, listening, missing

VERSION = "3.37.0"
ACCOUNT = "devstoreaccount1"
HOST = f"{ACCOUNT}.dfs.core.windows.net"
# The one that every emulator has: no secret.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_ROOT = Path(__file__).parents[2]
_CACHE = Path(os.environ.get("CALVE_CACHE") or _ROOT / ".cache")
_MAIN = _CACHE / f"azurite-{VERSION}/node_modules/azurite/dist/src/blob/main.js"


@dataclass(frozen=True, kw_only=True)
class Azurite:
    port: int
    program: Program

    @property
    def authority(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def endpoint(self) -> str:
        return f"http://{self.authority}/{ACCOUNT}"

    def properties(self) -> dict[str, str]:
        """For a catalog's entry."""
        return {"adls.account-name": ACCOUNT, "adls.account-key": KEY, "adls.endpoint": self.endpoint}

    def create_container(self, name: str) -> None:
        """As an application of Azure's own would; ours never makes one."""
        from support.azure_requests import create_container

        create_container(self.endpoint, ACCOUNT, KEY, name)

    def container(self, name: str) -> AzureStore:
        """For a look from outside."""
        config = obstore_config(AzureAccess.of(self.properties()))
        return AzureStore(name, config=config, client_options={"allow_http": True})

    def names(self, container: str) -> list[str]:
        return sorted(item["path"] for batch in obstore.list(self.container(container)) for item in batch)


@contextmanager
def azurite(folder: Path) -> Iterator[Azurite]:
    node = shutil.which("node")
    if node is None or not _MAIN.exists():
        raise missing("Azurite", "scripts/setup tests")
    (port,) = free_ports(1)
    options = [f"--blobPort={port}", "--blobHost=127.0.0.1", "--inMemoryPersistence"]
    options += ["--disableTelemetry", "--skipApiVersionCheck", "--silent"]
    program = Program("Azurite", [node, str(_MAIN), *options], folder / "output.log")
    try:
        program.wait_ready(lambda: listening(port))
        yield Azurite(port=port, program=program)
    finally:
        program.kill()
