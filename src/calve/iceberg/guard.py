"""The only copy is guarded: released rows are counted again in main, and the tag `calve-released` follows main only over
what is proven.

At the tagged head the rows are proven. From there on main is walked snapshot by snapshot: one that took out no file with
released rows is passed. One that did is compared by value, what it took out with what it put in, deletes applied; what
it put in are then the files that hold those rows ("heirs"). The tag moves up to the last snapshot that was passed or
proven, by compare-and-set, so whatever happens to main, the files of a head that has every row stay.

Heirs are not named after an export. Who calls keeps them: without them nobody can tell rewritten rows from lost ones.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of

from calve.destination.outcome import EarlierExport
from calve.iceberg.errors import catalog_call
from calve.iceberg.publish import marks
from calve.iceberg.publish.commit import send, tag_commit
from calve.iceberg.publish.manifests import manifests_of
from calve.iceberg.publish.replace import is_of
from calve.iceberg.released import MARKED_BY
from calve.iceberg.tables import load
from calve.iceberg.verify import compare_rewrite, compare_states, planned
from calve.model.errors import RefusedError
from calve.model.record import fields_of

Heirs = Mapping[str, Sequence[str]]  # hashes of keys, by the path of a file that took over rows of theirs


@dataclass(frozen=True, kw_only=True)
class Held:
    """A data file that holds released rows."""

    path: str
    rows: int
    bytes: int
    keys: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class KeyCount:
    """One released key."""

    key: str
    input: tuple[str, str, str]  # source identity, partition, selection
    released_by: str
    rows: int  # that it had when it was released
    missing: int = 0  # of them in main now; 0 means that all are there


@dataclass(frozen=True, kw_only=True)
class Recount:
    """What one count found."""

    head: str
    tag_before: str  # where it was; "" for nowhere
    tag: str  # the last proven head; "" where there is none
    keys: tuple[KeyCount, ...]
    files: tuple[Held, ...]  # in main's head
    faults: tuple[str, ...] = ()  # what took rows away, for a person
    waiting: str = ""  # why the tag is not at the head, though nothing is known to be missing
    read_bytes: int = 0

    @property
    def missing(self) -> int:
        return sum(one.missing for one in self.keys)

    @property
    def heirs(self) -> dict[str, list[str]]:
        return {one.path: list(one.keys) for one in self.files}


def recount(catalog: Catalog, identifier: tuple[str, ...], heirs: Heirs, most_bytes: int) -> Recount | None:
    """None where the table has no released key. Reads at most about `most_bytes` of rewritten files, one rewrite at least;
    the rest waits for the next count. Changes nothing."""
    table = load(catalog, identifier)
    keys = {one.key_hash: one for one in marks.released_exports(table.metadata)}
    head = marks.head_of(table.metadata)
    if not keys:
        return None
    name = ".".join(identifier)
    with catalog_call(catalog.name, f"counting released rows of table {name}"):
        return _Walk(catalog, table, name, keys, heirs, most_bytes).walked(head)


def move_tag(catalog: Catalog, identifier: tuple[str, ...], count: Recount) -> bool:
    """Put the tag where the count proved it to belong, if it is still where the count found it. False where somebody
    else moved it: the next count begins from there. Twice is harmless."""
    table = load(catalog, identifier)
    found = _tag(table.metadata)
    if count.tag and found == count.tag:
        return True
    released = any(True for _ in marks.released_exports(table.metadata))
    if not count.tag or found != count.tag_before or not released:
        return False
    if table.metadata.snapshot_by_id(int(count.tag)) is None:
        return False
    commit = tag_commit(table.metadata, marks.RELEASED_TAG, int(count.tag))
    # If we die here, the tag has moved or not: the next count begins from where it is.
    send(catalog, table, commit, f"moving tag {marks.RELEASED_TAG} of {'.'.join(identifier)}")
    return _tag(load(catalog, identifier).metadata) == count.tag


def _tag(metadata: TableMetadata) -> str:
    found = metadata.refs.get(marks.RELEASED_TAG)
    return "" if found is None else str(found.snapshot_id)


def released_rows(metadata: TableMetadata, export: EarlierExport) -> int:
    """As its mark says; without one that can be read, as many as were exported."""
    rows = fields_of(metadata.properties.get(marks.released_property_of(export.key_hash), "")).get("rows")
    return rows if isinstance(rows, int) else export.rows


@dataclass(kw_only=True)
class _Change:
    """What one snapshot did to files."""

    taken: dict[str, DataFile] = field(default_factory=dict)
    put: dict[str, DataFile] = field(default_factory=dict)
    deletes: bool = False  # it added files that delete rows of others

    @property
    def bytes(self) -> int:
        return _bytes(self.taken) + _bytes(self.put)


class _Walk:
    """From the proven head to main's."""

    def __init__(
        self,
        catalog: Catalog,
        table: Table,
        name: str,
        keys: Mapping[str, EarlierExport],
        heirs: Heirs,
        most_bytes: int,
    ) -> None:
        self._catalog, self._table, self._name = catalog, table, name
        self._keys, self._heirs = keys, heirs
        self._left, self._read = most_bytes, 0
        self._held: dict[str, Held] = {}
        self._missing = dict.fromkeys(keys, 0)
        self._faults: list[str] = []
        self._waiting = ""
        self._returned: dict[str, DataFile] = {}

    def walked(self, head: Snapshot | None) -> Recount:
        metadata = self._table.metadata
        base, live = metadata.snapshot_by_name(marks.RELEASED_TAG), self._live(head)
        at_head = "" if head is None else str(head.snapshot_id)
        if base is None:  # somebody removed it: what is there whole, in the files of the export, is proven
            self._begin(live, self._keys)
            tag = "" if any(self._missing.values()) else at_head
        else:
            before = self._live(base)
            newer = self._marked_since(base, head)
            self._begin(before, self._keys.keys() - {key for some in newer.values() for key in some})
            first = dict(self._held), dict(self._missing), list(self._faults)
            tag = self._follow(base, head, newer)
            self._look_at_head(live)
            if tag != at_head and head is not None and (taken := self._put_back(base, head, before, live)):
                self._held, self._missing, self._faults = first
                keys = tuple(
                    sorted({key for path in taken if path in self._held for key in self._held[path].keys})
                )
                if keys:
                    self._held |= {path: _held(file, keys) for path, file in self._returned.items()}
                self._begin(live, [key for some in newer.values() for key in some])
                self._waiting, tag = "", "" if self._faults else at_head
        return Recount(
            head=at_head,
            tag_before=_tag(metadata),
            tag=tag or _tag(metadata),
            keys=tuple(self._count(key) for key in self._keys.values()),
            files=tuple(one for one in self._held.values() if one.path in live),
            faults=tuple(self._faults),
            waiting=self._waiting,
            read_bytes=self._read,
        )

    def _put_back(
        self,
        base: Snapshot,
        head: Snapshot,
        before: Mapping[str, ManifestEntry],
        live: Mapping[str, ManifestEntry],
    ) -> set[str]:
        """The files that went since the proven head, if what came has their rows: in several commits, after a repair, or
        where snapshots between are expired. Empty where it has not, or that is too much to read now."""
        taken = {path: one.data_file for path, one in before.items() if path not in live}
        put = {path: one for path, one in live.items() if path not in before}
        appended = {path for path, one in put.items() if self._is_appended(one)}
        for left_out in (appended, set[str]()):
            files = {path: one.data_file for path, one in put.items() if path not in left_out}
            size = _bytes(taken) + _bytes(files)
            if not taken or _rows(taken) != _rows(files) or (self._read and size > self._left):
                continue
            self._read += size
            self._left -= size
            found = compare_states(
                self._catalog, self._table, base.snapshot_id, head.snapshot_id, frozenset(left_out)
            )
            if not found.faults:
                self._returned = files
                return set(taken)
        return set()

    def _is_appended(self, entry: ManifestEntry) -> bool:
        snapshot = self._table.metadata.snapshot_by_id(entry.snapshot_id or 0)
        summary = None if snapshot is None else snapshot.summary
        return summary is not None and summary.operation is Operation.APPEND

    def _count(self, key: EarlierExport) -> KeyCount:
        return KeyCount(
            key=key.key_hash,
            input=key.input,
            released_by=key.released,
            rows=released_rows(self._table.metadata, key),
            missing=self._missing[key.key_hash],
        )

    def _live(self, snapshot: Snapshot | None) -> dict[str, ManifestEntry]:
        return {
            entry.data_file.file_path: entry
            for manifest in manifests_of(self._table, snapshot)
            if manifest.content == ManifestContent.DATA
            for entry in manifest.fetch_manifest_entry(self._table.io)
        }

    def _begin(self, live: Mapping[str, ManifestEntry], keys: Collection[str]) -> None:
        """Which files hold the rows of these keys, in a snapshot where they are proven."""
        for path, entry in live.items():
            own = [key for key in keys if is_of(self._keys[key], entry.snapshot_id, entry.data_file)]
            found = {*own, *(key for key in self._heirs.get(path, ()) if key in keys)}
            if found:
                before = self._held[path].keys if path in self._held else ()
                self._held[path] = _held(entry.data_file, tuple(sorted({*before, *found})))
        for key in keys:
            export = self._keys[key]
            known = sum(one.rows for one in self._held.values() if key in one.keys)
            short = released_rows(self._table.metadata, export) - known
            if short > 0:
                why = f"{short} rows of partition {export.input[1]} are in no file that is known to have them"
                self._lose([key], short, why)

    def _marked_since(self, base: Snapshot, head: Snapshot | None) -> dict[int, list[str]]:
        """Keys that were released after the proven head, by the snapshot where they were: proven there, and not before."""
        found: dict[int, list[str]] = {}
        for one in ancestors_of(head, self._table.metadata):
            if one.snapshot_id == base.snapshot_id:
                break
            process = None if one.summary is None else one.summary[MARKED_BY]
            if process:
                found[one.snapshot_id] = [key for key, by in self._keys.items() if by.released == process]
        return found

    def _follow(self, base: Snapshot, head: Snapshot | None, newer: Mapping[int, Sequence[str]]) -> str:
        """The last snapshot up to which every row is proven."""
        metadata, newest_first = self._table.metadata, []
        for one in ancestors_of(head, metadata):
            if one.snapshot_id == base.snapshot_id:
                break
            newest_first.append(one)
        else:
            self._waiting = "main no longer leads to the proven head: it was rolled back, or snapshots between are expired"
            return str(base.snapshot_id)
        proven = base
        for snapshot in reversed(newest_first):
            if keys := newer.get(snapshot.snapshot_id):
                self._begin(self._live(snapshot), keys)
            change = self._change(snapshot)
            touched = [self._held[path] for path in change.taken if path in self._held]
            if change.deletes:
                touched += self._newly_deleted(snapshot, change)
            if touched and not self._passes(
                snapshot, change, touched, moving=not (self._faults or self._waiting)
            ):
                continue
            if not (self._faults or self._waiting):
                proven = snapshot
        return str(proven.snapshot_id)

    def _change(self, snapshot: Snapshot) -> _Change:
        change = _Change()
        for manifest in manifests_of(self._table, snapshot):
            if manifest.added_snapshot_id != snapshot.snapshot_id:
                continue
            for entry in manifest.fetch_manifest_entry(self._table.io, discard_deleted=False):
                if entry.snapshot_id != snapshot.snapshot_id:
                    continue
                if manifest.content == ManifestContent.DELETES:
                    change.deletes |= entry.status == ManifestEntryStatus.ADDED
                elif entry.status == ManifestEntryStatus.ADDED:
                    change.put[entry.data_file.file_path] = entry.data_file
                elif entry.status == ManifestEntryStatus.DELETED:
                    change.taken[entry.data_file.file_path] = entry.data_file
        return change

    def _newly_deleted(self, snapshot: Snapshot, change: _Change) -> list[Held]:
        """Files with released rows that stay, and of which the snapshot deletes rows."""
        before = planned(self._table, self._name, snapshot.parent_snapshot_id or snapshot.snapshot_id)
        after = planned(self._table, self._name, snapshot.snapshot_id)
        return [
            self._held[path]
            for path, deletes in after
            if path in self._held and path not in change.taken and (path, deletes) not in before
        ]

    def _passes(self, snapshot: Snapshot, change: _Change, touched: Sequence[Held], *, moving: bool) -> bool:
        """Whether the released rows that it touched are still there; what it put in holds them from now on."""
        keys = sorted({key for one in touched for key in one.keys})
        rows = sum(one.rows for one in touched)
        by = f"snapshot {snapshot.snapshot_id}"
        gone = [one for one in touched if one.path in change.taken]
        if not change.put and gone:
            for one in gone:
                del self._held[one.path]
                self._lose(one.keys, one.rows, "")
            self._faults.append(f"{by} removed {sum(one.rows for one in gone)} rows")
            return False
        short = max(0, _rows(change.taken) - _rows(change.put)) if gone else 0
        if moving and (self._read == 0 or change.bytes <= self._left):
            self._read += change.bytes
            self._left -= change.bytes
            try:
                found = compare_rewrite(self._catalog, self._table, snapshot.snapshot_id)
            except RefusedError as error:
                self._waiting = error.message
            else:
                if found.faults:
                    short = max(0, found.rows_before - found.rows_after) or rows
                    self._lose(keys, min(rows, short), "; ".join(found.faults))
        elif short:
            self._lose(keys, min(rows, short), f"{by} put fewer rows than it took out")
        else:
            self._waiting = self._waiting or f"what {by} rewrote is compared next time"
        for one in gone:
            del self._held[one.path]
        for path, file in change.put.items() if gone else ():
            self._held[path] = _held(file, tuple(keys))
        return not self._faults

    def _look_at_head(self, live: Mapping[str, ManifestEntry]) -> None:
        """Whatever snapshots said of themselves: a file that is not there has no rows."""
        gone = [one for path, one in self._held.items() if path not in live]
        for one in gone:
            self._lose(one.keys, one.rows, "")
        if gone:
            rows = sum(one.rows for one in gone)
            self._faults.append(
                f"{len(gone)} files with {rows} rows are not in main ({self._waiting or gone[0].path})"
            )

    def _lose(self, keys: Iterable[str], rows: int, why: str) -> None:
        self._missing[min(keys)] += rows
        if why:
            self._faults.append(why)


def _held(file: DataFile, keys: tuple[str, ...]) -> Held:
    return Held(path=file.file_path, rows=file.record_count, bytes=file.file_size_in_bytes, keys=keys)


def _rows(files: Mapping[str, DataFile]) -> int:
    return sum(one.record_count for one in files.values())


def _bytes(files: Mapping[str, DataFile]) -> int:
    return sum(one.file_size_in_bytes for one in files.values())
