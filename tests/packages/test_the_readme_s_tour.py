"""What the README tells people to paste works when it is pasted, with Calve as it is installed."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import httpx
import pytest

from support.installed import Installed, outside
from support.programs import Program

ROOT = Path(__file__).resolve().parents[2]
MARK = "<!-- tour: tests/packages runs every line of the next blocks -->"


def tour() -> str:
    after = (ROOT / "README.md").read_text(encoding="utf-8").split(MARK)[1].split("\n## ")[0]
    return "\n".join(re.findall(r"```sh\n(.*?)```", after, re.DOTALL))


@pytest.mark.spark
def test_every_line_of_the_tour_works(installed: Installed, tmp_path: Path) -> None:
    path = f"{installed.bin}{os.pathsep}{os.environ['PATH']}"
    answer = subprocess.run(
        ["sh", "-eu"], input=tour(), cwd=tmp_path, capture_output=True, text=True, timeout=280,
        env=outside() | {"PATH": path},
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert "already exported" in answer.stderr
    assert (tmp_path / "calve-demo" / "calve.toml").exists()
    _the_demo_ends_by_saying_how_to_open_it(answer.stderr, tmp_path, path)


def _the_demo_ends_by_saying_how_to_open_it(said: str, folder: Path, path: str) -> None:
    """The folder that it says, and its last line, pasted: on a free port here, for 8180 may be taken."""
    ending = said.partition("Try next:")[2].partition("See it in a browser, at http://127.0.0.1:8180/")
    there = next(line.strip() for line in ending[0].splitlines() if line.strip().startswith("cd "))
    [last] = [line.strip() for line in ending[2].splitlines() if line.startswith("  ")][:1]
    log = folder / "serve.log"
    served = Program(
        "calve serve",
        ["sh", "-c", f"cd {shlex.quote(str(folder))} && {there} && exec {last}"],
        log,
        {"PATH": path, "CALVE_SERVE__PORT": "0"},
    )
    try:
        served.wait_ready(lambda: "calve serves " in log.read_text())
        url = log.read_text().partition("calve serves ")[2].partition(";")[0]
        page = httpx.get(f"{url}/processes", headers={"Accept": "text/html"}, trust_env=False, timeout=30)
        assert page.status_code == 200 and "lake.demo.events" in page.text
    finally:
        served.kill()


def test_the_tour_is_worth_running() -> None:
    commands = [line.split()[1] for line in tour().splitlines() if line.startswith("calve ")]
    assert {"demo", "ps", "partitions", "export", "verify", "doctor"} <= set(commands)
