"""`docs/architecture.md`: its walk of one export is the one that an export takes, and the files it names exist."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
MOST = 110
BODY, WALK = PAGE.split("\n## The walk of one export\n")
_SPANS = re.findall(r"`([^`\s]+)`", re.sub(r"```.*?```", "", BODY, flags=re.DOTALL))
# A name with a placeholder, such as `src/calve/<kind>/kind.py`, stands for what a reader is to write.
FILES = sorted({span for span in _SPANS if "/" in span and "<" not in span})
NAMES = sorted({span for span in _SPANS if re.fullmatch(r"calve(\.\w+)+", span)})


def test_a_reader_of_one_export_meets_few_modules_and_the_page_lists_them() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "walk.py"], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    walked = set(done.stdout.split())
    assert {"calve.cli.export", "calve.control.decide", "calve.spark.executor"} <= walked
    assert len(walked) <= MOST, f"{len(walked)} modules: {' '.join(sorted(walked))}"
    assert sorted(re.findall(r"^\| `(calve\.[\w.]+)` \|", WALK, re.MULTILINE)) == sorted(walked)


@pytest.mark.parametrize("file", FILES)
def test_every_file_that_the_page_names_exists(file: str) -> None:
    assert (ROOT / file).exists() or (ROOT / "src" / "calve" / file).exists()


@pytest.mark.parametrize("name", NAMES)
def test_every_name_that_the_page_gives_is_a_module_or_in_one(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    place = ROOT / "src" / Path(*name.split("."))
    if not place.is_dir() and not place.with_suffix(".py").exists():
        assert hasattr(importlib.import_module(module), attribute)
