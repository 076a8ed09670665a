"""A wheel, installed where the source tree is not, serves every page and every file of the dashboard."""

from pathlib import Path

import pytest

from calve.store import open_store
from calve.testing.contracts.contract import submit
from calve.web.assets import Assets
from calve.web.pages import PAGES
from support.html import Html
from support.installed import Installed
from support.served import Served

NOT_THERE = {"backup": 404, "policy": 400}  # no such backup; a name that the configuration does not have


@pytest.mark.programs
def test_an_installed_wheel_serves_every_page_and_every_file(
    installed: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with open_store(f"sqlite:///{tmp_path}/calve.db") as store:
        process = submit(store, source="main:db.t", destination="lake.ns.t")
    served = Served(
        tmp_path, settings='[source.main]\nurl = "chdb://clickhouse"\n', python=str(installed.bin / "python")
    )
    try:
        with served.client("", follow_redirects=True) as client:
            for name, page in PAGES.items():
                address = page.path.format(id=process.id)
                answer = client.get(address, headers={"Accept": "text/html"}, params=_given(name))
                # That there is none is a page too.
                assert answer.status_code == NOT_THERE.get(name, 200), (name, answer.text[:500])
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
        "policy": {"name": "x"},
    }.get(page, {})
