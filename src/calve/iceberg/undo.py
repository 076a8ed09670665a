"""Deleting what a process wrote and nothing refers to, after the fence.

L20, P14: nothing that a snapshot refers to is ever deleted. The proof is a fresh look over every
snapshot of the table, whichever branch or tag holds it, down to the entries of the manifests; and
the fence, without which a commit could still arrive after the look. Where the proof fails,
everything is left and reported. Only names that carry the process's id, in the table's own folder, are ever
touched (T9).
"""

import logging
from collections.abc import Iterator, Sequence

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from calve.destination.names import is_metadata_of, receipts_of
from calve.destination.outcome import PublishedSnapshot, Undone
from calve.destination.plan import ExportPlan
from calve.destination.receipt import Receipt, files_of, named_files, paths_in
from calve.iceberg import tables
from calve.iceberg.errors import catalog_call
from calve.iceberg.publish import marks
from calve.iceberg.publish.fence import fence
from calve.iceberg.publish.manifests import attempt_files, manifests_of
from calve.iceberg.publish.marks import is_released, search
from calve.iceberg.tables import find_by_uuid
from calve.model.errors import TemporaryError
from calve.model.limits import Limits
from calve.objects.storage import Storage
from calve.objects.uri import full_uri

_log = logging.getLogger(__name__)


def undo(
    catalog: Catalog,
    storage: Storage,
    process_id: str,
    plan: ExportPlan,
    receipts: Sequence[Receipt],
    noted: str = "",
    used: Sequence[Receipt] = (),
    *,
    limits: Limits | None = None,
) -> Undone:
    """Delete the process's data files, receipts and unused manifests. Twice is harmless.

    Raises what the catalog or the storage raises while it cannot be reached; nothing is deleted
    on a doubt. What `used` names stays, whatever the catalog shows: it may lag behind (T2).
    """
    named = named_files(process_id, plan, receipts)
    table = find_by_uuid(catalog, plan.destination.identifier, plan.destination.uuid)
    if table is None:
        return Undone(left=named, reason=f"table {_name(plan)} is gone, so nothing proves them unused")
    if is_released(table.metadata, process_id) or _is_published(
        catalog, table, process_id, plan, noted, limits
    ):
        return Undone(left=named, reason="they are published", in_use=True)
    candidates = files_of(storage, process_id, plan, receipts)
    table = _after_the_fence(catalog, tuple(table.name()), process_id, plan, noted)
    with catalog_call(catalog.name, f"proving files of process {process_id} unused"):
        referenced = set(_referenced(table, plan)) | paths_in(used)
        gone = _unused_metadata(storage, table, process_id, noted)
    left = tuple(uri for uri in candidates if uri in referenced)
    gone += [uri for uri in candidates if uri not in referenced]
    receipts_left = () if left else _receipt_files(storage, process_id, plan)
    # If we die here, some are deleted; the next call lists, proves and deletes the others.
    storage.delete(gone)
    # Receipts last: as long as a file is there, something names it.
    storage.delete(receipts_left)
    reason = "snapshots of the table or a retry refer to them" if left else ""
    return Undone(deleted=(*gone, *receipts_left), left=left, reason=reason, in_use=bool(left))


def remove_lost(
    catalog: Catalog, storage: Storage, process_id: str, plan: ExportPlan, receipts: Sequence[Receipt]
) -> tuple[str, ...]:
    """T13: the files of a published process that neither its receipts nor any snapshot name: what
    attempts that lost have left. Twice is harmless."""
    candidates = set(files_of(storage, process_id, plan)) - paths_in(receipts)
    if not candidates:
        return ()
    table = find_by_uuid(catalog, plan.destination.identifier, plan.destination.uuid)
    if table is None:
        return ()  # they go with the table's folder
    if is_released(table.metadata, process_id):
        return ()  # what is left costs less than a doubt about the only copy
    ours = search(table.metadata, process_id, plan.keys).ours
    if ours is None:
        raise TemporaryError(
            f"catalog {catalog.name} does not show the publish of process {process_id}",
            code="catalog_lags",
            hint="nothing is deleted; it is retried automatically",
        )
    with catalog_call(catalog.name, f"proving files of process {process_id} unused"):
        gone = tuple(sorted(candidates - set(_referenced(table, plan, ours))))
    # If we die here, some are deleted; the next call lists, proves and deletes the others.
    storage.delete(gone)
    return gone


def _is_published(
    catalog: Catalog, table: Table, process_id: str, plan: ExportPlan, noted: str, limits: Limits | None
) -> bool:
    """Once a commit may have been sent, only the fence's answer counts. Before, a look will do."""
    if not noted:
        return search(table.metadata, process_id, plan.keys).ours is not None
    return isinstance(fence(catalog, process_id, plan, noted, limits=limits), PublishedSnapshot)


def _after_the_fence(
    catalog: Catalog, identifier: tuple[str, ...], process_id: str, plan: ExportPlan, noted: str
) -> Table:
    """A fresh look. One that does not show the fence is older than it, and proves nothing (T2)."""
    table = tables.load(catalog, identifier)
    if noted and not search(table.metadata, process_id, plan.keys).fenced:
        raise TemporaryError(
            f"catalog {catalog.name} does not show the fence of process {process_id} yet",
            code="catalog_lags",
            hint="nothing is deleted; it is retried automatically",
        )
    return table


def _unused_metadata(storage: Storage, table: Table, process_id: str, noted: str) -> list[str]:
    """Manifests and lists of the process that no snapshot refers to: those of noted attempts, and
    those of attempts that died before their note."""
    folder = full_uri(table.location_provider().new_metadata_location("x")).rsplit("/", 1)[0]
    listed = {uri for uri in storage.list(folder) if is_metadata_of(process_id, uri)}
    noted_files = set(map(full_uri, attempt_files(table, process_id, marks.read_note(noted))))
    used = {full_uri(snapshot.manifest_list) for snapshot in table.metadata.snapshots}
    for snapshot in table.metadata.snapshots:
        used |= {full_uri(manifest.manifest_path) for manifest in manifests_of(table, snapshot)}
    return sorted((listed | noted_files) - used)


def _receipt_files(storage: Storage, process_id: str, plan: ExportPlan) -> tuple[str, ...]:
    return tuple(storage.list(receipts_of(plan.destination.receipts_location, process_id)))


def _referenced(table: Table, plan: ExportPlan, ours: PublishedSnapshot | None = None) -> Iterator[str]:
    """Every data file any snapshot knows, deleted ones too: an older snapshot may still show them.

    Manifests that were there when the plan was made are older than the process's first file. Not where its publish,
    `ours`, is older than its plan: its store was put back from a copy, and it was planned once more (D1).
    """
    base = plan.destination.base_snapshot_id
    known = table.metadata.snapshot_by_id(int(base)) if base else None
    if known is not None and ours is not None and not _is_before(table, known, ours):
        known = None
    seen = {manifest.manifest_path for manifest in manifests_of(table, known)}
    for snapshot in table.metadata.snapshots:
        for manifest in manifests_of(table, snapshot):
            if manifest.manifest_path not in seen:
                seen.add(manifest.manifest_path)
                yield from _files_in(table, manifest)


def _is_before(table: Table, base: Snapshot, ours: PublishedSnapshot) -> bool:
    published = table.metadata.snapshot_by_id(int(ours.snapshot_id))
    return base.snapshot_id != int(ours.snapshot_id) and any(
        one.snapshot_id == base.snapshot_id for one in ancestors_of(published, table.metadata)
    )


def _files_in(table: Table, manifest: ManifestFile) -> Iterator[str]:
    for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
        yield full_uri(entry.data_file.file_path)


def _name(plan: ExportPlan) -> str:
    return ".".join((plan.destination.catalog, *plan.destination.identifier))
