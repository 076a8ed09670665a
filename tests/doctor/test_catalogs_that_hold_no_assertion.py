"""`calve doctor` finds a catalog that applies a commit whose assertions are false, and leaves no trace in the table."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog, CommitTableResponse
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.types import LongType, NestedField

from calve.app.config import load_config
from calve.app.config.template import render
from calve.app.doctor import lake
from calve.app.doctor.finding import Finding
from calve.app.wiring import App
from calve.iceberg.catalogs.catalog import open_catalog
from calve.iceberg.publish import probe
from calve.model.limits import Limits
from support.iceberg_rest import apache_rest
from support.rest_front import Answer, Request, RestFront, Silence

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))


class Careless(SqlCatalog):
    """It applies whatever it is sent, but for requirements of the kinds that it knows."""

    knows: tuple[str, ...] = ()
    answer: Exception | None = None  # in place of an answer, once it has applied the commit

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        held = tuple(one for one in requirements if one.type in self.knows)
        answer = super().commit_table(table, held, updates)
        if self.answer is not None and requirements:
            raise self.answer
        return answer


@pytest.fixture
def careless(tmp_path: Path) -> Careless:
    return Careless("lake", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    (tmp_path / "calve.toml").write_text(render())
    app = App(load_config(tmp_path / "calve.toml", environ={}, cwd=tmp_path))
    yield app
    app.close()


def with_rows(catalog: Catalog) -> Table:
    catalog.create_namespace("ns")
    table = catalog.create_table("ns.t", SCHEMA)
    table.append(table.scan().to_arrow())
    table.manage_snapshots().create_tag(table.metadata.refs[MAIN_BRANCH].snapshot_id, "kept").commit()
    return catalog.load_table("ns.t")


def told(app: App, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    monkeypatch.setattr(app, "catalog", lambda name: catalog)
    return list(lake.commits(app, name="lake"))


def test_one_that_holds_them_is_told_so(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = app.catalog("lake")
    assert told(app, catalog, monkeypatch)[0].words.startswith("no table yet")
    before = with_rows(catalog).metadata
    [found] = told(app, catalog, monkeypatch)
    assert (
        found.ok
        and not found.warning
        and "lake.ns.t: commits with false assertions are refused" in found.words
    )
    assert catalog.load_table("ns.t").metadata == before


@pytest.mark.parametrize(
    ("knows", "missed"),
    [((), 3), (("assert-table-uuid",), 2), (("assert-ref-snapshot-id",), 1)],
)
def test_each_assertion_that_is_not_held_is_bad(
    app: App, careless: Careless, monkeypatch: pytest.MonkeyPatch, knows: tuple[str, ...], missed: int
) -> None:
    properties = with_rows(careless).properties
    monkeypatch.setattr(Careless, "knows", knows)
    found = told(app, careless, monkeypatch)
    assert len(found) == missed and not any(one.ok for one in found)
    assert all("not exactly once" in one.words and one.remedy for one in found)
    assert careless.load_table("ns.t").properties == properties


def test_one_that_applies_it_and_answers_5xx_is_found_by_a_look(
    app: App, careless: Careless, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_rows(careless)
    monkeypatch.setattr(Careless, "answer", TimeoutError("no answer"))
    assert [one.ok for one in told(app, careless, monkeypatch)] == [False] * 3
    assert probe.PROPERTY not in careless.load_table("ns.t").properties


def test_one_that_fails_without_applying_it_is_a_warning(
    app: App, careless: Careless, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_rows(careless)

    def fails(*_: object) -> CommitTableResponse:
        raise TimeoutError("no answer")

    monkeypatch.setattr(Careless, "commit_table", fails)
    found = told(app, careless, monkeypatch)
    assert [(one.ok, one.warning) for one in found] == [(True, True)] * 3
    assert "is not known" in found[0].words


def test_a_table_without_snapshots_can_be_probed_too(
    app: App, careless: Careless, monkeypatch: pytest.MonkeyPatch
) -> None:
    careless.create_namespace("ns")
    careless.create_table("ns.t", SCHEMA)
    [found] = told(app, careless, monkeypatch)
    assert not found.ok and "uuid" in found.words


class Forgetful(RestFront):
    """A server that never sees the assertions."""

    def serve(self, request: Request) -> Answer | Silence:
        if request.method == "POST" and b'"requirements"' in request.body:
            body = json.dumps(json.loads(request.body) | {"requirements": []}).encode()
            headers = {name: value for name, value in request.headers.items() if name != "Content-Length"}
            request = Request(method="POST", path=request.path, headers=headers, body=body)
        return self.forward(request)


@pytest.mark.services
def test_apache_s_catalog_holds_them_and_a_forgetful_server_is_found(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with apache_rest(tmp_path / "rest") as server, Forgetful(server.uri) as front:
        catalog = open_catalog("lake", server.properties(), Limits())
        with_rows(catalog)
        [well] = told(app, catalog, monkeypatch)
        assert well.ok and not well.warning
        ill = told(app, open_catalog("lake", server.properties(front.uri), Limits()), monkeypatch)
        assert len(ill) == 3 and not any(one.ok for one in ill)
        assert probe.PROPERTY not in catalog.load_table("ns.t").properties
