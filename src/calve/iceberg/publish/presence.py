"""What of an earlier export is no longer in main: rolled back, or deleted there (T11).

The property of a key outlives its rows. Metadata answers for nearly every table; manifests are read
only if somebody took files out since the export.
"""

from dataclasses import replace

from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of

from calve.destination.outcome import EarlierExport
from calve.iceberg.publish import history
from calve.iceberg.publish.manifests import manifests_of
from calve.iceberg.publish.marks import head_of
from calve.iceberg.publish.replace import is_behind, is_of

_TAKES_OUT = ("deleted-data-files", "removed-files-size", "deleted-records")


def with_presence(table: Table, export: EarlierExport) -> EarlierExport:
    """The export, with what of it is missing. Nothing is said where nobody can tell: its files may have
    been compacted, and its snapshot expired."""
    if not export.rows:
        return export
    head = head_of(table.metadata)
    if is_behind(table.metadata, export):
        return replace(
            export, missing=f"main was rolled back behind it: none of its {export.rows} rows is there"
        )
    after = history.since(table, head, export)
    if after is None:
        return _rolled_back(table, head, export)
    taken = [one for one in after if _takes_out(one)]
    if not taken or any(history.operation(one) == Operation.REPLACE for one in taken):
        return export
    if _live_files(table, head, export):
        return export
    by = taken[-1].snapshot_id
    words = f"its {export.rows} rows were deleted or rewritten in the lake, by snapshot {by}"
    return replace(export, missing=words, deleted=True)


def _rolled_back(table: Table, head: Snapshot | None, export: EarlierExport) -> EarlierExport:
    """Main does not lead to it: another history, or one whose middle is expired."""
    own = table.metadata.snapshot_by_id(int(export.snapshot_id))
    if own is None or head is None:
        return export
    oldest = list(ancestors_of(head, table.metadata))[-1]
    if (oldest.timestamp_ms > own.timestamp_ms and oldest.parent_snapshot_id is not None) or _live_files(
        table, head, export
    ):
        return export
    return replace(export, missing=f"main was rolled back: none of its {export.rows} rows is there")


def _takes_out(snapshot: Snapshot) -> bool:
    summary = snapshot.summary
    if summary is None:
        return True
    found = summary.additional_properties
    return any(found.get(name, "0") != "0" for name in _TAKES_OUT)


def _live_files(table: Table, head: Snapshot | None, export: EarlierExport) -> int:
    return sum(
        is_of(export, entry.snapshot_id, entry.data_file)
        for manifest in manifests_of(table, head)
        if manifest.content == ManifestContent.DATA
        for entry in manifest.fetch_manifest_entry(table.io)
    )
