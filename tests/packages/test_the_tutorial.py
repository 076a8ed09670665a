"""The tutorial, from its first line to its last, with Calve as it is installed."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from support.installed import ROOT, Installed, outside


@pytest.mark.long
def test_every_line_of_the_tutorial_works_and_says_what_the_page_says(
    installed: Installed, tmp_path: Path
) -> None:
    text = (ROOT / "docs" / "tutorial.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    blocks = [f"set +e\n{block}set -e\n" if "echo $?" in block else block for block in blocks]
    marked = "".join(f"echo '== {number}'\n{block}" for number, block in enumerate(blocks))
    done = subprocess.run(
        ["bash", "-em"], input=marked, cwd=tmp_path, capture_output=True, text=True, timeout=1200,
        env=outside() | {"PATH": f"{installed.bin}{os.pathsep}{os.environ['PATH']}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    said = re.split(r"^== \d+\n", done.stdout, flags=re.MULTILINE)[1:]
    assert len(said) == len(blocks)
    assert "BAD" not in said[0]
    states = [re.findall(r"^(2024\d\d).* (no|unchanged|changed)\b", one, re.MULTILINE) for one in said]
    assert [state for _, state in states[1]] == ["no"] * 3
    assert [state for _, state in states[2]] == ["unchanged"] * 3
    assert dict(states[5]) == {"202401": "changed", "202402": "unchanged", "202403": "unchanged"}
    assert said[6].splitlines()[-1] == "4"
    assert dict(states[9]) == {"202401": "unchanged", "202403": "unchanged"}
    assert "202402" in said[10]
