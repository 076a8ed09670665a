"""A real Prometheus for tests, and its promtool: Debian's package `prometheus`."""

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from support.programs import Program, free_ports, listening, missing

_INSTALL = "apt-get install prometheus"


class Prometheus:
    """One running server, which scrapes what it was told to, each second."""

    def __init__(self, program: Program, port: int) -> None:
        self._program = program
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=30, trust_env=False)

    def ask(self, path: str, **parameters: str) -> Any:
        answer = self._client.get(path, params=parameters).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    def values(self, query: str) -> list[tuple[dict[str, str], float]]:
        found = self.ask("query", query=query)["result"]
        return [(one["metric"], float(one["value"][1])) for one in found]

    def wait_for(self, query: str) -> list[tuple[dict[str, str], float]]:
        """Its answer, once there is one."""
        self._program.wait_ready(lambda: bool(self.values(query)))
        return self.values(query)


@contextmanager
def prometheus(folder: Path, targets: Mapping[str, str], rules: Path) -> Iterator[Prometheus]:
    """`targets`: addresses by job."""
    jobs = "".join(
        f"  - job_name: {job}\n    static_configs: [{{targets: ['{address}']}}]\n"
        for job, address in targets.items()
    )
    config = folder / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n"
        f"rule_files: ['{rules}']\nscrape_configs:\n{jobs}"
    )
    (port,) = free_ports(1)
    command = [
        _installed("prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    program = Program("prometheus", command, folder / "prometheus.log")
    try:
        program.wait_ready(lambda: listening(port))
        made = Prometheus(program, port)
        program.wait_ready(lambda: _answers(made))
        yield made
    finally:
        program.kill()


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [_installed("promtool"), *arguments], capture_output=True, text=True, timeout=120, check=False
    )


def _answers(made: Prometheus) -> bool:
    try:
        return made.ask("query", query="1") is not None
    except (httpx.HTTPError, AssertionError, ValueError):
        return False


def _installed(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise missing(name, _INSTALL)
    return found
