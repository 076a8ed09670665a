"""The outcome matrix: what is told × what happened × what is seen, over real catalogs.

Whole for each way to meet a fault: inside a SQL catalog, and on the wire to a REST catalog. A second database and a
second maker's server get every pair of answers in `make test`, and the whole in `make test-long`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations, product
from pathlib import Path

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
IMPATIENT = Limits(call_seconds=0.5)  # an injected timeout is waited for


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
        rows: list[int] = []
        if has_snapshots:
            append_as_somebody_else(self.others, BEFORE)
            rows += BEFORE
        if fault.landing is Landing.BURIED:
            rows += OTHERS
        self.faults.bury = lambda: append_as_somebody_else(self.others, OTHERS)
        self.faults.arm(fault)
        return rows


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


@pytest.fixture(scope="module")
def database(postgres_server: Postgres) -> str:
    return postgres_server.new_database()


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergRest]:
    with apache_rest(tmp_path_factory.mktemp("rest")) as server:
        yield server


@faults()
@pytest.mark.parametrize("has_snapshots", [True, False], ids=["with snapshots", "empty table"])
class TestSqlite(Outcomes):
    @pytest.fixture
    def scene(self, tmp_path: Path) -> Iterator[Scene]:
        direct = open_catalog("lake", sqlite_properties(tmp_path))
        faulty = FaultySqlCatalog("lake", Limits(), dict(direct.properties))
        make_table(direct)
        yield Scene(catalog=faulty, faults=faulty, others=direct)
        faulty.close()
        direct.close()


@pytest.mark.services
@faults(in_pairs=True)
@pytest.mark.parametrize("has_snapshots", [True], ids=["with snapshots"])
class TestPostgresql(Outcomes):
    @pytest.fixture
    def scene(self, database: str, tmp_path: Path) -> Iterator[Scene]:
        properties = {"type": "sql", "uri": database, "warehouse": str(tmp_path)}
        name = f"lake-{new_process_id()}"  # one database, a catalog of its own for each test
        direct = open_catalog(name, properties)
        faulty = FaultySqlCatalog(name, Limits(), dict(direct.properties))
        make_table(direct)
        yield Scene(catalog=faulty, faults=faulty, others=direct)
        faulty.close()
        direct.close()


@pytest.mark.services
@faults()
@pytest.mark.parametrize("has_snapshots", [True], ids=["with snapshots"])
class TestRest(Outcomes):
    @pytest.fixture
    def scene(self, rest: IcebergRest) -> Iterator[Scene]:
        direct = open_catalog("lake", rest.properties())
        make_table(direct, location=f"file://{rest.folder}/warehouse/{new_process_id()}")
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
    def scene(self, seaweed: SeaweedRest) -> Iterator[Scene]:
        direct = open_catalog("lake", seaweed.catalog_properties())
        make_table(direct)
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
