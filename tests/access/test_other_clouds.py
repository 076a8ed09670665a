"""Whole exports to clouds other than S3: tables and plain Parquet, proven, replaced, searched for orphans.

The executors were started before: what they know of the cloud was sent to them.
"""

import json
from collections.abc import Iterator

import pytest

from calve.app.destination import properties_of
from calve.app.doctor.examine import examine
from calve.app.proof import prove
from calve.iceberg.health.orphans import list_files, reachable
from calve.model.errors import PermanentError
from calve.model.states import ProcessState
from calve.objects.storage import Storage
from support.child_runner import ChildRunner
from support.clouds import BUCKET, CLOUDS, Cloud, cloud
from support.outage_place import make_table
from support.place import Place

pytestmark = pytest.mark.services


@pytest.fixture(scope="module", params=CLOUDS)
def there(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud(request.param, tmp_path_factory.mktemp(request.param)) as found:
        yield found


@pytest.fixture(scope="module")
def place(there: Cloud, runner: ChildRunner, tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = Place(tmp_path_factory.mktemp("place"), runner)
    config = place.folder / "calve.toml"
    config.write_text(config.read_text() + there.lines("far", "warehouse"))
    place.execute(*make_table("events", rows=10))
    return place


def test_a_table_is_exported_read_and_proven_and_nothing_of_it_is_an_orphan(
    place: Place, there: Cloud
) -> None:
    processes = place.export("db.events", to="far.ns.events")
    assert {one.state for one in processes} == {ProcessState.COMPLETED}, processes
    table = place.table("far.ns.events")
    assert table.location().startswith(f"{there.root}/warehouse/")
    assert sorted(place.read("far.ns.events")["id"].to_pylist()) == list(range(100))
    with place.app() as app:
        assert all(prove(app, one.id).ok for one in processes)
    files = list(list_files(table, table.location()))
    needed = reachable(table)
    data = [one.path for one in files if one.path.endswith(".parquet")]
    assert len(data) == 5 and all(path in needed for path in data)
    assert there.secret not in (place.folder / "calve.db").read_bytes().decode("latin-1")


def test_plain_parquet_is_committed_replaced_and_not_written_twice(place: Place, there: Cloud) -> None:
    out = f"{there.root}/plain/"
    [first] = place.export("db.events", "1", to=out)
    assert place.export("db.events", "1", to=out) == []
    [second] = place.export("db.events", "1", to=out, force=True)
    with place.app() as app:
        assert prove(app, second.id).ok
        storage = Storage(properties_of(app.config, out))
    commits = [json.loads(storage.read(uri)) for uri in storage.list(f"{out}_calve/commits")]
    assert [(one["generation"], one["process"]) for one in commits] == [(0, first.id), (1, second.id)]
    [file] = [uri for uri in storage.list(out) if uri.endswith(".parquet")]
    assert f"calve-{second.id}-" in file


def test_doctor_writes_to_it(place: Place, there: Cloud) -> None:
    with place.app() as app:
        found = {one.part: one for one in examine(app, spark=False) if not one.warning}
    assert found["catalog:far"].ok and "can be written" in found["catalog:far"].words
    assert found[f"storage:{there.root}"].ok


def test_a_bucket_that_is_not_there_is_named_at_once(there: Cloud) -> None:
    with pytest.raises(PermanentError) as told:
        Storage(there.properties).put_if_absent(f"{there.root.replace(BUCKET, 'missing')}/x", b"x")
    assert told.value.code == "bucket_missing"
