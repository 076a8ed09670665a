"""A key of plain Parquet is published once, whoever tries, whatever is lost on the way."""

import json
import threading
from pathlib import Path

import pytest
from plain_place import (
    Attempt,
    LosesTheAnswer,
    PlainPlace,
    commits_in,
    folder_at,
    globbed,
    listed,
    rows_of,
)

from calve.destination.outcome import AlreadyExported, PublishedSnapshot, PublishFenced
from calve.model.errors import CalveError, PermanentError, RefusedError, UnknownOutcomeError
from calve.model.states import ProcessState
from calve.parquet.publish import fence, publish, undo


class Notes:
    """The control plane's row: a note is durable before anything is sent."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text = text


@pytest.fixture
def unpublished(place: PlainPlace, out: Path) -> Attempt:
    """Files and receipts of a real export whose commit is not there yet."""
    attempt = place.attempt(place.one(out).id)
    for file in (out / "_calve" / "commits").iterdir():
        file.unlink()
    return attempt


def send(
    attempt: Attempt, out: Path, notes: Notes | None = None, **given: object
) -> PublishedSnapshot | AlreadyExported:
    notes = notes or Notes()
    folder = folder_at(out, **given)  # type: ignore[arg-type]
    return publish(folder, attempt.process_id, attempt.plan, attempt.receipts, notes.text, notes.write)


def test_an_export_is_one_commit_that_lists_every_file(place: PlainPlace, out: Path) -> None:
    process = place.one(out)
    assert process.state is ProcessState.COMPLETED
    [commit] = commits_in(out).values()
    assert commit["process"] == process.id
    assert commit["rows"] == process.rows == 50
    assert sorted(listed(out)) == sorted(globbed(out))
    assert sorted(rows_of(listed(out)).column("id").to_pylist()) == list(range(50))


def test_what_is_exported_and_unchanged_is_not_exported_again(place: PlainPlace, out: Path) -> None:
    place.one(out)
    assert place.export("db.events", "1", to=place.to(out)) == []
    assert len(commits_in(out)) == 1


def test_D1_a_process_of_another_store_finds_the_key_taken(unpublished: Attempt, out: Path) -> None:
    first = send(unpublished, out)
    assert isinstance(first, PublishedSnapshot)
    second = send(unpublished.of_another("another"), out)
    assert isinstance(second, AlreadyExported)
    assert second.unchanged
    assert second.exports[0].process_id == unpublished.process_id
    assert len(commits_in(out)) == 1


def test_L13_publishers_that_race_publish_once(unpublished: Attempt, out: Path) -> None:
    attempts = [unpublished, unpublished, unpublished.of_another("b"), unpublished.of_another("c")]
    start = threading.Barrier(len(attempts))
    answers: list[object] = []

    def run(attempt: Attempt) -> None:
        start.wait()
        try:
            answers.append(send(attempt, out))
        except CalveError as error:
            answers.append(error)

    threads = [threading.Thread(target=run, args=(attempt,)) for attempt in attempts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [commit] = commits_in(out).values()
    winners = {one.process_id for one in answers if isinstance(one, PublishedSnapshot)}
    assert winners == {commit["process"]}
    assert all(isinstance(one, PublishedSnapshot | AlreadyExported) for one in answers), answers


def test_a_lost_answer_is_unknown_and_then_found(unpublished: Attempt, out: Path) -> None:
    notes = Notes()
    with pytest.raises(UnknownOutcomeError):
        send(unpublished, out, notes, storage=LosesTheAnswer())
    again = send(unpublished, out, notes)
    assert isinstance(again, PublishedSnapshot)
    assert again.rows == 50
    assert list(commits_in(out)) == [f"{unpublished.key}.0.json"]


def test_a_note_that_is_refused_sends_nothing(unpublished: Attempt, out: Path) -> None:
    def refused(text: str) -> None:
        raise PermanentError("another worker owns the process", code="fence_lost")

    with pytest.raises(PermanentError):
        publish(folder_at(out), unpublished.process_id, unpublished.plan, unpublished.receipts, "", refused)
    assert commits_in(out) == {}


def test_D2_a_put_that_comes_after_the_fence_is_refused(unpublished: Attempt, out: Path) -> None:
    """The worker noted, stopped before its put, and woke up after its process was ended."""
    notes, folder = Notes(), folder_at(out)

    def stops(text: str) -> None:
        notes.write(text)
        answer = fence(folder, unpublished.process_id, unpublished.plan, notes.text)
        assert isinstance(answer, PublishFenced)

    with pytest.raises(PermanentError) as told:
        publish(folder, unpublished.process_id, unpublished.plan, unpublished.receipts, "", stops)
    assert told.value.code == "publish_fenced"
    assert listed(out) == []


def test_a_fence_that_comes_too_late_finds_the_commit(unpublished: Attempt, out: Path) -> None:
    notes = Notes()
    send(unpublished, out, notes)
    answer = fence(folder_at(out), unpublished.process_id, unpublished.plan, notes.text)
    assert isinstance(answer, PublishedSnapshot)
    assert answer.rows == 50


def test_after_a_tombstone_another_process_publishes_the_key(unpublished: Attempt, out: Path) -> None:
    fence(folder_at(out), unpublished.process_id, unpublished.plan, '{"generations": [0]}')
    other = unpublished.of_another("another")
    assert isinstance(send(other, out), PublishedSnapshot)
    assert sorted(commits_in(out)) == [f"{other.key}.0.json", f"{other.key}.1.json"]
    assert len(listed(out)) == 1


def test_L21_force_replaces_and_leaves_no_old_file_to_globs(place: PlainPlace, out: Path) -> None:
    first = place.one(out)
    before = listed(out)
    second = place.one(out, force=True)
    assert second.state is ProcessState.COMPLETED
    assert second.id != first.id
    assert sorted(commit["generation"] for commit in commits_in(out).values()) == [0, 1]
    assert not set(before) & set(globbed(out))
    assert sorted(rows_of(globbed(out)).column("id").to_pylist()) == list(range(50))
    assert listed(out) == globbed(out)


def test_L21_a_cancel_that_finds_the_replacement_published_leaves_no_old_file_to_globs(
    place: PlainPlace, out: Path
) -> None:
    """The commit was put, deleting what it replaced failed, and the process was cancelled."""
    place.one(out)
    [before] = listed(out)
    content = before.read_bytes()
    second = place.attempt(place.one(out, force=True).id)
    before.write_bytes(content)
    answer = fence(folder_at(out), second.process_id, second.plan, '{"generations": [1]}')
    assert isinstance(answer, PublishedSnapshot)
    assert globbed(out) == listed(out)


def test_L20_undo_deletes_what_no_commit_lists_and_nothing_else(unpublished: Attempt, out: Path) -> None:
    folder = folder_at(out)
    foreign = out / "month=1" / "theirs.parquet"
    foreign.write_bytes(b"PAR1")
    send(unpublished.of_another("a-retry"), out)  # it adopted the files of the first
    undone = undo(folder, unpublished.process_id, unpublished.plan, "")
    assert [uri.removeprefix("file://") for uri in undone.left] == [str(file) for file in listed(out)]
    for file in (out / "_calve" / "commits").iterdir():
        file.unlink()
    undone = undo(folder, unpublished.process_id, unpublished.plan, "")
    assert undone.left == ()
    assert globbed(out) == [foreign]


def test_L23_a_missing_receipt_is_an_error(unpublished: Attempt, out: Path) -> None:
    with pytest.raises(PermanentError) as told:
        publish(folder_at(out), unpublished.process_id, unpublished.plan, [], "", Notes().write)
    assert told.value.code == "receipts_incomplete"
    assert commits_in(out) == {}


@pytest.mark.parametrize(
    "path",
    [
        "file:///{out}/../precious.parquet",
        "file:///{out}-other/calve-x-0-1-0.parquet",
        "file://{out}/precious.parquet",
        "file://{out}/../calve-x-0-1-0.parquet",
        "/etc/passwd",
    ],
)
def test_T9_force_deletes_no_file_that_a_forged_commit_lists(place: PlainPlace, out: Path, path: str) -> None:
    place.one(out)
    [name] = (out / "_calve" / "commits").iterdir()
    commit = json.loads(name.read_text())
    commit["files"][0]["path"] = path.format(out=out)
    name.write_text(json.dumps(commit))
    precious = [
        out / "precious.parquet",
        out.parent / "precious.parquet",
        out.parent / "calve-x-0-1-0.parquet",
    ]
    for file in precious:
        file.write_bytes(b"precious")
    before = set(globbed(out))
    [process] = place.export("db.events", "1", to=place.to(out), force=True)
    assert process.error is not None and process.error.code == "foreign_file", process.error
    assert all(file.exists() for file in precious)
    assert before <= set(globbed(out)) | set(map(str, precious))
    assert len(commits_in(out)) == 1


def test_T10_a_damaged_commit_is_named_and_other_partitions_can_be_exported(
    place: PlainPlace, out: Path
) -> None:
    place.one(out)
    [commit] = (out / "_calve" / "commits").iterdir()
    whole = commit.read_text()
    commit.write_text(whole[:100])
    with pytest.raises(RefusedError, match=commit.name) as refused:
        place.export("db.events", "2", to=place.to(out))
    assert refused.value.code == "mark_unreadable" and "--allow-overlap" in refused.value.hint
    assert place.one(out, "2", allow_overlap=True).state is ProcessState.COMPLETED
    for option in (False, True):  # its own partition may be there already: never doubled
        with pytest.raises(RefusedError, match=commit.name):
            place.export("db.events", "1", to=place.to(out), allow_overlap=option)
    commit.write_text(whole)
    assert place.export("db.events", "1", to=place.to(out)) == []
    assert len(globbed(out)) == 2
