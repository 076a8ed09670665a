"""Glue's calls, against moto, which does not check versions: what is tested is that the right calls are made, and that
`calve doctor` finds out what moto lets through. Safety in Glue is not tested."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from calve.app.doctor import lake
from calve.app.doctor.examine import examine
from calve.app.proof import prove
from calve.iceberg.catalogs.catalog import open_catalog
from calve.iceberg.catalogs.guards import CommitGuard, GuardedCatalog
from calve.iceberg.errors import catalog_call
from calve.iceberg.publish import PublishedSnapshot, PublishFenced, fence
from calve.model.errors import DeniedError, PermanentError, UnavailableError
from calve.model.limits import Limits
from calve.model.states import ProcessState
from support.catalog_libraries import import_them
from support.child_runner import ChildRunner
from support.lake import IDENTIFIER, make_table, make_work, rows_of
from support.moto_glue import SECRET, MotoGlue, moto_glue
from support.outage_place import make_table as statements_of
from support.outcomes import Publisher, append_as_somebody_else, assert_published_once
from support.place import Place

pytestmark = [pytest.mark.services, pytest.mark.long]


@pytest.fixture(scope="module")
def glue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoGlue]:
    with moto_glue(tmp_path_factory.mktemp("moto")) as server:
        yield server


def test_a_publish_a_fence_and_the_appends_of_others(glue: MotoGlue, tmp_path: Path) -> None:
    catalog = open_catalog("lake", glue.properties(f"{tmp_path}/warehouse"))
    make_table(catalog)
    append_as_somebody_else(catalog, range(50, 53))
    work, late = (make_work(catalog, [(1, range(at, at + 9))], keys=((str(at), f"k{at}"),)) for at in (0, 10))
    assert isinstance(Publisher(catalog=catalog, work=work).run(), PublishedSnapshot)
    assert_published_once(catalog, work.process_id)
    assert isinstance(fence(catalog, late.process_id, late.plan, ""), PublishFenced)
    with pytest.raises(PermanentError) as refused:
        Publisher(catalog=catalog, work=late).run()
    assert refused.value.code == "publish_fenced"
    assert rows_of(catalog) == [*range(9), *range(50, 53)]
    catalog.drop_table(IDENTIFIER)


def test_a_whole_export_is_proven_and_not_repeated_and_doctor_says_loudly_that_versions_are_not_checked(
    glue: MotoGlue, runner: ChildRunner, tmp_path: Path
) -> None:
    place = Place(tmp_path, runner)
    config = tmp_path / "calve.toml"
    entry = glue.properties(str(tmp_path / "far"))
    lines = "".join(f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in entry.items())
    config.write_text(f"{config.read_text()}\n[catalog.far]\n{lines}")
    place.execute(*statements_of("events", rows=10))
    processes = place.export("db.events", to="far.whole.events")
    assert {one.state for one in processes} == {ProcessState.COMPLETED}, processes
    assert place.export("db.events", to="far.whole.events") == []
    assert sorted(place.read("far.whole.events")["id"].to_pylist()) == list(range(100))
    with place.app() as app:
        assert all(prove(app, one.id).ok for one in processes)
        before = app.catalog("far").load_table(("whole", "events")).metadata
        held, ill = [one for one in examine(app, spark=False) if one.part == "commits:far"]
        assert app.catalog("far").load_table(("whole", "events")).metadata == before
    assert held.ok and not held.warning
    assert not ill.ok and "made from another version" in ill.words and "docs/catalogs.md" in ill.remedy
    assert SECRET not in (place.folder / "calve.db").read_bytes().decode("latin-1")


def test_one_that_checks_versions_is_told_so(
    glue: MotoGlue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Glue answers: moto is given the words."""
    catalog = open_catalog("lake", glue.properties(f"{tmp_path}/warehouse"))
    make_table(catalog)
    assert isinstance(catalog, GuardedCatalog)
    assert catalog.guard(IDENTIFIER) is CommitGuard.NOTHING
    refusal = catalog.glue.exceptions.ConcurrentModificationException  # type: ignore[attr-defined]

    def refused(**asked: str) -> None:
        raise refusal({"Error": {"Code": "ConcurrentModificationException"}}, "UpdateTable")

    monkeypatch.setattr(catalog.glue, "update_table", refused)  # type: ignore[attr-defined]
    assert catalog.guard(IDENTIFIER) is CommitGuard.VERSION
    catalog.drop_table(IDENTIFIER)


def test_one_that_refuses_the_probe_for_another_reason_is_a_warning(
    glue: MotoGlue, runner: ChildRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = open_catalog("lake", glue.properties(f"{tmp_path}/warehouse"))
    make_table(catalog)
    refusal = catalog.glue.exceptions.InvalidInputException  # type: ignore[attr-defined]

    def refused(**asked: str) -> None:
        raise refusal({"Error": {"Code": "InvalidInputException", "Message": "not so"}}, "UpdateTable")

    monkeypatch.setattr(catalog.glue, "update_table", refused)  # type: ignore[attr-defined]
    with Place(tmp_path, runner).app() as app:
        monkeypatch.setattr(app, "catalog", lambda name: catalog)
        held, told = lake.commits(app, name="lake")
    assert held.ok and told.ok and told.warning and "is not known" in told.words and "not so" in told.words
    catalog.drop_table(IDENTIFIER)


def test_one_that_is_silent_gone_or_refuses_keys_is_named_in_time(glue: MotoGlue, tmp_path: Path) -> None:
    given = glue.properties(f"{tmp_path}/warehouse")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = {"glue.endpoint": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        catalog = open_catalog("lake", given | address, Limits(call_seconds=0.6))
        with pytest.raises(UnavailableError), catalog_call("lake", "loading"):
            catalog.load_table(IDENTIFIER)
    with pytest.raises(UnavailableError), catalog_call("lake", "loading"):
        catalog.load_table(IDENTIFIER)
    denied = open_catalog("lake", given)

    def refused(**asked: str) -> None:
        raise denied.glue.exceptions.AccessDeniedException(  # type: ignore[attr-defined]
            {"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "GetTable"
        )

    denied.glue.get_table = refused  # type: ignore[attr-defined]
    with pytest.raises(DeniedError), catalog_call("lake", "loading"):
        denied.load_table(IDENTIFIER)


@pytest.fixture(scope="module", autouse=True)
def libraries() -> None:
    import_them()
