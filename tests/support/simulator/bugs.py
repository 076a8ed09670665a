"""Mistakes planted one at a time, by patches that the product knows nothing of. Each must be found, or the simulator
looks away. The first ones are those of the model (`formal/README.md`), under the same names.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from importlib import import_module
from typing import Any
from unittest.mock import patch

from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AssertTableUUID

from calve.control import decide as deciding
from calve.control.kind import Fenced
from calve.control.steps import publish as steps
from calve.destination.outcome import PublishedSnapshot
from calve.export.kind import ExportKind
from calve.iceberg.destination import IcebergDestination
from calve.iceberg.publish import commit, marks
from calve.model import apply as applying
from calve.model.errors import CalveError, PermanentError, UnknownOutcomeError

publishing = import_module("calve.iceberg.publish.publish")
fencing = import_module("calve.iceberg.publish.fence")
submitting = import_module("calve.export.submit")
Real = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Bug:
    name: str
    words: str
    storm: str  # "": of any history with exports into Iceberg
    planted: Callable[[], AbstractContextManager[None]]


BUGS: dict[str, Bug] = {}


def bug(
    words: str, storm: str = ""
) -> Callable[[Callable[[], Iterator[None]]], Callable[[], Iterator[None]]]:
    """`storm`: histories of that kind meet it soonest, so it is looked for in no other."""

    def keep(make: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
        BUGS[make.__name__] = Bug(name=make.__name__, words=words, storm=storm, planted=contextmanager(make))
        return make

    return keep


@bug("marks are searched only before the first attempt")
def search_once() -> Iterator[None]:
    real: Real = publishing.search

    def search(metadata: Any, process_id: str, keys: Any, sent: Any = ()) -> Any:
        return (
            replace(real(metadata, process_id, keys, sent), ours=None)
            if sent
            else real(metadata, process_id, keys)
        )

    with patch.object(publishing, "search", search):
        yield


@bug("a commit does not assert that its tag is absent", "rollbacks")
def no_tag_assertion() -> Iterator[None]:
    with patch.object(commit, "_assert_tag", lambda *_: ()):
        yield


@bug("a commit does not assert where main is")
def no_main_assertion() -> Iterator[None]:
    with patch.object(commit, "_assert_main", lambda metadata: AssertTableUUID(uuid=metadata.table_uuid)):
        yield


@bug("the fence sets a tag and leaves main where it is (T1)", "mixed")
def tag_only_fence() -> Iterator[None]:
    real: Real = commit.tombstone_commit

    def tombstone(catalog: Any, metadata: Any, process_id: str, empty: Any, age: int) -> Any:
        made = real(catalog, metadata, process_id, empty, age)
        main = metadata.refs.get(MAIN_BRANCH)
        if main is None:
            return made
        tag = commit._set_ref(marks.tag_of(process_id), main.snapshot_id, age)
        return replace(made, updates=(tag,))

    def settled(table: Any, process_id: str, plan: Any, noted: str) -> Any:
        found = marks.search(table.metadata, process_id, plan.keys, marks.read_note(noted))
        if found.ours is None and marks.tag_of(process_id) in table.metadata.refs:
            return fencing.PublishFenced(tag=marks.tag_of(process_id))
        return found.ours

    with patch.object(fencing, "tombstone_commit", tombstone), patch.object(fencing, "_settled", settled):
        yield


@bug("a process that may have sent a commit ends without a fence")
def no_fence() -> Iterator[None]:
    with patch.object(ExportKind, "fence", lambda *_: Fenced()):
        yield


@bug("files are deleted while the outcome is unknown")
def cleanup_on_unknown() -> Iterator[None]:
    real: Real = IcebergDestination.publish

    def publish(self: Any, process_id: str, plan: Any, receipts: Any, noted: str, note: Any) -> Any:
        try:
            return real(self, process_id, plan, receipts, noted, note)
        except UnknownOutcomeError:
            self.storage().delete(self.files_of(process_id, plan))
            raise

    with patch.object(IcebergDestination, "publish", publish):
        yield


@bug("the note is written after the commit is sent")
def note_after_send() -> Iterator[None]:
    real: Real = IcebergDestination.publish

    def publish(self: Any, process_id: str, plan: Any, receipts: Any, noted: str, note: Any) -> Any:
        later: list[str] = []
        answer = real(self, process_id, plan, receipts, noted, later.append)
        for text in later:
            note(text)
        return answer

    with patch.object(IcebergDestination, "publish", publish):
        yield


@bug("a refused commit takes back the note of an earlier one", "commits")
def refused_forgets() -> Iterator[None]:
    yield from _believed(commit.CommitAnswer.REFUSED)


@bug("a conflict is believed without another look", "commits")
def conflict_is_final() -> Iterator[None]:
    yield from _believed(commit.CommitAnswer.CONFLICT)


def _believed(answer: commit.CommitAnswer) -> Iterator[None]:
    """That answer ends the process, and its note with it."""
    real: Real = IcebergDestination.publish
    look: Real = publishing._look_again

    def look_again(catalog: Any, process_id: str, plan: Any, sent: Any, reply: Any) -> Any:
        if reply.answer is answer:
            raise PermanentError("the catalog said no", code="believed")
        return look(catalog, process_id, plan, sent, reply)

    def publish(self: Any, process_id: str, plan: Any, receipts: Any, noted: str, note: Any) -> Any:
        try:
            return real(self, process_id, plan, receipts, noted, note)
        except CalveError as error:
            if error.code == "believed":
                note("")
            raise

    with (
        patch.object(publishing, "_look_again", look_again),
        patch.object(IcebergDestination, "publish", publish),
    ):
        yield


@bug("a worker that lost its lease may still write", "sleepers")
def unfenced_writes() -> Iterator[None]:
    with patch.object(applying, "_check_lease", lambda *_: None):
        yield


@bug("an answer is believed without a look, an unknown one too")
def blind_completed() -> Iterator[None]:
    def look_again(catalog: Any, process_id: str, plan: Any, sent: Any, reply: Any) -> Any:
        return PublishedSnapshot(
            process_id=process_id, snapshot_id=sent[-1].snapshot_id, rows=plan.rows, files=1, bytes=1
        )

    with patch.object(publishing, "_look_again", look_again):
        yield


@bug("a forced export starts while another process holds the key, and removes what it saw then", "forces")
def force_in_flight() -> Iterator[None]:
    settle: Real = publishing._settled
    seen: dict[str, Any] = {}
    chance = random.Random(1)

    def settled(table: Any, process_id: str, plan: Any, sent: Any) -> Any:
        ours, earlier = settle(table, process_id, plan, sent)
        return (
            (ours, seen.setdefault(process_id, earlier)) if ours is None and plan.replace else (ours, earlier)
        )

    def lock_names(*_: Any, **__: Any) -> tuple[str, ...]:
        return (f"{chance.getrandbits(128):032x}",)

    with patch.object(publishing, "_settled", settled), patch.object(submitting, "lock_names", lock_names):
        yield


@bug("undo does not ask the store whether a retry published the files (T2)", "lags")
def undo_forgets_retries() -> Iterator[None]:
    with patch.object(steps, "used_by_retries", lambda *_: []):
        yield


@bug("nothing ends a process that is retried for ever", "mixed")
def no_deadline() -> Iterator[None]:
    real: Real = deciding._must_end

    def must_end(facts: Any) -> Any:
        later = facts.process.deadline_at + timedelta(days=1000)
        return real(replace(facts, process=replace(facts.process, deadline_at=later)))

    with patch.object(deciding, "_must_end", must_end):
        yield


def planted(name: str) -> AbstractContextManager[None]:
    return BUGS[name].planted()


Bugs = Mapping[str, Bug]
