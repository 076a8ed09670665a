"""Expire snapshots and references that are past their age, then the files that only they needed.

One commit, sent once, that asserts every reference it looked at. Files go only after the commit
is seen to have landed, and only if the table, loaded again, refers to them no more (L20).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    TableUpdate,
)

from calve.control.ports import StoreReader
from calve.iceberg import tables
from calve.iceberg.errors import catalog_call
from calve.iceberg.health.due import Expiry, expiry
from calve.iceberg.health.entries import read_entries
from calve.iceberg.health.orphans import manifests_by_path, reachable
from calve.iceberg.health.settings import Settings
from calve.iceberg.publish.commit import CommitAnswer, Reply, TableCommit, send
from calve.iceberg.publish.marks import PROCESS_ID
from calve.model.errors import TemporaryError
from calve.optimize.cleanup import delete_files, held_snapshots, live_ids

TRIES = 5  # against other writers; more is the control plane's budget


@dataclass(frozen=True, kw_only=True)
class Expired:
    snapshots: int = 0
    refs: tuple[str, ...] = ()
    files: int = 0  # deleted


def what_expires(
    table: Table, settings: Settings, store: StoreReader, now: datetime, besides: str = ""
) -> Expiry:
    """What may go, with everything kept that a live process of this store may look for."""
    metadata = table.metadata
    bases, tags = held_snapshots(store, str(metadata.table_uuid), besides)
    return expiry(
        metadata,
        settings,
        now_ms=int(now.timestamp() * 1000),
        keep_snapshots=bases | _made_by(metadata, live_ids(store)),
        keep_refs=tags,
    )


def expire(
    catalog: Catalog,
    identifier: tuple[str, ...],
    settings: Settings,
    store: StoreReader,
    now: datetime,
    *,
    besides: str = "",
    commit: Callable[[Table, Expiry], Reply] | None = None,
) -> Expired:
    """Twice is harmless: the second finds nothing to expire, and files it did not delete are orphans.
    `commit` sends it in PyIceberg's place, for tables that PyIceberg cannot write."""
    reason = ""
    for _ in range(TRIES):
        table = tables.load(catalog, identifier)
        past = what_expires(table, settings, store, now, besides)
        if not past:
            return Expired()
        with catalog_call(catalog.name, f"reading metadata of table {'.'.join(identifier)}"):
            candidates = _files_of(table, past)
        # If we die here, snapshots are gone or not; their files, then, are orphans.
        if commit is not None:
            reply = commit(table, past)
        else:
            reply = send(catalog, table, _commit(table.metadata, past), "expiring snapshots")
        if reply.answer is CommitAnswer.LANDED:
            after = tables.load(catalog, identifier)
            return Expired(
                snapshots=len(past.snapshot_ids),
                refs=past.refs,
                files=_delete_unreferenced(catalog, after, candidates),
            )
        if reply.error is not None and reply.answer is not CommitAnswer.CONFLICT:
            raise reply.error
        reason = "" if reply.error is None else reply.error.message
    raise TemporaryError(
        f"table {'.'.join(identifier)}: other writers were first {TRIES} times: {reason}",
        code="expiry_conflict",
        hint="it is retried",
    )


def _made_by(metadata: TableMetadata, processes: frozenset[str]) -> frozenset[int]:
    """Snapshots that live processes made: their marks must be found again after a crash."""
    return frozenset(
        snapshot.snapshot_id
        for snapshot in metadata.snapshots
        if snapshot.summary is not None
        and snapshot.summary.additional_properties.get(PROCESS_ID) in processes
    )


def _commit(metadata: TableMetadata, past: Expiry) -> TableCommit:
    """Every reference is asserted: one that moved, or appeared on an old snapshot, refuses it."""
    updates: list[TableUpdate] = [
        RemoveSnapshotRefUpdate.model_validate({"ref-name": name}) for name in past.refs
    ]
    if past.snapshot_ids:
        updates.append(RemoveSnapshotsUpdate.model_validate({"snapshot-ids": list(past.snapshot_ids)}))
    asserted = tuple(
        AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": ref.snapshot_id})
        for name, ref in metadata.refs.items()
    )
    return TableCommit(
        requirements=(AssertTableUUID(uuid=metadata.table_uuid), *asserted), updates=tuple(updates)
    )


def _files_of(table: Table, past: Expiry) -> list[str]:
    """Everything that the expired snapshots refer to and no other snapshot's manifests hold: the
    manifest lists, the manifests only they have, and what those manifests name."""
    gone = set(past.snapshot_ids)
    snapshots = table.metadata.snapshots
    kept = manifests_by_path(table, [item for item in snapshots if item.snapshot_id not in gone])
    lost = manifests_by_path(table, [item for item in snapshots if item.snapshot_id in gone])
    only = [manifest for path, manifest in lost.items() if path not in kept]
    files = [item.manifest_list for item in snapshots if item.snapshot_id in gone]
    files += [manifest.manifest_path for manifest in only]
    for manifest in only:
        files += [entry.path for entry in read_entries(table.io, manifest, also_deleted=True)]
    return files


def _delete_unreferenced(catalog: Catalog, table: Table, candidates: Iterable[str]) -> int:
    with catalog_call(catalog.name, f"deleting files of expired snapshots of {'.'.join(table.name())}"):
        stays = reachable(table)
        return delete_files(table, sorted({path for path in candidates if path not in stays}))
