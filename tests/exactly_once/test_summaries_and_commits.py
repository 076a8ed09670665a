"""What a snapshot says of itself, and what a commit asks of the catalog, to the last number."""

import sys
import time

import pytest
from pyiceberg.exceptions import CommitFailedException, ForbiddenError, UnauthorizedError
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import AssertRefSnapshotId, RemovePropertiesUpdate, SetSnapshotRefUpdate
from requests import HTTPError, Response

from calve.iceberg.publish import PublishedSnapshot, find_export
from calve.iceberg.publish.build import build_empty, next_timestamp_ms
from calve.iceberg.publish.commit import CommitAnswer, publish_commit, send, tag_commit
from calve.model.errors import UnknownOutcomeError
from support.catalog_faults import FaultySqlCatalog
from support.lake import IDENTIFIER, Work, make_work
from support.outcomes import Publisher, append_as_somebody_else

TOTALS = ("data-files", "delete-files", "records", "files-size", "position-deletes", "equality-deletes")


def published(catalog: FaultySqlCatalog, work: Work) -> dict[str, str]:
    """The summary of its snapshot."""
    Publisher(catalog=catalog, work=work).run()
    snapshot = catalog.load_table(IDENTIFIER).current_snapshot()
    assert snapshot is not None and snapshot.summary is not None
    return {"operation": snapshot.summary.operation.value, **snapshot.summary.additional_properties}


def test_totals_add_up_from_snapshot_to_snapshot_and_a_replace_takes_away(catalog: FaultySqlCatalog) -> None:
    first = published(catalog, make_work(catalog, [(1, range(10)), (2, range(10, 15))]))
    size = int(first["added-files-size"])
    assert [first[f"total-{name}"] for name in TOTALS] == ["2", "0", "15", str(size), "0", "0"]
    assert (first["operation"], first["changed-partition-count"]) == (Operation.APPEND.value, "2")
    assert "deleted-records" not in first
    second = published(catalog, make_work(catalog, [(3, range(20, 27))], keys=(("202402", "k-202402"),)))
    more = int(second["added-files-size"])
    assert [second[f"total-{name}"] for name in TOTALS] == ["3", "0", "22", str(size + more), "0", "0"]
    again = make_work(catalog, [(4, range(30, 34))], content="content-2").with_plan(
        replace=True, allow_shrink=True
    )
    third = published(catalog, again)
    less, new = int(third["removed-files-size"]), int(third["added-files-size"])
    assert less == size
    assert [third[f"total-{name}"] for name in TOTALS] == ["2", "0", "11", str(more + new), "0", "0"]
    assert (third["operation"], third["deleted-data-files"], third["deleted-records"]) == (
        Operation.OVERWRITE.value, "2", "15",
    )  # fmt: skip
    assert third["changed-partition-count"] == "3", "what came and what went"
    table = catalog.load_table(IDENTIFIER)
    export = find_export(table, "k-202401")
    assert export is not None and export.sequence == 3, "of the snapshot that published it last"
    snapshots = table.metadata.snapshots
    assert [one.parent_snapshot_id for one in snapshots] == [
        None,
        *(one.snapshot_id for one in snapshots[:-1]),
    ]


def test_L27_a_snapshot_is_later_than_every_other_and_not_later_than_it_must_be(
    catalog: FaultySqlCatalog,
) -> None:
    empty = catalog.load_table(IDENTIFIER).metadata
    before = int(time.time() * 1000)
    assert before <= next_timestamp_ms(empty) <= int(time.time() * 1000)
    append_as_somebody_else(catalog, range(3))
    append_as_somebody_else(catalog, range(3, 6))
    metadata = catalog.load_table(IDENTIFIER).metadata
    newest = max(one.timestamp_ms for one in metadata.snapshots)
    assert next_timestamp_ms(metadata, 0) == newest + 1
    assert next_timestamp_ms(metadata, newest + 5) == newest + 5


def test_a_publish_takes_back_only_the_properties_that_it_is_told_of(catalog: FaultySqlCatalog) -> None:
    table = catalog.load_table(IDENTIFIER)
    snapshot = build_empty(table, "p")
    for removed in ((), ("a", "b")):
        commit = publish_commit(catalog, table.metadata, "p", snapshot, {"c": "1"}, 60, removed=removed)
        gone = [update.removals for update in commit.updates if isinstance(update, RemovePropertiesUpdate)]
        assert gone == ([["a", "b"]] if removed else [])


def test_D2_a_publish_asserts_that_its_tag_is_absent_once_the_catalog_can_check_it(
    catalog: FaultySqlCatalog,
) -> None:
    for snapshots in (0, 1):
        table = catalog.load_table(IDENTIFIER)
        commit = publish_commit(catalog, table.metadata, "p", build_empty(table, "p"), {}, 60)
        asserted = {
            one.ref: one.snapshot_id for one in commit.requirements if isinstance(one, AssertRefSnapshotId)
        }
        head = table.metadata.snapshots[-1].snapshot_id if snapshots else None
        assert asserted == ({"main": None} if not snapshots else {"main": head, "calve-p": None})
        append_as_somebody_else(catalog, range(3))


def test_a_tag_that_is_to_last_has_the_greatest_age_that_java_can_read(catalog: FaultySqlCatalog) -> None:
    append_as_somebody_else(catalog, range(3))
    metadata = catalog.load_table(IDENTIFIER).metadata
    [update] = tag_commit(metadata, "t", metadata.snapshots[0].snapshot_id).updates
    assert isinstance(update, SetSnapshotRefUpdate)
    assert update.max_ref_age_ms == 9_223_372_036_854_775_807


def _status(code: int) -> Exception:
    response = Response()
    response.status_code = code
    error = RuntimeError("the catalog refuses")
    error.__cause__ = HTTPError(response=response)
    return error


ANSWERS: dict[str, tuple[Exception, CommitAnswer]] = {
    "401": (_status(401), CommitAnswer.REFUSED),
    "403": (_status(403), CommitAnswer.REFUSED),
    "419": (_status(419), CommitAnswer.REFUSED),
    "unauthorized": (UnauthorizedError("who are you"), CommitAnswer.REFUSED),
    "forbidden": (ForbiddenError("not you"), CommitAnswer.REFUSED),
    "404": (_status(404), CommitAnswer.UNKNOWN),
    "500": (_status(500), CommitAnswer.UNKNOWN),
    "conflict": (CommitFailedException("main has moved"), CommitAnswer.CONFLICT),
}


@pytest.mark.parametrize(("error", "answer"), ANSWERS.values(), ids=ANSWERS)
def test_T12_what_an_answer_means_and_that_its_words_are_kept(
    catalog: FaultySqlCatalog, monkeypatch: pytest.MonkeyPatch, error: Exception, answer: CommitAnswer
) -> None:
    append_as_somebody_else(catalog, range(3))
    table = catalog.load_table(IDENTIFIER)

    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(catalog, "commit_table", refuse)
    reply = send(catalog, table, tag_commit(table.metadata, "t", None), "tagging")
    assert reply.answer is answer
    assert reply.error is not None and "tagging" in reply.error.message


def test_a_snapshot_that_cannot_be_read_back_is_not_called_published(
    catalog: FaultySqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = Publisher(catalog=catalog, work=make_work(catalog, [(1, range(3))]))

    def gone(*_: object) -> None:
        raise ConnectionError("the storage is away")

    with monkeypatch.context() as patch, pytest.raises(UnknownOutcomeError):
        patch.setattr(sys.modules["calve.iceberg.publish.publish"], "manifests_of", gone)
        publisher.attempt()
    assert isinstance(publisher.attempt(), PublishedSnapshot)
