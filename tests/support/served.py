"""A real `calve serve` for tests, on a free port: a program of its own, or a thread of this one."""

import re
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from calve.app.config import load_config
from calve.app.token_file import read_token
from calve.http.server import Endpoint, Front, serve
from support.programs import Program

_ADDRESS = re.compile(r"calve serves (\S+);")


class Served:
    """Its address, its host's token, and clients for both."""

    def __init__(
        self, folder: Path, options: Sequence[str] = (), settings: str = "", *, python: str = sys.executable
    ) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "calve.toml"
        if not config.exists():
            config.write_text(settings)
        self.log = folder / "serve.log"
        command = [
            python,
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


@contextmanager
def served_here(folder: Path, fronts: Sequence[Front] = (), port: int = 0, **options: Any) -> Iterator[str]:
    """The address of a server over a folder with a configuration. A thread: a test can afford one of its own."""
    config = load_config(folder / "calve.toml", environ={})
    answers: Future[Endpoint] = Future()

    def run() -> None:
        try:
            serve(
                config, replace(config.serve, port=port, **options), fronts=fronts, ready=answers.set_result
            )
        except BaseException as error:
            if answers.done():
                raise
            answers.set_exception(error)

    thread = threading.Thread(target=run, name="calve-serve")
    thread.start()
    address = answers.result(60)
    try:
        yield address.url
    finally:
        address.stop()
        thread.join(60)
        assert not thread.is_alive()
