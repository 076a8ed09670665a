"""What a forced export takes out: the files of the earlier export of its keys, and nothing else (L21).

Found as they are in the very metadata the new snapshot is built on, so that a commit by anybody
in between refuses ours and the search starts again:
- the files are all there: they go;
- some are not: what is there of them goes, with whatever else snapshots of these keys alone added
  (main may have been rolled back to an earlier one). Nothing of anybody else's goes (T7);
- they were compacted: whole destination partitions go, if every append that ever touched them
  carries one of these keys, which only a complete history can prove; otherwise refused;
- others rewrote them: refused, since their new files may hold rows of both;
- others deleted rows of them: refused unless deletes are to be discarded (D13).

Delete files that applied to removed files stay in their manifests: they refer to files that are
gone, or to sequence numbers below the new files', and apply to nothing. Iceberg allows that.
"""

from collections.abc import Iterable, Sequence

from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot

from calve.destination.names import DataFileName
from calve.destination.outcome import EarlierExport
from calve.destination.plan import ExportPlan
from calve.iceberg.publish import history, marks
from calve.iceberg.publish.history import FilePartition, place_of
from calve.iceberg.publish.manifests import NOTHING, Removal, manifests_of
from calve.model.errors import RefusedError

_PATH_FIELD_ID = 2147483546  # of position delete files


def find_removal(table: Table, plan: ExportPlan, earlier: Sequence[EarlierExport]) -> Removal:
    """What replacing those exports takes out. RefusedError, with the reason, where that is not certain."""
    if not earlier:
        return NOTHING
    head = marks.head_of(table.metadata)
    manifests = manifests_of(table, head)
    live = [
        entry for item in manifests if item.content == ManifestContent.DATA for entry in _live(table, item)
    ]
    keys = frozenset(key.hash for key in plan.keys) | {export.key_hash for export in earlier}
    going: dict[str, ManifestEntry] = {}
    for export in earlier:
        _refuse_if_shared(table, export, keys)
        found = [entry for entry in live if is_of(export, entry.snapshot_id, entry.data_file)]
        if not _is_whole(export, found):
            found = _left_of(table, plan, export, live, found, keys)
        going |= {entry.data_file.file_path: entry for entry in found}
    if not plan.discard_deletes:
        deletes = [
            e for item in manifests if item.content == ManifestContent.DELETES for e in _live(table, item)
        ]
        _refuse_if_deleted_from(going.values(), deletes, earlier)
    return _removal(going.values())


def _left_of(
    table: Table,
    plan: ExportPlan,
    export: EarlierExport,
    live: Sequence[ManifestEntry],
    found: Sequence[ManifestEntry],
    keys: frozenset[str],
) -> list[ManifestEntry]:
    """What replaces an export that is not all there takes out; RefusedError where files of unknown
    owners may hold rows of it."""
    head = marks.head_of(table.metadata)
    if is_behind(table.metadata, export):
        return _of_these_keys(table, export, live, found, keys)
    ours = _of_these_keys(table, export, live, found, keys)
    paths = {entry.data_file.file_path for entry in ours}
    others = [entry for entry in live if entry.data_file.file_path not in paths]
    doubtful = [entry for entry in others if _may_hold_rows_of(table, export, entry)]
    if table.metadata.snapshot_by_id(int(export.snapshot_id)) is None and not doubtful:
        if not plan.discard_deletes:
            history.refuse_unknown_deletes(export)
        return ours
    places = history.places_of(table, export, is_of)
    specs = {place.spec_id for place in places}
    doubtful = [
        entry
        for entry in doubtful
        if place_of(entry.data_file) in places or entry.data_file.spec_id not in specs
    ]
    rewritten = [entry for entry in doubtful if _adder_operation(table, entry) != Operation.REPLACE]
    if rewritten:
        raise history.refused(
            export,
            f"snapshot {rewritten[0].snapshot_id} rewrote files in its destination partitions, so whose rows they"
            " hold is unknown",
        )
    if doubtful:
        history.refuse_unless_only(table, head, places, keys, export, plan.discard_deletes)
        _refuse_other_specs(live, places, export)
        return [entry for entry in live if place_of(entry.data_file) in places]
    if not plan.discard_deletes:
        history.refuse_lost_deletes(table, head, places, keys, export)
    return ours


def is_behind(metadata: TableMetadata, export: EarlierExport) -> bool:
    """Whether main's head is older than the export: then nothing in it can hold rows of it."""
    head = marks.head_of(metadata)
    own = metadata.snapshot_by_id(int(export.snapshot_id))
    made = export.sequence or (0 if own is None else own.sequence_number or 0)
    return head is None or 0 < (head.sequence_number or 0) < made


def _of_these_keys(
    table: Table,
    export: EarlierExport,
    live: Sequence[ManifestEntry],
    found: Sequence[ManifestEntry],
    keys: frozenset[str],
) -> list[ManifestEntry]:
    """The export's own files, and those of earlier exports of the same keys that main was rolled back to."""
    going = list(found)
    for entry in live:
        adder = _adder(table, entry)
        if adder is None or str(adder.snapshot_id) == export.snapshot_id:
            continue
        if history.carries_only(adder, keys):
            going.append(entry)
        elif history.keys_in(adder) & {export.key_hash} and not _is_replaced(table, adder, export):
            raise history.refused(
                export, f"files of snapshot {adder.snapshot_id} hold the same partition together with others"
            )
    return going


def _is_replaced(table: Table, adder: Snapshot, export: EarlierExport) -> bool:
    """Whether the export came after that snapshot in main, and so took the key's files out of it."""
    after = history.since(table, marks.head_of(table.metadata), export)
    return after is not None and adder.snapshot_id not in {one.snapshot_id for one in after}


def _may_hold_rows_of(table: Table, export: EarlierExport, entry: ManifestEntry) -> bool:
    """Appends hold rows of their own writer, and a file older than the export none of its rows."""
    own = table.metadata.snapshot_by_id(int(export.snapshot_id))
    made = export.sequence or (0 if own is None else own.sequence_number or 0)
    written = max(entry.sequence_number or 0, entry.file_sequence_number or 0)
    if 0 < written < made:
        return False
    adder = _adder(table, entry)
    return adder is None or not (history.keys_in(adder) or history.operation(adder) == Operation.APPEND)


def _adder(table: Table, entry: ManifestEntry) -> Snapshot | None:
    return None if entry.snapshot_id is None else table.metadata.snapshot_by_id(entry.snapshot_id)


def _adder_operation(table: Table, entry: ManifestEntry) -> Operation | None:
    adder = _adder(table, entry)
    return Operation.REPLACE if adder is None else history.operation(adder)  # unknown: history must prove it


def _removal(entries: Iterable[ManifestEntry]) -> Removal:
    files = [entry.data_file for entry in entries]
    return Removal(
        files=frozenset(file.file_path for file in files),
        rows=sum(file.record_count for file in files),
        bytes=sum(file.file_size_in_bytes for file in files),
        partitions=frozenset(repr(file.partition) for file in files),
    )


def _live(table: Table, manifest: ManifestFile) -> list[ManifestEntry]:
    return manifest.fetch_manifest_entry(table.io)


def is_of(export: EarlierExport, snapshot_id: int | None, file: DataFile) -> bool:
    """Whether the export's snapshot added this file, and, where that had several keys, for this key."""
    if str(snapshot_id) != export.snapshot_id:
        return False
    if export.tasks is None:
        return True
    name = DataFileName.parse(file.file_path)
    if name is None:
        return False
    if name.process_id == export.process_id or export.adopted is None:
        return name.task in export.tasks
    return name.task in export.adopted.get(name.process_id, ())


def _is_whole(export: EarlierExport, found: Sequence[ManifestEntry]) -> bool:
    rows = sum(entry.data_file.record_count for entry in found)
    return (len(found), rows) == (export.files, export.rows)


def _refuse_if_shared(table: Table, export: EarlierExport, keys: frozenset[str]) -> None:
    """Files that hold several keys can only go together with all of them."""
    if not export.shared:
        return
    snapshot = table.metadata.snapshot_by_id(int(export.snapshot_id))
    held = set(history.keys_in(snapshot)) if snapshot else set()
    for name, text in table.metadata.properties.items():
        other = marks.read_property(name, text) if name.startswith(marks.KEY_PROPERTY) else None
        if other is not None and other.snapshot_id == export.snapshot_id:
            held.add(name.removeprefix(marks.KEY_PROPERTY))
    if not held or held - keys:
        raise history.refused(export, "its files also hold other partitions, which are not being replaced")


def _refuse_other_specs(
    live: Iterable[ManifestEntry], places: frozenset[FilePartition], export: EarlierExport
) -> None:
    """Rows filed under another partition spec cannot be told apart by partition."""
    specs = {place.spec_id for place in places}
    if any(entry.data_file.spec_id not in specs for entry in live):
        raise history.refused(
            export, "its files were compacted, and the table has files under another partition spec"
        )


def _refuse_if_deleted_from(
    going: Iterable[ManifestEntry], deletes: Sequence[ManifestEntry], earlier: Sequence[EarlierExport]
) -> None:
    for entry in going:
        for delete in deletes:
            if _applies(delete, entry):
                raise RefusedError(
                    f"rows of {entry.data_file.file_path} were deleted in the lake since process"
                    f" {earlier[0].process_id} exported them; replacing the file would bring them back",
                    code="deletes_would_be_lost",
                    hint="add --discard-deletes if the source is right and those deletes are to be undone",
                )


def _applies(delete: ManifestEntry, entry: ManifestEntry) -> bool:
    """Whether a delete file may hold deletes for a data file; unsure means yes."""
    of_delete, of_data = delete.sequence_number or 0, entry.sequence_number or 0
    file, target = delete.data_file, entry.data_file
    everywhere = len(file.partition) == 0
    if not everywhere and place_of(file) != place_of(target):
        return False
    if file.content == DataFileContent.EQUALITY_DELETES:
        return of_delete > of_data
    lower, upper = (
        (file.lower_bounds or {}).get(_PATH_FIELD_ID),
        (file.upper_bounds or {}).get(_PATH_FIELD_ID),
    )
    path = target.file_path.encode()
    # Bounds may be truncated: a prefix is enough to be below, never enough to be above.
    below = lower is not None and path[: len(lower)] < lower
    above = upper is not None and path[: len(upper)] > upper
    return of_delete >= of_data and not below and not above
