"""One table whose parts lie on two disks (a storage policy of two): from a server, and from a folder."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from served import PASSWORD, WITH_UUID

from calve.clickhouse.embedded.source import EmbeddedSource
from calve.destination.plan import ExportPlan
from calve.model.errors import UsageError
from calve.model.process import Process
from calve.model.states import ProcessState
from support.clickhouse_front import ClickHouseFront, FrontOptions, FrontUser, clickhouse_front
from support.local_runner import LocalRunner
from support.place import Place
from support.server_place import ServerPlace

pytestmark = pytest.mark.services

PARTS, ROWS = 4, 10
MADE = (
    "CREATE DATABASE db",
    "CREATE TABLE db.events (id UInt64, s String) ENGINE = MergeTree ORDER BY id"
    " SETTINGS storage_policy = 'both'",
    "SYSTEM STOP MERGES db.events",
    *(
        f"INSERT INTO db.events SELECT number + {part * ROWS}, toString(number) FROM numbers({ROWS})"
        for part in range(PARTS)
    ),
)


def configured(folder: Path) -> Path:
    """ClickHouse's configuration of a second disk, and of a policy that fills both in turn."""
    file = folder / "disks.xml"
    file.write_text(
        f"<clickhouse><storage_configuration><disks><second><path>{folder}/second/</path></second></disks>"
        "<policies><both><volumes><all><disk>default</disk><disk>second</disk></all></volumes></both></policies>"
        "</storage_configuration></clickhouse>"
    )
    return file


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseFront]:
    folder = tmp_path_factory.mktemp("jbod")
    options = FrontOptions(
        users={"default": FrontUser(password=PASSWORD)},
        stand_ins=WITH_UUID,
        server_settings={"config-file": str(configured(folder))},
    )
    with clickhouse_front(folder, options) as front:
        yield front


@pytest.fixture
def served(
    front: ClickHouseFront, tmp_path: Path, runner: LocalRunner
) -> Iterator[Callable[..., ServerPlace]]:
    """A place whose source maps the disks of these names; the table is new."""
    paths = {"default": str(front.data), "second": str(front.folder / "second")}

    def place(*mapped: str) -> ServerPlace:
        disks = {name: paths[name] for name in mapped}
        found = ServerPlace(tmp_path, front.url, runner, password=PASSWORD, disks=disks)
        found.execute("DROP DATABASE IF EXISTS db SYNC", *MADE)
        return found

    return place


def exported(place: Place) -> tuple[Process, ExportPlan]:
    on = place.select(
        "SELECT disk_name AS disk, count() AS n FROM system.parts WHERE active GROUP BY disk_name"
    )
    assert {row["disk"]: row["n"] for row in on} == {"default": PARTS // 2, "second": PARTS // 2}
    [process] = place.export("db.events")
    assert process.state is ProcessState.COMPLETED, process.error
    assert sorted(place.read().column("id").to_pylist()) == list(range(PARTS * ROWS))
    with place.app() as app:
        plan = app.store.plan(process.id)
    assert plan is not None
    return process, ExportPlan.from_json(plan)


def frozen_below(*roots: Path) -> list[Path]:
    return [entry for root in roots for entry in root.glob("shadow/*") if entry.is_dir()]


def test_a_server_s_parts_are_frozen_where_both_disks_are_mapped(
    served: Callable[..., ServerPlace], front: ClickHouseFront
) -> None:
    place = served("default", "second")
    _, plan = exported(place)
    assert plan.relation.mode == "frozen", plan.notes
    roots = {"default": front.data, "second": front.folder / "second"}
    assert {part.disk for part in plan.parts} == set(roots)
    assert all(Path(part.path).is_relative_to(roots[part.disk] / "shadow") for part in plan.parts)
    assert frozen_below(*roots.values()) == [], "the pin is released on both"


@pytest.mark.parametrize("mapped", [("default",), ("second",), ()], ids=["first", "second", "none"])
def test_a_server_s_parts_are_read_live_where_a_disk_is_not_mapped(
    served: Callable[..., ServerPlace], front: ClickHouseFront, mapped: tuple[str, ...]
) -> None:
    place = served(*mapped)
    _, plan = exported(place)
    assert plan.relation.mode == "live"
    missing = sorted({"default", "second"} - set(mapped))
    said = f"disk {', '.join(missing)} is not mapped" if mapped else "no disk of the server is mapped"
    assert any(said in note for note in plan.notes), plan.notes
    assert place.pins == [] and frozen_below(front.data, front.folder / "second") == []


def test_a_folder_s_parts_are_frozen_on_both_disks(tmp_path: Path, runner: LocalRunner) -> None:
    place = embedded(tmp_path, runner)
    _, plan = exported(place)
    roots = {"default": tmp_path / "clickhouse", "second": tmp_path / "second"}
    assert {part.disk for part in plan.parts} == set(roots)
    assert all(Path(part.path).is_relative_to(roots[part.disk] / "shadow") for part in plan.parts)
    assert frozen_below(*roots.values()) == []


def test_a_folder_whose_disks_nobody_configured_is_refused_and_the_key_named(
    tmp_path: Path, runner: LocalRunner
) -> None:
    place = embedded(tmp_path, runner)
    file = tmp_path / "calve.toml"
    file.write_text(file.read_text().replace('engine_config = "disks.xml"', ""))
    with place.app() as app, pytest.raises(UsageError) as refused:
        place.check(app, "db.events", "lake.ns.events")
    assert refused.value.code == "source_disks"
    assert "engine_config under [source.main]" in refused.value.hint


def embedded(folder: Path, runner: LocalRunner) -> Place:
    place = Place(folder, runner)
    config = configured(folder)
    file = folder / "calve.toml"
    url = 'url = "chdb://clickhouse"'
    file.write_text(file.read_text().replace(url, f'{url}\nengine_config = "{config.name}"', 1))
    place.source = EmbeddedSource("main", folder / "clickhouse", create=True, engine_config=str(config))
    place.execute(*MADE)
    return place
