"""The outcome matrix: what is told × what happened × what is seen, over real catalogs.

Whole inside a SQL catalog, where nothing but the three answers decides. An empty table, the wire to a REST catalog, a
second database and a second maker's server each add one thing more: `make test` lets it meet every pair of answers,
and `make test-long` all of them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations, product

import pytest
from pyiceberg.catalog import Catalog

from calve.iceberg.catalogs.catalog import open_catalog
from calve.iceberg.publish import PublishedSnapshot, PublishFenced, fence
from calve.iceberg.undo import undo
from calve.model.errors import PermanentError, TemporaryError
from calve.model.limits import Limits
from calve.model.process import new_process_id
from calve.objects.storage import Storage
from support.catalog_faults import Fault, FaultySqlCatalog, Landing, Reading, Told
from support.catalog_proxy import CatalogProxy
from support.iceberg_rest import IcebergRest, SeaweedRest, apache_rest, seaweed_rest
from support.lake import IDENTIFIER, Work, make_table, make_work, rows_of, sqlite_properties
from support.outcomes import (
    Publisher,
    append_as_somebody_else,
    assert_every_manifest_is_there,
    assert_published_once,
)
from support.postgres import Postgres

MATRIX = tuple(product(enumerate(Told), enumerate(Landing), enumerate(Reading)))
OURS, OTHERS, BEFORE = range(10), range(100, 103), range(50, 53)
# An injected timeout is waited for; a real answer comes before, also on a busy machine.
IMPATIENT = Limits(call_seconds=2.0)


def faults(*, in_pairs: bool = False) -> pytest.MarkDecorator:
    """All of them; or, the others being long, so many that any two answers meet in one of them."""
    params = []
    for (a, told), (b, landing), (c, reading) in MATRIX:
        is_long = in_pairs and (a + b) % len(Reading) != c
        fault = Fault(told=told, landing=landing, reading=reading)
        marks = [pytest.mark.long] if is_long else []
        params.append(pytest.param(fault, id=f"{told}, {landing}, {reading}", marks=marks))
    return pytest.mark.parametrize("fault", params)


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A catalog in which commits meet faults, and the same catalog as everybody else sees it."""

    catalog: Catalog
    faults: FaultySqlCatalog | CatalogProxy
    others: Catalog
    storage: Storage = field(default_factory=Storage)
    keep_receipts: bool = True

    def work(self) -> Work:
        return make_work(self.others, [(1, OURS)], keep_receipts=self.keep_receipts)

    def begin(self, fault: Fault, has_snapshots: bool) -> list[int]:
        """The rows that are there without us, once the fault has played out."""
        rows = list(BEFORE) if has_snapshots else []
        if fault.landing is Landing.BURIED:
            rows += OTHERS
        self.faults.bury = lambda: append_as_somebody_else(self.others, OTHERS)
        self.faults.arm(fault)
        return rows


Made = dict[bool, str]  # with snapshots or without: the metadata file of a table


def begin_with(catalog: Catalog, made: Made, has_snapshots: bool, location: str | None = None) -> None:
    """The table of a test. Made once; the others of a class register it again as it was then."""
    if has_snapshots in made:
        catalog.create_namespace_if_not_exists(IDENTIFIER[0])
        catalog.register_table(IDENTIFIER, made[has_snapshots])
        return
    make_table(catalog, location=location)
    if has_snapshots:
        append_as_somebody_else(catalog, BEFORE)
    made[has_snapshots] = catalog.load_table(IDENTIFIER).metadata_location


@contextmanager
def sql_scene(properties: dict[str, str], made: Made, has_snapshots: bool) -> Iterator[Scene]:
    """One database, a catalog of its own for each test."""
    name = f"lake-{new_process_id()}"
    direct = open_catalog(name, properties)
    faulty = FaultySqlCatalog(name, Limits(), dict(direct.properties))
    begin_with(direct, made, has_snapshots)
    yield Scene(catalog=faulty, faults=faulty, others=direct)
    faulty.close()
    direct.close()


class Outcomes:
    """What holds in every catalog. Inherited by one class for each."""

    def test_a_publish_ends_published_once(self, scene: Scene, fault: Fault, has_snapshots: bool) -> None:
        work = scene.work()
        rows = scene.begin(fault, has_snapshots)
        publisher = Publisher(catalog=scene.catalog, work=work)

        answer = publisher.run()

        scene.faults.release()
        assert isinstance(answer, PublishedSnapshot)
        assert answer.rows == len(OURS)
        assert rows_of(scene.others) == sorted([*OURS, *rows])
        assert_published_once(scene.others, work.process_id)
        assert publisher.attempt() == answer

    def test_a_cancel_ends_fenced_for_good_or_published(
        self, scene: Scene, fault: Fault, has_snapshots: bool
    ) -> None:
        work = scene.work()
        rows = scene.begin(fault, has_snapshots)
        publisher = Publisher(catalog=scene.catalog, work=work)
        try:
            first = publisher.attempt()
        except TemporaryError:
            first = None

        answer = _fence_until_answered(publisher)

        scene.faults.release()
        assert first is None or isinstance(answer, PublishedSnapshot)
        if isinstance(answer, PublishedSnapshot):
            assert rows_of(scene.others) == sorted([*OURS, *rows])
            assert_published_once(scene.others, work.process_id)
            return
        done = undo(scene.catalog, scene.storage, work.process_id, work.plan, work.receipts, publisher.noted)
        assert done.left == ()
        with pytest.raises(PermanentError) as refused:
            publisher.run()
        assert refused.value.code == "publish_fenced"
        assert rows_of(scene.others) == sorted(rows)
        assert_every_manifest_is_there(scene.others)


def _fence_until_answered(publisher: Publisher) -> PublishFenced | PublishedSnapshot:
    for _ in range(10):
        try:
            return fence(publisher.catalog, publisher.work.process_id, publisher.work.plan, publisher.noted)
        except (TemporaryError, PermanentError) as error:  # a 401 ends nothing: the process stays as it is
            publisher.errors.append(error)
    raise publisher.errors[-1]


@pytest.fixture(scope="class")
def made() -> Made:
    return {}


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return sqlite_properties(tmp_path_factory.mktemp("sqlite"))


@pytest.fixture(scope="module")
def postgresql(postgres_server: Postgres, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    warehouse = str(tmp_path_factory.mktemp("postgresql"))
    return {"type": "sql", "uri": postgres_server.new_database(), "warehouse": warehouse}


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergRest]:
    with apache_rest(tmp_path_factory.mktemp("rest")) as server:
        yield server


class OnSqlite(Outcomes):
    @pytest.fixture
    def scene(self, sqlite: dict[str, str], made: Made, has_snapshots: bool) -> Iterator[Scene]:
        with sql_scene(sqlite, made, has_snapshots) as scene:
            yield scene


@faults()
@pytest.mark.parametrize("has_snapshots", [True], ids=["with snapshots"])
class TestSqlite(OnSqlite):
    pass


@faults(in_pairs=True)
@pytest.mark.parametrize("has_snapshots", [False], ids=["empty table"])
class TestSqliteWithoutSnapshots(OnSqlite):
    pass


@pytest.mark.services
@faults(in_pairs=True)
@pytest.mark.parametrize("has_snapshots", [True], ids=["with snapshots"])
class TestPostgresql(Outcomes):
    @pytest.fixture
    def scene(self, postgresql: dict[str, str], made: Made, has_snapshots: bool) -> Iterator[Scene]:
        with sql_scene(postgresql, made, has_snapshots) as scene:
            yield scene


@pytest.mark.services
@faults(in_pairs=True)
@pytest.mark.parametrize("has_snapshots", [True], ids=["with snapshots"])
class TestRest(Outcomes):
    @pytest.fixture
    def scene(self, rest: IcebergRest, made: Made, has_snapshots: bool) -> Iterator[Scene]:
        direct = open_catalog("lake", rest.properties())
        begin_with(direct, made, has_snapshots, location=f"file://{rest.folder}/warehouse/outcomes")
        with CatalogProxy(rest.uri) as proxy:
            through = open_catalog("lake", rest.properties(proxy.uri), IMPATIENT)
            yield Scene(catalog=through, faults=proxy, others=direct)
            through.close()
        direct.drop_table(IDENTIFIER)
        direct.close()


@pytest.fixture(scope="module")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedRest]:
    with seaweed_rest(tmp_path_factory.mktemp("seaweed")) as server:
        yield server


@pytest.mark.services
@faults(in_pairs=True)
@pytest.mark.parametrize("has_snapshots", [True], ids=["with snapshots"])
class TestSeaweedRest(Outcomes):
    """Another maker's catalog, with the files in its object storage."""

    @pytest.fixture
    def scene(self, seaweed: SeaweedRest, has_snapshots: bool) -> Iterator[Scene]:
        direct = open_catalog("lake", seaweed.catalog_properties())
        begin_with(direct, {}, has_snapshots)  # it registers no tables
        with CatalogProxy(seaweed.uri) as proxy:
            through = open_catalog("lake", seaweed.catalog_properties(proxy.uri), IMPATIENT)
            storage = Storage(seaweed.properties())
            yield Scene(catalog=through, faults=proxy, others=direct, storage=storage, keep_receipts=False)
            through.close()
        direct.drop_table(IDENTIFIER)
        direct.close()


def test_any_two_answers_meet_in_a_fault_that_is_not_long() -> None:
    short = [param.values[0] for param in faults(in_pairs=True).args[1] if not param.marks]
    for one, other in combinations((Told, Landing, Reading), 2):
        names = [kind.__name__.lower() for kind in (one, other)]
        met = {tuple(getattr(fault, name) for name in names) for fault in short}
        assert met == set(product(one, other))
