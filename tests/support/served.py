"""A real `calve serve` for tests: a program of its own on a free port, over a folder of its own."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx

from calve.app.token_file import read_token
from support.programs import Program

_ADDRESS = re.compile(r"calve serves (\S+);")


class Served:
    """Its address, its host's token, and clients for both."""

    def __init__(self, folder: Path, options: Sequence[str] = (), settings: str = "") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "calve.toml"
        if not config.exists():
            config.write_text(settings)
        self.log = folder / "serve.log"
        command = [
            sys.executable,
            "-m",
            "calve.cli",
            "--config",
            str(config),
            "serve",
            "--port",
            "0",
            *options,
        ]
        self.program = Program("calve serve", command, self.log)
        self.program.wait_ready(lambda: "the token of this host" in self.log.read_text())
        found = _ADDRESS.search(self.log.read_text())
        assert found
        self.url = found[1]
        self.port = int(re.findall(r":(\d+)", self.url)[0])
        self.token = read_token(folder / "calve.token")

    def client(self, token: str | None = None, **options: object) -> httpx.Client:
        """With the host's token, another one, or none (`""`)."""
        token = self.token if token is None else token
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=30, trust_env=False, **options)  # type: ignore[arg-type]

    def close(self) -> None:
        self.program.kill()
