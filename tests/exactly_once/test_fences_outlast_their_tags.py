"""A commit that was held back is refused for ever: however old the table, whatever became of the tag."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import RESTError
from pyiceberg.table.update import RemoveSnapshotRefUpdate, RemoveSnapshotsUpdate, SetSnapshotRefUpdate

from calve.iceberg.catalogs.catalog import open_catalog
from calve.iceberg.health.due import expiry
from calve.iceberg.health.settings import DAY_MS, Settings
from calve.iceberg.publish import AlreadyExported, PublishedSnapshot, PublishFenced, fence, publish
from calve.iceberg.publish.marks import search
from calve.iceberg.undo import undo
from calve.model.errors import PermanentError, UnknownOutcomeError
from calve.model.limits import Limits
from calve.model.process import new_process_id
from calve.objects.storage import Storage
from support.catalog_faults import Fault, FaultySqlCatalog, Landing, Reading, Told
from support.catalog_proxy import CatalogProxy
from support.iceberg_rest import IcebergRest, apache_rest
from support.lake import IDENTIFIER, make_table, make_work, rows_of, sqlite_properties
from support.outcomes import Publisher, append_as_somebody_else, assert_every_manifest_is_there
from support.spark_sql import SparkSql

HELD = Fault(told=Told.TIMEOUT, landing=Landing.LAST, reading=Reading.AT_ONCE, looks=0)
AGES = {"no snapshot": None, "a fresh head": 0, "a head of yesterday": 1, "a head of last year": 365}


@dataclass(frozen=True, kw_only=True)
class Scene:
    catalog: Catalog  # whose commits can be held back
    faults: FaultySqlCatalog | CatalogProxy
    others: Catalog
    location: str | None = None
    backdates: bool = True  # whether the catalog takes a snapshot of last year; otherwise expiry comes later

    def table_of_age(self, version: str, days: int | None) -> list[int]:
        """A table whose last snapshot was made so long ago; its rows."""
        make_table(self.others, properties={"format-version": version}, location=self.location)
        if days is None:
            return []
        work = make_work(self.others, [(7, range(50, 53))], keys=(("7", "k7"),))
        at_ms = int(time.time() * 1000) - days * DAY_MS * self.backdates
        publish(self.others, work.process_id, work.plan, work.receipts, "", lambda _: None, now_ms=at_ms)
        return list(range(50, 53))

    def held_back(self) -> Publisher:
        """A publisher whose commit is on its way, and will arrive when all is over."""
        publisher = Publisher(catalog=self.catalog, work=make_work(self.others, [(1, range(10))]))
        self.faults.arm(HELD)
        with pytest.raises(UnknownOutcomeError):
            publisher.attempt()
        return publisher

    def fenced(self, publisher: Publisher) -> None:
        work = publisher.work
        assert isinstance(fence(self.catalog, work.process_id, work.plan, publisher.noted), PublishFenced)

    def undone(self, publisher: Publisher) -> None:
        work = publisher.work
        done = undo(self.catalog, Storage(), work.process_id, work.plan, work.receipts, publisher.noted)
        assert done.left == ()

    def sweep(self, in_days: int) -> None:
        """What an expiry does with references and snapshots, by Iceberg's own rules."""
        table = self.others.load_table(IDENTIFIER)
        past = expiry(table.metadata, Settings(), now_ms=int(time.time() * 1000) + in_days * DAY_MS)
        updates = [RemoveSnapshotRefUpdate.model_validate({"ref-name": name}) for name in past.refs]
        if past.snapshot_ids:
            updates.append(RemoveSnapshotsUpdate.model_validate({"snapshot-ids": list(past.snapshot_ids)}))
        self.others.commit_table(table, (), tuple(updates))

    def refs(self) -> set[str]:
        return set(self.others.load_table(IDENTIFIER).metadata.refs)


class OutlastingFences:
    """What holds in every catalog. Inherited by one class for each."""

    @pytest.mark.parametrize("days", AGES.values(), ids=AGES.keys())
    @pytest.mark.parametrize("version", ["1", "2"], ids=["v1", "v2"])
    def test_T1_a_commit_held_back_lands_nowhere_once_tags_are_swept(
        self, scene: Scene, version: str, days: int | None
    ) -> None:
        rows = scene.table_of_age(version, days)
        publisher = scene.held_back()
        scene.fenced(publisher)
        scene.sweep(in_days=1 if scene.backdates else 1 + (days or 0))
        scene.undone(publisher)
        scene.sweep(in_days=400)
        assert scene.refs() == {"main"}, "the tag has had its time"
        scene.faults.release()
        assert rows_of(scene.others) == rows
        assert_every_manifest_is_there(scene.others)
        append_as_somebody_else(scene.others, range(60, 61))
        assert rows_of(scene.others) == [*rows, 60]

    def test_T1_a_tag_removed_by_hand_changes_nothing(self, scene: Scene) -> None:
        rows = scene.table_of_age("2", 365)
        publisher = scene.held_back()
        scene.fenced(publisher)
        table = scene.others.load_table(IDENTIFIER)
        tag = RemoveSnapshotRefUpdate.model_validate({"ref-name": f"calve-{publisher.work.process_id}"})
        scene.others.commit_table(table, (), (tag,))
        scene.faults.release()
        assert rows_of(scene.others) == rows
        scene.fenced(publisher)
        assert len(scene.others.load_table(IDENTIFIER).metadata.snapshots) == 2, "one tombstone is enough"

    def test_T1_main_rolled_back_behind_the_fence_is_fenced_again(self, scene: Scene) -> None:
        """The tag refuses the commit meanwhile; before anything is deleted, main is moved again."""
        rows = scene.table_of_age("2", 365)
        before = scene.others.load_table(IDENTIFIER).metadata.refs["main"].snapshot_id
        publisher = scene.held_back()
        scene.fenced(publisher)
        table = scene.others.load_table(IDENTIFIER)
        main = {"ref-name": "main", "type": "branch", "snapshot-id": before}
        scene.others.commit_table(table, (), (SetSnapshotRefUpdate.model_validate(main),))
        scene.undone(publisher)
        scene.sweep(in_days=400)
        scene.faults.release()
        assert rows_of(scene.others) == rows
        assert scene.others.load_table(IDENTIFIER).metadata.refs["main"].snapshot_id != before


class TestSqlite(OutlastingFences):
    @pytest.fixture
    def scene(self, tmp_path: Path) -> Iterator[Scene]:
        direct = open_catalog("lake", sqlite_properties(tmp_path))
        faulty = FaultySqlCatalog("lake", Limits(), dict(direct.properties))
        yield Scene(catalog=faulty, faults=faulty, others=direct)
        faulty.close()
        direct.close()

    def test_T1_a_tag_on_a_head_of_somebody_else_is_no_fence(self, scene: Scene) -> None:
        """The tombstone of the first release: it may be swept at any time."""
        rows = scene.table_of_age("2", 365)
        publisher = scene.held_back()
        process_id = publisher.work.process_id
        table = scene.others.load_table(IDENTIFIER)
        tag = {"ref-name": f"calve-{process_id}", "type": "tag", "max-ref-age-ms": DAY_MS}
        tag["snapshot-id"] = table.metadata.refs["main"].snapshot_id
        scene.others.commit_table(table, (), (SetSnapshotRefUpdate.model_validate(tag),))
        found = search(scene.others.load_table(IDENTIFIER).metadata, process_id, publisher.work.plan.keys)
        assert (found.tombstone, found.fenced) == (True, False)
        scene.undone(publisher)
        scene.sweep(in_days=400)
        scene.faults.release()
        assert rows_of(scene.others) == rows

    def test_T1_without_the_fence_the_held_commit_would_have_landed(self, scene: Scene) -> None:
        rows = scene.table_of_age("2", 365)
        scene.held_back()
        scene.faults.release()
        assert rows_of(scene.others) == [*range(10), *rows]

    @pytest.mark.spark
    @pytest.mark.timeout(600)
    @pytest.mark.parametrize("version", ["1", "2"], ids=["v1", "v2"])
    def test_T1_spark_s_own_expiry_of_old_snapshots_lets_nothing_land(
        self, scene: Scene, tmp_path: Path, spark_sql: SparkSql, version: str
    ) -> None:
        """Java takes no metadata that goes back in time, so here expiry is told that it is the year 2100."""
        rows = scene.table_of_age(version, 0)
        publisher = scene.held_back()
        scene.fenced(publisher)
        table = scene.others.load_table(IDENTIFIER)
        name = f"calve-{publisher.work.process_id}"
        past = {
            "ref-name": name,
            "type": "tag",
            "max-ref-age-ms": 1,
            "snapshot-id": table.metadata.refs[name].snapshot_id,
        }
        scene.others.commit_table(table, (), (SetSnapshotRefUpdate.model_validate(past),))
        spark = spark_sql.catalog(
            "lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse"
        )
        shown = ".".join(IDENTIFIER)
        spark.execute(
            f"CALL lake.system.expire_snapshots(table => '{shown}', older_than => TIMESTAMP '2100-01-01', retain_last => 1)"
        )
        assert name not in scene.refs(), "Spark has swept the tag"
        scene.undone(publisher)
        scene.faults.release()
        assert rows_of(scene.others) == rows
        found = spark.query(f"SELECT * FROM lake.{shown}")
        assert found.num_rows == len(rows)

    def test_T1_a_busy_table_is_fenced_between_two_commits_of_others(self, scene: Scene) -> None:
        scene.table_of_age("2", 0)
        publisher = scene.held_back()
        busy = iter(range(3))

        def write() -> None:
            if next(busy, None) is not None:
                append_as_somebody_else(scene.others, range(60, 61))

        scene.faults.before_send = write
        scene.fenced(publisher)
        scene.faults.release()
        assert rows_of(scene.others) == [50, 51, 52, 60, 60, 60]
        metadata = Storage().list(f"{scene.others.load_table(IDENTIFIER).location()}/metadata")
        lists = [uri for uri in metadata if f"-calve-fence-{publisher.work.process_id}.avro" in uri]
        assert len(lists) == 1, "those of the tries that lost are deleted"

    def test_T1_an_export_is_replaced_and_verified_across_a_tombstone(self, scene: Scene) -> None:
        """An empty snapshot is nobody's rows: ownership, counts and totals go on behind it."""
        scene.table_of_age("2", None)
        first = make_work(scene.others, [(1, range(10))])
        Publisher(catalog=scene.others, work=first).run()
        other = make_work(scene.others, [(2, range(20, 30))], keys=(("2", "k2"),))
        scene.faults.arm(HELD)
        publisher = Publisher(catalog=scene.catalog, work=other)
        with pytest.raises(UnknownOutcomeError):
            publisher.attempt()
        scene.fenced(publisher)
        again = make_work(scene.others, [(1, range(12))], content="content-2").with_plan(replace=True)
        answer = Publisher(catalog=scene.others, work=again).run()
        assert isinstance(answer, PublishedSnapshot)
        assert answer.replaced_rows == 10
        assert rows_of(scene.others) == list(range(12))
        head = scene.others.load_table(IDENTIFIER).current_snapshot()
        assert head is not None and head.summary is not None
        assert head.summary["total-records"] == "12"
        late = Publisher(catalog=scene.others, work=make_work(scene.others, [(1, range(12))])).run()
        assert isinstance(late, AlreadyExported)


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergRest]:
    with apache_rest(tmp_path_factory.mktemp("rest")) as server:
        yield server


@pytest.mark.services
class TestRest(OutlastingFences):
    @pytest.fixture
    def scene(self, rest: IcebergRest) -> Iterator[Scene]:
        direct = open_catalog("lake", rest.properties())
        with CatalogProxy(rest.uri) as proxy:
            through = open_catalog("lake", rest.properties(proxy.uri), Limits(call_seconds=2.0))
            location = f"file://{rest.folder}/warehouse/{new_process_id()}"
            yield Scene(catalog=through, faults=proxy, others=direct, location=location, backdates=False)
            through.close()
        direct.drop_table(IDENTIFIER)
        direct.close()


RENAMED = ("ns", "renamed")


@pytest.mark.parametrize("namespace", [("ns",), ("elsewhere",)], ids=["in its namespace", "to another one"])
class TestRenamed:
    """T12: "no such table" after a commit was sent says nothing about the commit."""

    def test_T12_a_commit_that_landed_is_found_under_the_new_name(
        self, catalog: FaultySqlCatalog, namespace: tuple[str, ...]
    ) -> None:
        new = self._namespace(catalog, namespace)
        publisher = Publisher(catalog=catalog, work=make_work(catalog, [(1, range(10))]))
        catalog.arm(Fault(told=Told.TIMEOUT, landing=Landing.LANDED, reading=Reading.UNREADABLE, looks=1))
        with pytest.raises(UnknownOutcomeError):
            publisher.attempt()
        catalog.rename_table(IDENTIFIER, new)
        answer = publisher.attempt()
        assert isinstance(answer, PublishedSnapshot)
        assert fence(catalog, publisher.work.process_id, publisher.work.plan, publisher.noted) == answer
        work = publisher.work
        done = undo(catalog, Storage(), work.process_id, work.plan, work.receipts, publisher.noted)
        assert done.reason == "they are published"
        assert rows_of(catalog, new) == list(range(10))

    def test_T12_one_that_did_not_is_fenced_there_and_the_export_says_where_the_table_is(
        self, catalog: FaultySqlCatalog, namespace: tuple[str, ...]
    ) -> None:
        new = self._namespace(catalog, namespace)
        publisher = Publisher(catalog=catalog, work=make_work(catalog, [(1, range(10))]))
        catalog.arm(HELD)
        with pytest.raises(UnknownOutcomeError):
            publisher.attempt()
        catalog.rename_table(IDENTIFIER, new)
        with pytest.raises(PermanentError, match=f"was renamed to {'.'.join(new)}"):
            publisher.attempt()
        work = publisher.work
        assert isinstance(fence(catalog, work.process_id, work.plan, publisher.noted), PublishFenced)
        catalog.rename_table(new, IDENTIFIER)
        catalog.release()
        assert rows_of(catalog) == []

    def _namespace(self, catalog: FaultySqlCatalog, namespace: tuple[str, ...]) -> tuple[str, ...]:
        catalog.create_namespace_if_not_exists(namespace)
        return (*namespace, "renamed")


def test_T12_a_catalog_that_cannot_be_listed_leaves_the_outcome_unknown(
    catalog: FaultySqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = Publisher(catalog=catalog, work=make_work(catalog, [(1, range(10))]))
    catalog.arm(HELD)
    with pytest.raises(UnknownOutcomeError):
        publisher.attempt()
    catalog.rename_table(IDENTIFIER, RENAMED)

    def refuse(*_: object) -> None:
        raise RESTError("listing is not allowed")

    monkeypatch.setattr(catalog, "list_tables", refuse)
    work = publisher.work
    for _ in range(2):
        with pytest.raises(UnknownOutcomeError, match="whether it was renamed is not known"):
            publisher.attempt()
        with pytest.raises(UnknownOutcomeError, match="whether it was renamed is not known"):
            fence(catalog, work.process_id, work.plan, publisher.noted)
    assert Storage().exists(work.receipts[0].files[0].path)


def test_T12_a_table_that_was_dropped_ends_it(catalog: FaultySqlCatalog) -> None:
    publisher = Publisher(catalog=catalog, work=make_work(catalog, [(1, range(10))]))
    catalog.arm(HELD)
    with pytest.raises(UnknownOutcomeError):
        publisher.attempt()
    catalog.drop_table(IDENTIFIER)
    make_table(catalog)
    work = publisher.work
    with pytest.raises(PermanentError) as ended:
        publisher.attempt()
    assert ended.value.code == "destination_dropped"
    assert isinstance(fence(catalog, work.process_id, work.plan, publisher.noted), PublishFenced)
