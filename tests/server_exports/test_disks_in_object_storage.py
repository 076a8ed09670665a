"""Tables whose disks are in object storage (S3, a cache over it, one that the table itself defines): today's engine with
its disks in a real S3 server."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from served import PASSWORD, WITH_UUID

from calve.app.backups import requests
from calve.app.proof import prove
from calve.clickhouse.embedded.source import EmbeddedSource
from calve.destination.plan import ExportPlan
from calve.model.errors import CalveError
from calve.model.states import ProcessState
from calve.objects.storage import Storage
from support.clickhouse_front import FrontOptions, FrontUser, clickhouse_front
from support.local_runner import LocalRunner
from support.place import Place
from support.s3 import S3Server, s3_server
from support.s3_disks import BUCKET, POLICIES, configured, server_settings
from support.server_place import ServerPlace

pytestmark = pytest.mark.services
ROWS = 1000


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        server.create_bucket("disks")
        yield server


def statements(where: str, database: str = "db") -> tuple[str, ...]:
    made = "(id UInt64, m UInt8, s String) ENGINE = MergeTree PARTITION BY m ORDER BY id SETTINGS"
    return (
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.events {made} {where}, max_bytes_to_merge_at_max_space_in_pool = 1",
        *(
            f"INSERT INTO {database}.events SELECT number + {at}, number % 2, repeat('x', number % 50) FROM numbers({ROWS})"
            for at in (0, ROWS)
        ),
        f"DELETE FROM {database}.events WHERE id = 7",  # a mask: another file of the part
    )


@pytest.fixture(scope="module")
def url(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("far")
    options = FrontOptions(
        users={
            "default": FrontUser(password=PASSWORD),
            "selecter": FrontUser(password=PASSWORD, select_only=True),
        },
        stand_ins=WITH_UUID,
        server_settings=server_settings(folder, s3),
    )
    with clickhouse_front(folder, options) as front:
        yield front.url


def places(s3: S3Server) -> dict[str, str]:
    """Where a table says that its parts are to be."""
    keys = s3.keys
    own = f"endpoint = '{s3.endpoint}/disks/own/', access_key_id = '{keys.access_key_id}'"
    named = {one: f"storage_policy = '{one}'" for one in POLICIES}
    return named | {"own": f"disk = disk(type = s3, {own}, secret_access_key = '{keys.secret_access_key}')"}


def held(place: ServerPlace, database: str) -> object:
    return place.select(f"SELECT count() AS n, sum(cityHash64(*)) AS hash FROM {database}.events")


def named(place: ServerPlace) -> set[str]:
    """The objects that some file of the server's disk names."""
    found = place.select("SELECT DISTINCT remote_path FROM system.remote_data_paths WHERE disk_name = 'far'")
    return {f"{BUCKET}/{row['remote_path'].removeprefix('disks/')}" for row in found}


@pytest.mark.parametrize("where", POLICIES)
@pytest.mark.parametrize("user", ["default", "selecter"])
def test_they_are_exported_through_the_server_and_each_object_belongs_to_a_file(
    s3: S3Server, url: str, tmp_path: Path, runner: LocalRunner, where: str, user: str
) -> None:
    place, database = ServerPlace(tmp_path, url, runner, user=user, password=PASSWORD), f"{where}_{user}"
    place.execute(*statements(places(s3)[where], database))
    rows = held(place, database)
    assert named(place) == set(Storage(s3.properties()).list(f"{BUCKET}/server"))
    processes = place.export(f"{database}.events")
    assert {one.state for one in processes} == {ProcessState.COMPLETED}, processes
    found = sorted(place.read().column("id").to_pylist())
    assert found == [number for number in range(2 * ROWS) if number != 7]
    with place.app() as app:
        assert all(prove(app, one.id).ok for one in processes)
        plan = ExportPlan.from_json(app.store.plan(processes[0].id) or "")
    assert plan.relation.mode == "live" and plan.relation.detail["pinned"] is (user == "default")
    place.execute("SYSTEM DROP FILESYSTEM CACHE")
    assert place.pins == [] and held(place, database) == rows
    assert named(place) == set(Storage(s3.properties()).list(f"{BUCKET}/server"))
    assert s3.keys.secret_access_key not in (place.folder / "calve.db").read_bytes().decode("latin-1")


def test_a_disk_that_the_table_itself_defines_cannot_be_cloned_and_is_refused_by_name(
    s3: S3Server, url: str, tmp_path: Path, runner: LocalRunner
) -> None:
    """The server hides what the clause says, so a table beside it cannot be made on that disk."""
    place = ServerPlace(tmp_path, url, runner, password=PASSWORD)
    place.execute(*statements(places(s3)["own"], "own"))
    [process, *_] = place.export("own.events")
    assert process.state is ProcessState.FAILED
    assert process.error and re.search("disk", process.error.message), process.error
    assert s3.keys.secret_access_key not in f"{process}"


def test_a_backup_of_them_is_made_and_exported_by_the_configuration_alone(
    s3: S3Server, url: str, tmp_path: Path, runner: LocalRunner
) -> None:
    """The bucket stands in `disks`, its keys in its own section; no folder of the server is seen."""
    place = ServerPlace(tmp_path, url, runner, password=PASSWORD, disks={"cached": BUCKET})
    file = tmp_path / "calve.toml"
    file.write_text(
        f'{file.read_text()}\n[storage."{BUCKET}"]\nendpoint = "{s3.endpoint}"\nregion = "{s3.region}"\n'
        f'access_key_id = "{s3.keys.access_key_id}"\nsecret_access_key = "{s3.keys.secret_access_key}"\n'
    )
    place.execute(*statements(places(s3)["cached"], "configured"))
    with place.app() as app:
        made = place.finish(app, [requests.create(app, app.store, "b", ["configured.*"]).process.id])
        assert {one.state for one in made} == {ProcessState.COMPLETED}, made
        assert s3.keys.secret_access_key not in f"{app.store.plan(made[0].id)}"
    processes = place.export("configured.events", from_backup="b")
    assert {one.state for one in processes} == {ProcessState.COMPLETED}, processes
    assert sorted(place.read().column("id").to_pylist()) == [at for at in range(2 * ROWS) if at != 7]
    assert place.pins == [] and named(place) == set(Storage(s3.properties()).list(f"{BUCKET}/server"))


def test_an_embedded_folder_with_such_a_disk_is_refused_by_name(
    s3: S3Server, tmp_path: Path, runner: LocalRunner
) -> None:
    place = Place(tmp_path, runner)
    config = configured(tmp_path, s3, "embedded")
    file = tmp_path / "calve.toml"
    embedded = 'url = "chdb://clickhouse"'
    file.write_text(file.read_text().replace(embedded, f'{embedded}\nengine_config = "{config.name}"', 1))
    place.source = EmbeddedSource("main", tmp_path / "clickhouse", create=True, engine_config=str(config))
    place.execute(*statements(places(s3)["far"]))
    with pytest.raises(CalveError) as refused:
        outcomes = place.export("db.events")
        assert outcomes[0].error is not None
        raise CalveError(outcomes[0].error.message, code=outcomes[0].error.code)
    assert "disk" in refused.value.message, refused.value
    assert not (tmp_path / "lake").exists() or place.frozen == []
