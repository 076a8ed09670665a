"""`tests/fixtures/pages` has a document of each page, taken from an installation with real exports: whoever writes a
template works from these. They must have the keys that the verbs answer with."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from calve.app.calve import Calve
from calve.app.config import load_config
from calve.app.desk import Desk
from calve.model.access import Caller, Role
from calve.store import SqlStore
from calve.testing.contracts.contract import running

RULES = """
[source.main]
url = "chdb://clickhouse"
[catalog.lake]
type = "sql"
uri = "sqlite:///lake.db"
warehouse = "lake"
[policy.events]
source = "main:db.events"
to = "lake.ns.events"
"""
PAGES = Path(__file__).parents[1] / "fixtures" / "pages"
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "attention": ("attention", {}),
    "tables": ("tables", {}),
    "table": ("table", {"source": "main:db.events", "to": "lake.ns.events"}),
    "page": ("page", {"why": True}),
    "sheet": ("sheet", {"id": "ID"}),
    "sheet_failed": ("sheet", {"id": "ID"}),
    "sheet_pending": ("sheet", {"id": "ID"}),
    "vault": ("vault", {}),
    "policies": ("tiering", {}),
    "policy": ("tiering", {"name": "events"}),
    "system": ("system", {}),
    "search": ("search", {"q": "db.events"}),
}


@pytest.fixture(scope="module")
def calve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calve]:
    file = tmp_path_factory.mktemp("pages") / "calve.toml"
    file.write_text(RULES)
    with Calve(load_config(file, environ={})) as opened:
        yield opened


def test_there_is_an_example_of_each_page() -> None:
    assert {file.stem for file in PAGES.glob("*.json")} == set(ASKED)


@pytest.mark.parametrize("name", ASKED)
def test_an_example_has_the_keys_of_its_document(calve: Calve, name: str) -> None:
    store = calve.registry
    assert isinstance(store, SqlStore)
    verb, given = ASKED[name]
    if verb == "sheet":
        given = {"id": running(store).id}
    answer = Desk(calve).perform(Caller(name="v", role=Role.VIEWER), verb, given)
    assert set(json.loads((PAGES / f"{name}.json").read_text())) == set(answer)
