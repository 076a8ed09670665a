"""The marks of a release in the lake: set before any row leaves the source, taken back once all are there again.

While a key has its mark, no export replaces it, from any store and by any option (`refuse_released`). Each
of the two commits is an empty snapshot on main: a replace that was built before the mark fails its own
assertion, searches again and finds the mark; and a mark that was sent before it was taken back fails the same
way (D2). The tag `calve-released` moves only to a head whose rows are proven: with a mark, if those of earlier marks are
proven there too; else `guard` moves it. It goes with the last mark.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import ancestors_of

from calve.destination.content import released
from calve.destination.file_io import lent_to
from calve.iceberg.errors import catalog_call
from calve.iceberg.publish import marks
from calve.iceberg.publish.build import build_empty
from calve.iceberg.publish.commit import CommitAnswer, Reply, TableCommit, TagMove, release_commit, send
from calve.iceberg.tables import find_by_uuid
from calve.model.errors import PermanentError, RefusedError, TemporaryError, UnknownOutcomeError
from calve.model.record import UNSORTED, Record, loads

MARKED_BY = "calve.release-process-id"  # in the summary of the mark's snapshot
RETURNED_BY = "calve.returned-process-id"  # in that of the snapshot that took it back


@dataclass(frozen=True, kw_only=True)
class ReleaseMark(Record, layout=UNSORTED):
    """What `calve.released.<key hash>` keeps of one key."""

    process: str  # that releases it
    store: str  # which knows that process
    attempt: int  # of the partition, counted over all stores
    rows: int
    sums: str  # of its rows, as `prove` compares them
    place: str  # where its parts go at the source
    input: tuple[str, str, str]  # source identity, partition, selection
    state: str = "marked"


@dataclass(frozen=True, kw_only=True)
class ReleasedTable:
    """The lake table of a release. The uuid is the plan's: another table of that name is another table."""

    catalog: Catalog
    identifier: tuple[str, ...]
    uuid: str

    def mark(self, process_id: str, keys: Mapping[str, ReleaseMark], proven_head: str) -> None:
        """Mark the keys, given by their hashes, on exactly the head whose rows were proven. Twice is
        harmless. TemporaryError `head_moved` where main is another by now: prove again."""
        table = self._load()
        if _is_marked(table.metadata, process_id, keys):
            return
        _refuse(table.metadata, process_id, keys)
        head = marks.head_of(table.metadata)
        if head is None or str(head.snapshot_id) != proven_head:
            raise TemporaryError(
                f"table {self} has moved on from snapshot {proven_head}, whose rows were proven",
                code="head_moved",
                hint="its rows are proven again, then it is retried",
            )
        tag = table.metadata.refs.get(marks.RELEASED_TAG)
        proven = tag is not None and str(tag.snapshot_id) == proven_head
        others = any(one.key_hash not in keys for one in marks.released_exports(table.metadata))
        properties = {}
        for key_hash, mark in keys.items():
            name = marks.property_of(key_hash)
            properties[name] = marks.as_released(table.metadata.properties[name], process_id)
            properties[marks.released_property_of(key_hash)] = mark.to_json()
        move = TagMove.STAYS if others and not proven else TagMove.ALONG
        reply = self._send(table, process_id, MARKED_BY, properties, (), move)
        if not _is_marked(self._load().metadata, process_id, keys):
            raise self._unsettled(reply)

    def is_marked(self, process_id: str) -> bool:
        """Whether keys bear the mark of this process now."""
        return process_id in {one.released for one in marks.released_exports(self._load().metadata)}

    def unmark(self, process_id: str, contents: Mapping[str, str]) -> None:
        """Take back all marks of the process, and refuse those that it may still send. `contents` are the
        content ids that rows of a key have now that they are back. Twice is harmless."""
        table = self._load()
        if _is_returned(table.metadata, process_id):
            return
        found = list(marks.released_exports(table.metadata))
        ours = [one.key_hash for one in found if one.released == process_id]
        before = table.metadata.properties
        properties = {}
        for key_hash in ours:
            text = before.get(marks.property_of(key_hash), "")
            if marks.is_as_released(text) and marks.read_property(key_hash, text) is not None:
                properties[marks.property_of(key_hash)] = marks.as_returned(text, contents.get(key_hash, ""))
        removed = [name for name in map(marks.released_property_of, ours) if name in before]
        move = TagMove.GOES if len(ours) == len(found) else TagMove.STAYS
        reply = self._send(table, process_id, RETURNED_BY, properties, removed, move)
        if not _is_returned(self._load().metadata, process_id):
            raise self._unsettled(reply)

    def settle(self, process_id: str, key_hash: str, content: str, top: int) -> None:
        """The key's rows are in the source again, brought there by that process. Whoever released them, their marks go.
        Twice is harmless."""
        table = self._load()
        for one in list(marks.released_exports(table.metadata)):
            if one.key_hash == key_hash:
                # If we die here, the marks are gone and the next call goes on.
                self.unmark(one.released, {})
        table = self._load()
        name = marks.property_of(key_hash)
        text = table.metadata.properties.get(name, "")
        if marks.read_property(key_hash, text) is None:
            raise PermanentError(
                f"table {self} has no property {name} that can be read", code="mark_unreadable"
            )
        here = marks.as_here(text, content, top)
        if text == here:
            return
        reply = self._send(table, process_id, RETURNED_BY, {name: here}, (), TagMove.STAYS)
        if self._load().metadata.properties.get(name) != here:
            raise self._unsettled(reply)

    def _load(self) -> Table:
        table = find_by_uuid(self.catalog, self.identifier, self.uuid)
        if table is None:
            raise PermanentError(
                f"table {self} (uuid {self.uuid}) is gone",
                code="destination_dropped",
                hint="nothing more leaves the source; find out what happened to the table",
            )
        return table

    def _send(
        self,
        table: Table,
        process_id: str,
        says: str,
        properties: dict[str, str],
        removed: Sequence[str],
        move: TagMove,
    ) -> Reply:
        doing = f"marking keys of table {self}"
        with lent_to(table), catalog_call(self.catalog.name, doing):
            empty = build_empty(table, process_id, says=says)
        commit: TableCommit = release_commit(table.metadata, empty, properties, list(removed), move)
        # If we die here, the marks stand or do not: the next call looks first.
        reply = send(self.catalog, table, commit, doing)
        if reply.answer is CommitAnswer.REFUSED and reply.error is not None:
            raise reply.error
        return reply

    def _unsettled(self, reply: Reply) -> TemporaryError:
        said = "the catalog does not show it yet" if reply.error is None else reply.error.message
        if reply.answer is CommitAnswer.CONFLICT:
            return TemporaryError(
                f"table {self} changed while its keys were marked: {said}",
                code="publish_conflict",
                hint="another writer was first; it is retried automatically",
            )
        return UnknownOutcomeError(
            f"whether keys of table {self} are marked is not known: {said}",
            code="publish_unknown",
            hint="nothing leaves the source before it is; it is looked up again automatically",
            service=self.catalog.name,
        )

    def __str__(self) -> str:
        return ".".join((self.catalog.name, *self.identifier))


def read_marks(metadata: TableMetadata) -> dict[str, ReleaseMark]:
    """All marks, by the hash of their key. DamagedError for one that cannot be read."""
    return {
        name.removeprefix(marks.RELEASED_PROPERTY): loads(ReleaseMark, text, f"table property {name}")
        for name, text in metadata.properties.items()
        if name.startswith(marks.RELEASED_PROPERTY)
    }


def _is_marked(metadata: TableMetadata, process_id: str, keys: Mapping[str, ReleaseMark]) -> bool:
    ours = {one.key_hash for one in marks.released_exports(metadata) if one.released == process_id}
    both = all(marks.released_property_of(key) in metadata.properties for key in keys)
    return both and set(keys) <= ours


def _is_returned(metadata: TableMetadata, process_id: str) -> bool:
    """Whether main leads to the snapshot that took the marks back, and none has come since."""
    if any(one.released == process_id for one in marks.released_exports(metadata)):
        return False
    main = ancestors_of(marks.head_of(metadata), metadata)
    return any(one.summary is not None and one.summary[RETURNED_BY] == process_id for one in main)


def _refuse(metadata: TableMetadata, process_id: str, keys: Mapping[str, ReleaseMark]) -> None:
    if _is_returned(metadata, process_id):
        raise PermanentError(
            f"process {process_id} took its marks back: it can no longer release anything",
            code="publish_fenced",
            hint="the next release is a new process",
        )
    for one in marks.released_exports(metadata):
        if one.key_hash in keys and one.released != process_id:
            raise released(one.input[0] or "a source", one)
    for key_hash, mark in keys.items():
        text = metadata.properties.get(marks.property_of(key_hash))
        if text is None or marks.read_property(key_hash, text) is None:
            raise RefusedError(
                f"partition {mark.input[1]} has no property {marks.property_of(key_hash)} that reads as an export",
                code="mark_unreadable",
                hint="nothing is released that the table does not remember as exported",
            )
