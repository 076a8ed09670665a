"""A wheel, installed where the source tree is not, serves every page and every file of the dashboard."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from calve.store import open_store
from calve.testing.contracts.contract import submit
from calve.web.assets import Assets
from calve.web.pages import PAGES
from support.html import Html
from support.served import Served

ROOT = Path(__file__).resolve().parents[2]
BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an environment with the wheel, and of ours only what it depends on."""
    home = tmp_path_factory.mktemp("installed")
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(home)], cwd=ROOT, check=True, capture_output=True, text=True
    )
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home / "env")], check=True)
    [packages] = (home / "env").glob("lib/python*/site-packages")
    zipfile.ZipFile(home / done.stdout.split()[-1]).extractall(packages)
    # A path that a .pth file names is not searched for .pth files: our own source tree stays out.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return home / "env" / "bin" / "python"


def test_the_source_tree_is_not_there(python: Path) -> None:
    where = "import calve.web.pages as p; print(p.__file__)"
    found = subprocess.run(
        [python, "-c", where], check=True, capture_output=True, text=True, cwd="/", env=_environment()
    )
    assert Path(found.stdout.strip()).is_relative_to(python.parents[1])


def test_an_installed_wheel_serves_every_page_and_every_file(
    python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with open_store(f"sqlite:///{tmp_path}/calve.db") as store:
        process = submit(store, source="main:db.t", destination="lake.ns.t")
    served = Served(tmp_path, settings='[source.main]\nurl = "chdb://clickhouse"\n', python=str(python))
    try:
        with served.client("", follow_redirects=True) as client:
            for name, page in PAGES.items():
                address = page.path.format(id=process.id)
                answer = client.get(address, headers={"Accept": "text/html"}, params=_given(name))
                # There is no backup: that one is a page too.
                assert answer.status_code == (404 if name == "backup" else 200), (name, answer.text[:500])
                assert Html(answer.text).count("main") == 1
            for name, asset in Assets().known.items():
                answer = client.get(f"/{Assets().target(name)}")
                assert answer.status_code == 200
                assert answer.content == asset.data
    finally:
        served.close()


def _given(page: str) -> dict[str, str]:
    return {
        "table": {"source": "main:db.t", "to": "lake.ns.t"},
        "search": {"q": "nothing-fits"},
        "backup": {"name": "x"},
    }.get(page, {})


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
