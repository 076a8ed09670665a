"""What a table's history proves about destination partitions: who ever put rows there, who took any out."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of

from calve.destination.outcome import EarlierExport
from calve.iceberg.publish import marks
from calve.iceberg.publish.manifests import manifests_of
from calve.model.errors import RefusedError


@dataclass(frozen=True, kw_only=True)
class FilePartition:
    """A destination partition: values mean nothing without their spec."""

    spec_id: int
    values: str


def place_of(file: DataFile) -> FilePartition:
    return FilePartition(spec_id=file.spec_id, values=repr(file.partition))


def places_of(
    table: Table, export: EarlierExport, is_of: Callable[[EarlierExport, int | None, DataFile], bool]
) -> frozenset[FilePartition]:
    """Where an export put its files, by its own snapshot."""
    snapshot = table.metadata.snapshot_by_id(int(export.snapshot_id))
    if snapshot is None:
        raise refused(export, "its files were rewritten since, and its snapshot is expired")
    return frozenset(
        place_of(file)
        for status, file in _changed_by(table, snapshot)
        if status == ManifestEntryStatus.ADDED and is_of(export, snapshot.snapshot_id, file)
    )


def refuse_unless_only(
    table: Table,
    head: Snapshot | None,
    places: frozenset[FilePartition],
    keys: frozenset[str],
    export: EarlierExport,
    discard_deletes: bool,
) -> None:
    """RefusedError unless all rows that those partitions ever got came with these keys, and,
    unless deletes are to be discarded, nobody else took rows out."""
    ancestors = list(ancestors_of(head, table.metadata))
    _refuse_gaps(table, ancestors, export)
    for snapshot in ancestors:
        if carries_only(snapshot, keys) or operation(snapshot) == Operation.REPLACE:
            continue
        touched = {status for status, file in _changed_by(table, snapshot) if place_of(file) in places}
        if ManifestEntryStatus.ADDED in touched:
            # Whose rows those are nobody can tell, however many were taken out at the same time (T7).
            raise refused(
                export,
                f"its files were rewritten since, and snapshot {snapshot.snapshot_id} added rows of others"
                " to the same destination partitions",
            )
        if touched and not discard_deletes:
            raise _deletes_lost(export, snapshot)


def refuse_lost_deletes(
    table: Table,
    head: Snapshot | None,
    places: frozenset[FilePartition],
    keys: frozenset[str],
    export: EarlierExport,
) -> None:
    """RefusedError if others took rows out of those partitions since the export. An export that main
    does not lead to was rolled back: nobody deleted anything."""
    for snapshot in since(table, head, export) or ():
        if carries_only(snapshot, keys) or operation(snapshot) == Operation.REPLACE:
            continue
        if any(
            s != ManifestEntryStatus.ADDED and place_of(f) in places for s, f in _changed_by(table, snapshot)
        ):
            raise _deletes_lost(export, snapshot)


def since(table: Table, head: Snapshot | None, export: EarlierExport) -> list[Snapshot] | None:
    """The snapshots of main after the export's own, newest first; None if main does not lead to it."""
    found: list[Snapshot] = []
    for snapshot in ancestors_of(head, table.metadata):
        if str(snapshot.snapshot_id) == export.snapshot_id:
            return found
        found.append(snapshot)
    return None


def refuse_unknown_deletes(export: EarlierExport) -> None:
    raise RefusedError(
        f"rows that process {export.process_id} exported are not in main any more, and snapshot"
        f" {export.snapshot_id} is expired: they may have been deleted in the lake",
        code="deletes_would_be_lost",
        hint="add --discard-deletes if the source is right and they are to be put back",
    )


def _deletes_lost(export: EarlierExport, snapshot: Snapshot) -> RefusedError:
    return RefusedError(
        f"rows that process {export.process_id} exported were deleted or changed in the lake"
        f" by snapshot {snapshot.snapshot_id}; replacing them would bring them back",
        code="deletes_would_be_lost",
        hint="add --discard-deletes if the source is right and those changes are to be undone",
    )


def _refuse_gaps(table: Table, ancestors: list[Snapshot], export: EarlierExport) -> None:
    """Each snapshot takes the next sequence number, so a complete history has every number once."""
    numbers = sorted(snapshot.sequence_number or 0 for snapshot in ancestors)
    if table.metadata.format_version < 2 or numbers != list(range(1, len(numbers) + 1)):
        raise refused(
            export,
            "its files were rewritten since, and the table's history is not complete: who else wrote to"
            " those partitions cannot be proven",
        )


def _changed_by(table: Table, snapshot: Snapshot) -> Iterator[tuple[ManifestEntryStatus, DataFile]]:
    for manifest in manifests_of(table, snapshot):
        if manifest.added_snapshot_id != snapshot.snapshot_id:
            continue
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
            if entry.snapshot_id == snapshot.snapshot_id and entry.status != ManifestEntryStatus.EXISTING:
                # A delete file says that rows were taken out, as a deleted data file does.
                deletes = manifest.content == ManifestContent.DELETES
                yield (ManifestEntryStatus.DELETED if deletes else entry.status), entry.data_file


def keys_in(snapshot: Snapshot) -> frozenset[str]:
    """The export keys that a snapshot published; none for a snapshot of others."""
    summary = snapshot.summary
    text = "" if summary is None else summary.additional_properties.get(marks.EXPORT_KEY, "")
    return frozenset(filter(None, text.split(",")))


def carries_only(snapshot: Snapshot, keys: frozenset[str]) -> bool:
    carried = keys_in(snapshot)
    return bool(carried) and carried <= keys


def operation(snapshot: Snapshot) -> Operation | None:
    return None if snapshot.summary is None else snapshot.summary.operation


def refused(export: EarlierExport, reason: str) -> RefusedError:
    return RefusedError(
        f"the export of process {export.process_id} (snapshot {export.snapshot_id}) cannot be replaced: {reason}",
        code="replace_refused",
        hint="delete what is left of those rows in the lake, then export again with --force --discard-deletes",
    )
