"""A process is published once, and says so ever after."""

import json
from dataclasses import replace

import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ForbiddenError
from pyiceberg.table.update import RemovePropertiesUpdate, RemoveSnapshotRefUpdate, RemoveSnapshotsUpdate
from pyiceberg.transforms import MonthTransform
from pyiceberg.types import IntegerType, LongType, StringType, TimestampType

from calve.iceberg.publish import AlreadyExported, PublishedSnapshot, fence, find_export, publish
from calve.model.errors import (
    NotFoundError,
    PermanentError,
    RefusedError,
    TemporaryError,
    UnknownOutcomeError,
)
from calve.objects.storage import Storage
from support.catalog_faults import FaultySqlCatalog
from support.lake import IDENTIFIER, make_table, make_work, rows_of
from support.outcomes import Publisher, append_as_somebody_else, assert_published_once


def test_a_publish_adds_one_snapshot_one_tag_and_one_property(catalog: FaultySqlCatalog) -> None:
    work = make_work(catalog, [(1, range(10)), (2, range(10, 15))])
    publisher = Publisher(catalog=catalog, work=work)
    answer = publisher.attempt()
    assert isinstance(answer, PublishedSnapshot)
    assert rows_of(catalog) == list(range(15))
    table = catalog.load_table(IDENTIFIER)
    assert [str(s.snapshot_id) for s in table.metadata.snapshots] == [answer.snapshot_id]
    tag = table.metadata.refs[f"calve-{work.process_id}"]
    assert (str(tag.snapshot_id), tag.max_ref_age_ms) == (answer.snapshot_id, 30 * 86_400_000)
    assert answer.snapshot_id in publisher.noted
    earlier = find_export(table, "k-202401")
    assert earlier is not None
    assert (earlier.process_id, earlier.rows, earlier.content) == (work.process_id, 15, "content-1")
    summary = table.metadata.snapshots[0].summary
    assert summary is not None
    assert summary["calve.process-id"] == work.process_id
    assert (summary["total-records"], summary["total-data-files"]) == ("15", "2")


def test_totals_follow_those_of_other_writers(catalog: FaultySqlCatalog) -> None:
    append_as_somebody_else(catalog, range(50, 53))
    Publisher(catalog=catalog, work=make_work(catalog, [(1, range(10))])).run()
    snapshot = catalog.load_table(IDENTIFIER).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert (snapshot.summary["total-records"], snapshot.summary["total-data-files"]) == ("13", "2")
    assert (snapshot.summary["added-records"], snapshot.summary["changed-partition-count"]) == ("10", "1")


def test_statistics_and_partitions_of_the_receipts_prune_files(catalog: FaultySqlCatalog) -> None:
    Publisher(catalog=catalog, work=make_work(catalog, [(1, range(10)), (None, range(10, 15))])).run()
    table = catalog.load_table(IDENTIFIER)
    assert len(list(table.scan("id >= 10").plan_files())) == 1
    assert len(list(table.scan("month is null").plan_files())) == 1
    assert len(list(table.scan("month = 7").plan_files())) == 0
    assert sorted(table.scan("month is null").to_arrow()["id"].to_pylist()) == list(range(10, 15))


@pytest.mark.parametrize("version", ["1", "2"])
def test_tables_of_both_writable_formats_take_several_exports(
    catalog: FaultySqlCatalog, version: str
) -> None:
    catalog.drop_table(IDENTIFIER)
    make_table(catalog, properties={"format-version": version})
    for number in range(3):
        ids = range(number * 10, number * 10 + 10)
        work = make_work(catalog, [(number, ids)], keys=((str(number), f"k{number}"),))
        assert isinstance(Publisher(catalog=catalog, work=work).run(), PublishedSnapshot)
    table = catalog.load_table(IDENTIFIER)
    assert table.metadata.format_version == int(version)
    assert rows_of(catalog) == list(range(30))
    append_as_somebody_else(catalog, range(50, 53))
    assert rows_of(catalog) == [*range(30), *range(50, 53)]


def test_an_export_of_no_rows_leaves_its_marks_and_no_file(catalog: FaultySqlCatalog) -> None:
    work = make_work(catalog, [(1, range(0))])
    answer = Publisher(catalog=catalog, work=work).run()
    assert isinstance(answer, PublishedSnapshot)
    assert (answer.rows, answer.files) == (0, 0)
    assert rows_of(catalog) == []
    assert_published_once(catalog, work.process_id)


def test_retention_set_on_main_survives_a_publish(catalog: FaultySqlCatalog) -> None:
    append_as_somebody_else(catalog, range(50, 53))
    table = catalog.load_table(IDENTIFIER)
    head = table.metadata.refs["main"].snapshot_id
    with table.manage_snapshots() as manage:
        manage.create_branch(
            head, "main", max_ref_age_ms=None, max_snapshot_age_ms=777, min_snapshots_to_keep=3
        )
    Publisher(catalog=catalog, work=make_work(catalog, [(1, range(10))])).run()
    main = catalog.load_table(IDENTIFIER).metadata.refs["main"]
    assert (main.max_snapshot_age_ms, main.min_snapshots_to_keep) == (777, 3)


def test_a_note_that_cannot_be_written_means_nothing_is_sent(catalog: FaultySqlCatalog) -> None:
    work = make_work(catalog, [(1, range(10))])

    def refuse(_: str) -> None:
        raise PermanentError("another worker owns it", code="fence_lost")

    with pytest.raises(PermanentError, match="another worker"):
        publish(catalog, work.process_id, work.plan, work.receipts, "", refuse)
    assert catalog.sends == 0
    assert rows_of(catalog) == []


def test_P9_a_send_that_is_refused_for_certain_takes_its_note_back(
    catalog: FaultySqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the process can fail at once, without a fence that the same catalog would refuse as well."""
    work = make_work(catalog, [(1, range(10))])
    publisher = Publisher(catalog=catalog, work=work)

    def forbid(*_: object) -> None:
        raise ForbiddenError("no")

    with monkeypatch.context() as patched:
        patched.setattr(catalog, "commit_table", forbid)
        with pytest.raises(PermanentError, match="no"):
            publisher.attempt()
    assert publisher.noted == ""
    publisher.run()
    assert_published_once(catalog, work.process_id)


def test_P9_a_refused_send_settles_nothing_while_an_earlier_one_is_owed(
    catalog: FaultySqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = Publisher(catalog=catalog, work=make_work(catalog, [(1, range(10))]))
    answers = iter([CommitStateUnknownException("lost"), ForbiddenError("no")])

    def refuse(*_: object) -> None:
        raise next(answers)

    monkeypatch.setattr(catalog, "commit_table", refuse)
    for _ in range(2):
        with pytest.raises(UnknownOutcomeError):
            publisher.attempt()
    assert publisher.noted.count("snapshot_id") == 2


def test_a_lost_race_is_tidied_up_after_the_win(catalog: FaultySqlCatalog) -> None:
    publisher = Publisher(catalog=catalog, work=make_work(catalog, [(1, range(10))]))

    def be_overtaken_once() -> None:
        catalog.before_send = lambda: None
        append_as_somebody_else(catalog, range(50, 53))

    catalog.before_send = be_overtaken_once
    publisher.run()
    assert [error.code for error in publisher.errors] == ["publish_conflict"]
    table = catalog.load_table(IDENTIFIER)
    ours = [uri for uri in Storage().list(f"{table.location()}/metadata") if publisher.work.process_id in uri]
    assert len([uri for uri in ours if uri.endswith(".avro")]) == 2  # a manifest and a list, of one attempt
    assert rows_of(catalog) == [*range(10), *range(50, 53)]


def test_L8_every_path_is_the_full_uri_of_the_receipt(catalog: FaultySqlCatalog) -> None:
    work = make_work(catalog, [(1, range(10))])
    Publisher(catalog=catalog, work=work).run()
    table = catalog.load_table(IDENTIFIER)
    (task,) = table.scan().plan_files()
    assert task.file.file_path == work.receipts[0].files[0].path
    assert task.file.file_path.startswith("file:///")
    assert work.plan.destination.receipts_location == f"{table.location()}/metadata/calve"


def test_L11_published_then_the_schema_changed_still_answers_published(catalog: FaultySqlCatalog) -> None:
    publisher = Publisher(catalog=catalog, work=make_work(catalog, [(1, range(10))]))
    answer = publisher.attempt()
    with catalog.load_table(IDENTIFIER).update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("name")
    assert publisher.attempt() == answer
    assert rows_of(catalog) == list(range(10))


def test_L14_attempts_that_all_conflict_are_never_a_success(catalog: FaultySqlCatalog) -> None:
    publisher = Publisher(catalog=catalog, work=make_work(catalog, [(1, range(10))]))
    number = iter(range(1000))
    catalog.before_send = lambda: (
        append_as_somebody_else(catalog, range(50, 51)) if next(number) % 2 == 0 else None
    )
    with pytest.raises(TemporaryError) as raised:
        publisher.run(attempts=3)
    assert raised.value.code == "publish_conflict"
    assert len(publisher.errors) == 3
    assert set(rows_of(catalog)) == {50}


def test_L16_publishing_reads_neither_the_source_nor_a_data_file(catalog: FaultySqlCatalog) -> None:
    work = make_work(catalog, [(1, range(10))])
    storage = Storage()
    path = work.receipts[0].files[0].path
    data = storage.read(path)
    storage.delete([path])
    Publisher(catalog=catalog, work=work).run()
    storage.put_if_absent(path, data)
    assert rows_of(catalog) == list(range(10))


def test_L17_a_failed_publish_says_which_table_and_why(catalog: FaultySqlCatalog) -> None:
    work = make_work(catalog, [(1, range(10))])
    catalog.drop_table(IDENTIFIER)
    with pytest.raises(NotFoundError, match=r"no table ns\.events"):
        Publisher(catalog=catalog, work=work).run()


def test_L18_a_fence_after_the_publish_finds_it_and_one_before_it_stands(catalog: FaultySqlCatalog) -> None:
    first = Publisher(catalog=catalog, work=make_work(catalog, [(1, range(10))]))
    answer = first.attempt()
    assert fence(catalog, first.work.process_id, first.work.plan, first.noted) == answer
    second = make_work(catalog, [(2, range(10, 20))], keys=(("2", "k2"),))
    fenced = fence(catalog, second.process_id, second.plan, "")
    assert fence(catalog, second.process_id, second.plan, "") == fenced
    with pytest.raises(PermanentError) as refused:
        Publisher(catalog=catalog, work=second).run()
    assert refused.value.code == "publish_fenced"
    assert rows_of(catalog) == list(range(10))


def test_L19_metadata_written_and_the_catalog_not_updated_blocks_nobody(
    catalog: FaultySqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = make_work(catalog, [(1, range(10))])

    class Killed(BaseException):
        pass

    def die_after_writing(**given: object) -> None:
        written(**given)  # type: ignore[arg-type]
        raise Killed

    written = catalog._write_metadata
    monkeypatch.setattr(catalog, "_write_metadata", die_after_writing)
    with pytest.raises(Killed):
        Publisher(catalog=catalog, work=work).attempt()
    monkeypatch.undo()
    append_as_somebody_else(catalog, range(50, 53))
    Publisher(catalog=catalog, work=work).run()
    assert rows_of(catalog) == [*range(10), *range(50, 53)]
    assert_published_once(catalog, work.process_id)


def test_L27_snapshot_times_never_go_backwards(catalog: FaultySqlCatalog) -> None:
    hour_ahead = 4_000_000_000_000
    for number, now_ms in enumerate([hour_ahead, hour_ahead - 3_600_000, 1]):
        work = make_work(catalog, [(number, range(number, number + 1))], keys=((str(number), f"k{number}"),))
        publish(catalog, work.process_id, work.plan, work.receipts, "", lambda _: None, now_ms=now_ms)
    metadata = catalog.load_table(IDENTIFIER).metadata
    times = [entry.timestamp_ms for entry in metadata.snapshot_log]
    assert times == [hour_ahead, hour_ahead + 1, hour_ahead + 2]
    assert [snapshot.timestamp_ms for snapshot in metadata.snapshots] == times


def test_P8_a_publish_whose_tag_and_snapshot_are_expired_is_still_known(catalog: FaultySqlCatalog) -> None:
    publisher = Publisher(catalog=catalog, work=make_work(catalog, [(1, range(10))]))
    answer = publisher.attempt()
    assert isinstance(answer, PublishedSnapshot)
    _expire(catalog, publisher.work.process_id, int(answer.snapshot_id))
    again = publisher.attempt()
    assert isinstance(again, PublishedSnapshot)
    assert (again.snapshot_id, again.rows, again.expired) == (answer.snapshot_id, 10, True)
    late = make_work(catalog, [(1, range(10))])
    assert isinstance(Publisher(catalog=catalog, work=late).run(), AlreadyExported)
    assert rows_of(catalog) == [*range(10), *range(50, 53)]


def test_P8_where_no_mark_can_prove_it_the_publish_is_refused(catalog: FaultySqlCatalog) -> None:
    append_as_somebody_else(catalog, range(60, 61))
    publisher = Publisher(catalog=catalog, work=make_work(catalog, [(1, range(10))]))
    # Sent long before the tag's age ran out, by this table's own clock.
    publisher_start = 1_000
    publish(
        catalog,
        publisher.work.process_id,
        publisher.work.plan,
        publisher.work.receipts,
        "",
        publisher.note,
        now_ms=publisher_start,
    )
    publisher.noted = publisher.noted.replace('"timestamp_ms":', '"timestamp_ms":1,"was":')
    answer = catalog.load_table(IDENTIFIER).current_snapshot()
    assert answer is not None
    _expire(catalog, publisher.work.process_id, answer.snapshot_id)
    table = catalog.load_table(IDENTIFIER)
    catalog.commit_table(table, (), (RemovePropertiesUpdate(removals=["calve.export.k-202401"]),))
    with pytest.raises(RefusedError) as refused:
        publisher.attempt()
    assert refused.value.code == "publish_unprovable"


def _expire(catalog: FaultySqlCatalog, process_id: str, snapshot_id: int) -> None:
    append_as_somebody_else(catalog, range(50, 53))
    table = catalog.load_table(IDENTIFIER)
    catalog.commit_table(
        table,
        (),
        (
            RemoveSnapshotRefUpdate.model_validate({"ref-name": f"calve-{process_id}"}),
            RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [snapshot_id]}),
        ),
    )


def test_D1_two_stores_that_know_nothing_of_each_other_publish_a_key_once(catalog: FaultySqlCatalog) -> None:
    ours, theirs = (make_work(catalog, [(1, range(10))]) for _ in range(2))
    answer = Publisher(catalog=catalog, work=ours).run()
    other = Publisher(catalog=catalog, work=theirs).run()
    assert isinstance(answer, PublishedSnapshot)
    assert isinstance(other, AlreadyExported)
    assert other.unchanged
    assert (other.exports[0].process_id, other.exports[0].snapshot_id) == (
        ours.process_id,
        answer.snapshot_id,
    )
    assert rows_of(catalog) == list(range(10))


def test_D1_a_lost_acknowledgement_then_a_retry_under_a_new_id_publishes_nothing(
    catalog: FaultySqlCatalog,
) -> None:
    first = Publisher(catalog=catalog, work=make_work(catalog, [(1, range(10))]))
    first.attempt()
    retry = make_work(catalog, [(1, range(10))], content="changed meanwhile")
    answer = Publisher(catalog=catalog, work=retry).run()
    assert isinstance(answer, AlreadyExported)
    assert not answer.unchanged
    assert rows_of(catalog) == list(range(10))


def test_D1_a_store_restored_from_yesterday_finds_the_publish_without_its_note(
    catalog: FaultySqlCatalog,
) -> None:
    publisher = Publisher(catalog=catalog, work=make_work(catalog, [(1, range(10))]))
    answer = publisher.attempt()
    publisher.noted = ""
    assert publisher.attempt() == answer
    assert rows_of(catalog) == list(range(10))


def test_some_keys_published_by_another_are_refused_by_name(catalog: FaultySqlCatalog) -> None:
    Publisher(catalog=catalog, work=make_work(catalog, [(1, range(10))], keys=(("1", "k1"),))).run()
    both = make_work(catalog, [(1, range(10)), (2, range(10, 20))], keys=(("1", "k1"), ("2", "k2")))
    with pytest.raises(RefusedError, match="partitions 1 were exported in the meantime"):
        Publisher(catalog=catalog, work=both).run()
    assert rows_of(catalog) == list(range(10))


def test_several_keys_in_one_commit_are_each_remembered(catalog: FaultySqlCatalog) -> None:
    work = make_work(
        catalog,
        [(1, range(10)), (2, range(10, 20)), (2, range(20, 25))],
        keys=(("1", "k1"), ("2", "k2")),
    )
    Publisher(catalog=catalog, work=work).run()
    table = catalog.load_table(IDENTIFIER)
    first, second = find_export(table, "k1"), find_export(table, "k2")
    assert first is not None
    assert second is not None
    assert (first.rows, first.tasks, second.rows, second.tasks) == (10, (0,), 15, (1, 2))
    assert find_export(table, "k3") is None


def test_a_mark_that_somebody_damaged_is_refused_not_guessed(catalog: FaultySqlCatalog) -> None:
    with catalog.load_table(IDENTIFIER).transaction() as change:
        change.set_properties({"calve.export.k-202401": "gone"})
    with pytest.raises(RefusedError, match="does not read as an export"):
        Publisher(catalog=catalog, work=make_work(catalog, [(1, range(10))])).run()


def test_the_catalog_refuses_a_second_publish_by_itself(catalog: FaultySqlCatalog) -> None:
    """The assertions travel with the request: without any search, a repeat still fails."""
    append_as_somebody_else(catalog, range(50, 53))
    work = make_work(catalog, [(1, range(10))])
    requests = []
    really = catalog.really_commit
    catalog.really_commit = lambda *request: requests.append(request) or really(*request)  # type: ignore
    Publisher(catalog=catalog, work=work).run()
    table, requirements, updates = requests[-1]
    with pytest.raises(CommitFailedException):
        really(table, requirements, updates)
    only_tag = tuple(item for item in requirements if getattr(item, "ref", "main") != "main")
    assert len(only_tag) == 1
    with pytest.raises(CommitFailedException, match="created concurrently"):
        really(table, only_tag, updates)


CHANGES = {
    "dropped": lambda change: change.delete_column("name"),
    "is required": lambda change: change.add_column("extra", IntegerType(), required=True),
    "made required": lambda change: change.update_column("name", required=True),
}


@pytest.mark.parametrize("words", CHANGES)
def test_a_schema_change_that_breaks_the_plan_fails_naming_it(catalog: FaultySqlCatalog, words: str) -> None:
    work = make_work(catalog, [(1, range(10))])
    with catalog.load_table(IDENTIFIER).update_schema(allow_incompatible_changes=True) as change:
        CHANGES[words](change)
    with pytest.raises(PermanentError, match=words):
        Publisher(catalog=catalog, work=work).run()


def test_a_schema_change_that_keeps_the_plans_columns_is_fine(catalog: FaultySqlCatalog) -> None:
    work = make_work(catalog, [(1, range(10))])
    with catalog.load_table(IDENTIFIER).update_schema() as change:
        change.add_column("extra", StringType())
    Publisher(catalog=catalog, work=work).run()
    found = catalog.load_table(IDENTIFIER).scan().to_arrow()
    assert sorted(found["id"].to_pylist()) == list(range(10))
    assert found["extra"].null_count == 10


def test_a_renamed_and_a_promoted_column_are_fine(catalog: FaultySqlCatalog) -> None:
    work = make_work(catalog, [(1, range(10))])
    with catalog.load_table(IDENTIFIER).update_schema() as change:
        change.rename_column("name", "label")
        change.update_column("month", LongType())
    Publisher(catalog=catalog, work=work).run()
    found = catalog.load_table(IDENTIFIER).scan("month >= 1").to_arrow().sort_by("id")
    assert found["label"].to_pylist() == [f"row {number}" for number in range(10)]
    assert found["month"].to_pylist() == [1] * 10


def test_a_changed_default_spec_is_written_with_the_plans_spec(catalog: FaultySqlCatalog) -> None:
    work = make_work(catalog, [(1, range(10))])
    with catalog.load_table(IDENTIFIER).update_schema() as change:
        change.add_column("at", TimestampType())
    with catalog.load_table(IDENTIFIER).update_spec() as spec:
        spec.add_field("at", MonthTransform())
    Publisher(catalog=catalog, work=work).run()
    table = catalog.load_table(IDENTIFIER)
    (task,) = table.scan("month = 1").plan_files()
    assert task.file.spec_id == work.plan.destination.spec_id != table.spec().spec_id
    assert rows_of(catalog) == list(range(10))


def test_a_table_made_again_under_its_name_is_not_written_to(catalog: FaultySqlCatalog) -> None:
    work = make_work(catalog, [(1, range(10))])
    catalog.drop_table(IDENTIFIER)
    make_table(catalog)
    with pytest.raises(PermanentError) as refused:
        Publisher(catalog=catalog, work=work).run()
    assert refused.value.code == "destination_replaced"
    assert rows_of(catalog) == []


@pytest.mark.parametrize("others", [0, 30], ids=["one partition", "more than are looked for in the text"])
def test_D8_a_publish_finds_an_overlap_whatever_the_partition_is_called(
    catalog: FaultySqlCatalog, others: int
) -> None:
    partition = "(\"Zürich\\\\\",'月')"

    def selected(selection: str, first: int) -> Publisher:
        texts = {"k-new": partition, **{f"k-{first}-{number}": f"p{number}" for number in range(others)}}
        if selection:
            texts["k-old"] = texts.pop("k-new")
        work = make_work(
            catalog, [(1, range(first, first + 1))], keys=[(name, key) for key, name in texts.items()]
        )
        keys = [
            replace(key, text=json.dumps(["s/t", key.partition, selection, "u"])) for key in work.plan.keys
        ]
        return Publisher(catalog=catalog, work=work.with_plan(keys=tuple(keys), refuse_overlap=True))

    assert isinstance(selected('{"where": "id < 5"}', 0).attempt(), PublishedSnapshot)
    with pytest.raises(RefusedError, match="exported before with another selection"):
        selected("", 10).attempt()
