"""Looking for marks in a table's metadata. Comes before every other check (L11), at every attempt (L13).

Pure: it reads metadata that was just loaded, and answers for exactly that metadata. The commit
then asserts that main is still the head that was searched.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from calve.destination.outcome import EarlierExport, PublishedSnapshot
from calve.destination.plan import KeyPlan
from calve.iceberg.publish import marks
from calve.iceberg.publish.marks import Sent
from calve.model.errors import RefusedError


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What the marks say."""

    ours: PublishedSnapshot | None = None
    tombstone: bool = False  # our tag stands on a snapshot that is not ours, or a snapshot says so
    fenced: bool = False  # and main's head comes after that snapshot: no commit of ours can land
    earlier: tuple[EarlierExport, ...] = ()  # keys of the plan that others published


def search(
    metadata: TableMetadata, process_id: str, keys: Sequence[KeyPlan], sent: Sequence[Sent] = ()
) -> Findings:
    """Ours by tag, by summary, by noted snapshot id, by a key's property; then the keys of others."""
    earlier = [found for key in keys if (found := _earlier(metadata, key.hash)) is not None]
    snapshot = _our_snapshot(metadata, process_id, sent)
    if snapshot is not None:
        return Findings(ours=_published(process_id, snapshot))
    for export in earlier:
        if export.process_id == process_id:
            return Findings(ours=_remembered(export, earlier))
    fences = {one.snapshot_id for one in metadata.snapshots if _mark(one, marks.FENCE) == process_id}
    main = ancestors_of(metadata.snapshot_by_name(MAIN_BRANCH), metadata) if fences else ()
    return Findings(
        tombstone=bool(fences) or marks.tag_of(process_id) in metadata.refs,
        fenced=any(one.snapshot_id in fences for one in main),
        earlier=tuple(earlier),
    )


def find_export(table: Table, key_hash: str) -> EarlierExport | None:
    """Who published a key into this table, if anybody did."""
    return _earlier(table.metadata, key_hash)


def all_exports(metadata: TableMetadata) -> Iterator[EarlierExport]:
    """Every key that a property remembers; those that cannot be read are left out."""
    for name, value in metadata.properties.items():
        if name.startswith(marks.KEY_PROPERTY):
            export = marks.read_property(name.removeprefix(marks.KEY_PROPERTY), value)
            if export is not None:
                yield export


def refuse_if_unprovable(metadata: TableMetadata, sent: Sequence[Sent], tag_age_ms: int) -> None:
    """P8: nothing found proves that nothing landed, unless the marks may have been swept away.

    The tag holds our snapshot for `tag_age_ms` and the property stays for good, so a landed
    publish can only be unseen if somebody removed the property and the tag's age has passed
    and snapshots made since were expired. Then nobody can tell, and nothing is published.
    """
    if not sent or isinstance(metadata, TableMetadataV1):
        return
    first = min(sent, key=lambda item: item.timestamp_ms)
    aged = metadata.last_updated_ms - first.timestamp_ms >= tag_age_ms
    younger = [s for s in metadata.snapshots if s.timestamp_ms >= first.timestamp_ms]
    older = [s.sequence_number or 0 for s in metadata.snapshots if s.timestamp_ms < first.timestamp_ms]
    missing = metadata.last_sequence_number - max(older, default=0) - len(younger)
    if aged and missing > 0:
        raise RefusedError(
            f"a commit of snapshot {first.snapshot_id} may have been sent long ago, and {missing} snapshots"
            " made since then are expired: whether it landed cannot be proven",
            code="publish_unprovable",
            hint="look whether the rows are in the table; if they are not, export the partition again"
            " as a new process",
        )


def _our_snapshot(metadata: TableMetadata, process_id: str, sent: Sequence[Sent]) -> Snapshot | None:
    tagged = metadata.refs.get(marks.tag_of(process_id))
    noted = {item.snapshot_id for item in sent}
    candidates: Iterable[Snapshot | None] = (
        metadata.snapshot_by_id(tagged.snapshot_id) if tagged else None,
        *metadata.snapshots,
    )
    for snapshot in candidates:
        if snapshot is None:
            continue
        if _mark(snapshot, marks.PROCESS_ID) == process_id or str(snapshot.snapshot_id) in noted:
            return snapshot
    return None


def _earlier(metadata: TableMetadata, key_hash: str) -> EarlierExport | None:
    """The property names the last export of a key; without it, the newest snapshot that carries it."""
    name = marks.property_of(key_hash)
    if (text := metadata.properties.get(name)) is not None:
        export = marks.read_property(key_hash, text)
        if export is None:
            raise RefusedError(
                f"table property {name} does not read as an export: {text[:200]!r}",
                code="mark_unreadable",
                hint="it was changed by hand or damaged; check whether the rows are in the table before you remove it",
            )
        return export
    for snapshot in reversed(metadata.snapshots):
        keys = (_mark(snapshot, marks.EXPORT_KEY) or "").split(",")
        if key_hash in keys:
            return EarlierExport(
                key_hash=key_hash,
                process_id=_mark(snapshot, marks.PROCESS_ID) or "unknown",
                snapshot_id=str(snapshot.snapshot_id),
                rows=_number(snapshot, "added-records") if len(keys) == 1 else 0,
                files=_number(snapshot, "added-data-files") if len(keys) == 1 else 0,
                shared=len(keys) > 1,
            )
    return None


def _published(process_id: str, snapshot: Snapshot) -> PublishedSnapshot:
    return PublishedSnapshot(
        process_id=process_id,
        snapshot_id=str(snapshot.snapshot_id),
        rows=_number(snapshot, "added-records"),
        files=_number(snapshot, "added-data-files"),
        bytes=_number(snapshot, "added-files-size"),
        replaced_rows=_number(snapshot, "deleted-records"),
        replaced_files=_number(snapshot, "deleted-data-files"),
    )


def _remembered(export: EarlierExport, earlier: Sequence[EarlierExport]) -> PublishedSnapshot:
    """Only properties remember it: tag and snapshot are expired."""
    mine = [item for item in earlier if item.process_id == export.process_id]
    return PublishedSnapshot(
        process_id=export.process_id,
        snapshot_id=export.snapshot_id,
        rows=sum(item.rows for item in mine),
        files=sum(item.files for item in mine),
        bytes=0,
        expired=True,
    )


def _mark(snapshot: Snapshot, name: str) -> str | None:
    return None if snapshot.summary is None else snapshot.summary.additional_properties.get(name)


def _number(snapshot: Snapshot, name: str) -> int:
    text = _mark(snapshot, name)
    return int(text) if text is not None and text.isdigit() else 0
