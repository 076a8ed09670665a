"""Publishing once in Hive metastores, of two versions: one that compares the metadata file in a change, one that does not."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from test_every_outcome_of_a_commit import Made, Outcomes, Scene, begin_with, faults

from calve.app.doctor.examine import examine
from calve.app.proof import prove
from calve.iceberg.catalogs.catalog import open_catalog
from calve.iceberg.errors import catalog_call
from calve.iceberg.publish import AlreadyExported, PublishedSnapshot
from calve.model.errors import UnavailableError
from calve.model.limits import Limits
from calve.model.states import ProcessState
from support.catalog_faults import CatalogFaults
from support.catalog_libraries import import_them
from support.child_runner import ChildRunner
from support.hive_metastore import VERSIONS, HiveMetastore, hive_metastore
from support.lake import IDENTIFIER, make_table, make_work, rows_of
from support.outage_place import make_table as statements_of
from support.outcomes import Publisher, append_as_somebody_else, assert_published_once
from support.place import Place

pytestmark = [pytest.mark.services, pytest.mark.long]
RACERS = 4
SHORT = [param for param in faults(in_pairs=True).args[1] if not param.marks]


@pytest.fixture(scope="module", autouse=True)
def libraries() -> None:
    import_them()


@pytest.fixture(scope="module", params=VERSIONS)
def metastore(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HiveMetastore]:
    with hive_metastore(tmp_path_factory.mktemp("hive"), request.param) as server:
        yield server


@pytest.fixture
def direct(metastore: HiveMetastore) -> Iterator[Catalog]:
    """As everybody else sees it; the table of a test goes with it."""
    catalog = open_catalog("lake", metastore.properties())
    yield catalog
    if catalog.table_exists(IDENTIFIER):
        catalog.drop_table(IDENTIFIER)


def faulty(metastore: HiveMetastore) -> Any:
    from calve.iceberg.catalogs.hive import BoundedHiveCatalog

    class FaultyHiveCatalog(CatalogFaults, BoundedHiveCatalog):
        """In a metastore."""

    return FaultyHiveCatalog("lake", Limits(), metastore.properties())


@pytest.fixture(scope="class")
def made() -> Made:
    return {}


@pytest.mark.parametrize("fault", SHORT)
@pytest.mark.parametrize("has_snapshots", [True, False], ids=["with snapshots", "empty table"])
class TestHive(Outcomes):
    @pytest.fixture
    def scene(self, metastore: HiveMetastore, direct: Catalog, has_snapshots: bool) -> Scene:
        begin_with(direct, {}, has_snapshots)
        catalog = faulty(metastore)
        return Scene(catalog=catalog, faults=catalog, others=direct)


def raced(catalogs: list[Catalog], publishers: list[Publisher]) -> list[object]:
    start = Barrier(len(catalogs))

    def race(publisher: Publisher) -> object:
        start.wait()
        return publisher.run(attempts=50)

    with ThreadPoolExecutor(len(catalogs)) as pool:
        return list(pool.map(race, publishers))


def test_L13_workers_that_race_for_one_process_publish_it_once(
    metastore: HiveMetastore, direct: Catalog
) -> None:
    make_table(direct)
    append_as_somebody_else(direct, range(50, 53))
    work = make_work(direct, [(1, range(9))])
    catalogs = [open_catalog("lake", metastore.properties()) for _ in range(RACERS)]
    answers = raced(catalogs, [Publisher(catalog=one, work=work) for one in catalogs])
    assert len(set(answers)) == 1
    assert rows_of(direct) == [*range(9), *range(50, 53)]
    assert_published_once(direct, work.process_id)


def test_L13_stores_that_race_for_one_key_publish_it_once_through_one_connection_of_many_threads(
    direct: Catalog,
) -> None:
    make_table(direct)
    works = [make_work(direct, [(1, range(9))]) for _ in range(RACERS)]
    answers = raced([direct] * RACERS, [Publisher(catalog=direct, work=work) for work in works])
    assert sum(isinstance(answer, PublishedSnapshot) for answer in answers) == 1
    assert sum(isinstance(answer, AlreadyExported) for answer in answers) == RACERS - 1
    assert rows_of(direct) == list(range(9))


def test_L28_partitions_and_the_appends_of_others_are_each_there_once(
    metastore: HiveMetastore, direct: Catalog
) -> None:
    make_table(direct)
    catalogs = [open_catalog("lake", metastore.properties()) for _ in range(RACERS)]
    works = [
        make_work(one, [(at, range(at * 10, at * 10 + 10))], keys=((str(at), f"k{at}"),))
        for at, one in enumerate(catalogs)
    ]
    stop = threading.Event()
    landed: list[int] = []

    def append() -> None:
        others = open_catalog("lake", metastore.properties())
        for number in range(100, 110):
            while not stop.is_set():
                try:
                    append_as_somebody_else(others, range(number, number + 1))
                    landed.append(number)
                    break
                except CommitFailedException:
                    continue

    appender = threading.Thread(target=append)
    appender.start()
    try:
        answers = raced(
            catalogs, [Publisher(catalog=one, work=work) for one, work in zip(catalogs, works, strict=True)]
        )
    finally:
        appender.join(30)
        stop.set()
    assert all(isinstance(answer, PublishedSnapshot) for answer in answers)
    assert len(landed) == 10
    assert rows_of(direct) == sorted([*range(10 * RACERS), *landed])


def losing_its_lock(catalog: Any, meanwhile: Callable[[], object]) -> None:
    """Once: after the check of a commit, the lock goes, as after minutes of silence, and others commit."""
    from hive_metastore.ttypes import ShowLocksRequest, UnlockRequest

    really = catalog._write_metadata

    def write(*given: Any, **named: Any) -> None:
        catalog._write_metadata = really
        with catalog._client as client:
            for held in client.show_locks(ShowLocksRequest()).locks:
                client.unlock(UnlockRequest(lockid=held.lockid))
        meanwhile()
        really(*given, **named)

    catalog._write_metadata = write


def test_a_commit_that_lost_its_lock_is_refused_where_the_metastore_compares(
    metastore: HiveMetastore, direct: Catalog
) -> None:
    make_table(direct)
    work = make_work(direct, [(1, range(9))])
    catalog = open_catalog("lake", metastore.properties())
    losing_its_lock(catalog, lambda: append_as_somebody_else(direct, range(50, 53)))
    answer = Publisher(catalog=catalog, work=work).run()
    assert isinstance(answer, PublishedSnapshot)
    assert_published_once(direct, work.process_id)
    lost = (
        metastore.version == "3.1.3"
    )  # it does not know what it is asked to compare: docs/catalogs.md says so
    assert rows_of(direct) == [*range(9), *(() if lost else range(50, 53))]


def test_a_whole_export_is_proven_not_repeated_and_doctor_says_what_guards_it(
    metastore: HiveMetastore, runner: ChildRunner, tmp_path: Path
) -> None:
    place = Place(tmp_path, runner)
    config = tmp_path / "calve.toml"
    entry = metastore.properties() | {"warehouse": str(tmp_path / "far")}
    lines = "".join(f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in entry.items())
    config.write_text(f"{config.read_text()}\n[catalog.far]\n{lines}")
    place.execute(*statements_of("events", rows=10))
    to = f"far.whole{metastore.version.replace('.', '')}.events"
    processes = place.export("db.events", to=to)
    assert {one.state for one in processes} == {ProcessState.COMPLETED}, processes
    assert place.export("db.events", to=to) == []
    assert sorted(place.read(to)["id"].to_pylist()) == list(range(100))
    with place.app() as app:
        assert all(prove(app, one.id).ok for one in processes)
        found = [one for one in examine(app, spark=False) if one.part == "commits:far"]
    assert found[0].ok and "false assertions are refused" in found[0].words
    warned = [one for one in found if one.warning]
    assert all(one.ok for one in found) and len(warned) == (metastore.version == "3.1.3")
    assert all("a lock alone" in one.words and one.remedy for one in warned)


def test_a_metastore_that_is_silent_or_gone_is_an_outage_within_one_call(metastore: HiveMetastore) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"thrift://127.0.0.1:{silent.getsockname()[1]}"
        catalog = open_catalog("lake", metastore.properties(address), Limits(call_seconds=0.5))
        with pytest.raises(UnavailableError), catalog_call("lake", "loading"):
            catalog.load_table(IDENTIFIER)
    with pytest.raises(UnavailableError), catalog_call("lake", "loading"):
        catalog.load_table(IDENTIFIER)
    both = open_catalog("lake", metastore.properties(f"{address},{metastore.uri}"))
    assert not both.table_exists(("nowhere", "t"))
