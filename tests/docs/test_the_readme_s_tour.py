"""What the README tells people to paste works when it is pasted."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MARK = "<!-- tour: tests/docs runs every line of the next blocks -->"


def tour() -> str:
    after = (ROOT / "README.md").read_text(encoding="utf-8").split(MARK)[1].split("\n## ")[0]
    return "\n".join(re.findall(r"```sh\n(.*?)```", after, re.DOTALL))


@pytest.mark.spark
def test_every_line_of_the_tour_works(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    answer = subprocess.run(
        ["sh", "-eu"], input=tour(), cwd=tmp_path, capture_output=True, text=True, timeout=280,
        env=os.environ | {"PATH": path},
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert "already exported" in answer.stderr
    assert (tmp_path / "calve-demo" / "calve.toml").exists()


def test_the_tour_is_worth_running() -> None:
    commands = [line.split()[1] for line in tour().splitlines() if line.startswith("calve ")]
    assert {"demo", "ps", "partitions", "export", "verify", "doctor"} <= set(commands)
