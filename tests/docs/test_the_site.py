"""The documentation as a site: every page is in it, it builds with no warning, and every link leads somewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from check_site import wrong  # noqa: E402


def test_every_page_has_its_place_in_mkdocs_yml() -> None:
    named = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]))
    there = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert {page for page in there if not page.startswith("decisions/")} <= named


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=250)
    assert (built.returncode, built.stderr) == (0, "")
    return folder


@pytest.mark.programs
def test_it_builds_with_no_warning_and_every_link_anchor_and_picture_is_there(site: Path) -> None:
    assert wrong(site) == []
    assert (site / "index.html").exists() and (site / "reference" / "cli.html").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('<a href="gone.html">', "no gone.html"),
        ('<a href="#gone">', "no #gone"),
        ('<a href="b.html#gone">', "no b.html#gone"),
        ('<img src="gone.svg">', "no gone.svg"),
        ('<img src="https://example.org/x.svg">', "loads https://example.org/x.svg"),
        ("<p>| a | b |\nthen</p>", "is Markdown still: '| a | b |'"),
        ("<p>first\n- second</p>", "is Markdown still: '- '"),
    ],
)
def test_what_is_wrong_would_be_found(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "a.html").write_text(f'<h1 id="top"></h1><a href="b.html#here"></a><code>- x</code>{text}')
    (tmp_path / "b.html").write_text('<h1 id="here"></h1><a href="a.html#top"></a>')
    assert wrong(tmp_path) == [f"a.html: {said}"]
