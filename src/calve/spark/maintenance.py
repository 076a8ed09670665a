"""What comes after the tasks of an optimize, in the driver's JVM: delete files, manifests, snapshots, properties.

By Iceberg's own actions, and by its table API for what those do not do rightly (delete files that apply
to nothing, see `iceberg.health.stats`) and for tables whose format PyIceberg cannot write (v3). Every
step may run twice.
"""

import json
import time
from collections.abc import Iterator
from typing import Any

from calve.model.errors import TemporaryError
from calve.spark.actions import PROCESS_ID, TASK, ActionTable, answered, where_of
from calve.spark.driver import Driver
from calve.spark.errors import translated

DROPPED = "dropped-deletes"


def tidy(payload: str, driver: Driver) -> str:
    """Each step commits under a mark of its own, which the next attempt finds."""
    started = time.monotonic()
    order = json.loads(payload)
    table = ActionTable(driver, where_of(order))
    done = []
    if paths := order.get("dropped_deletes"):
        done.append(drop_deletes(table, paths))
    if order.get("dangling"):
        action = table.actions().removeDanglingDeleteFiles(table.table)
        done.append(table.commit("dangling", action, lambda it: _size(it.execute().removedDeleteFiles())))
    for spec_id in order.get("manifest_specs", ()):
        action = table.actions().rewriteManifests(table.table).specId(spec_id)
        done.append(table.commit(f"manifests/{spec_id}", action, _execute_manifests))
    return json.dumps(answered("tidy", done, time.monotonic() - started))


def _execute_manifests(action: Any) -> int:
    return _size(action.execute().rewrittenManifests())


def _size(items: Any) -> int:
    return sum(1 for _ in items)


def drop_deletes(table: ActionTable, paths: list[str]) -> dict[str, str] | None:
    """Take delete files that apply to nothing out of the table. The summary of its snapshot."""
    with translated(table.catalog, f"dropping delete files of table {table.name}"):
        if (found := table.marked(DROPPED)) is not None:
            return found
        rewrite = table.table.newRewrite().set(PROCESS_ID, table.process_id).set(TASK, DROPPED)
        there = 0
        for file in _delete_files(table, frozenset(paths)):
            rewrite = rewrite.deleteFile(file)
            there += 1
        if not there:
            return None
        # If we die here, the commit landed or did not: the mark, or the files, tell the next attempt.
        rewrite.commit()
        return table.marked(DROPPED)


def _delete_files(table: ActionTable, paths: frozenset[str]) -> Iterator[Any]:
    """The head's delete files of these paths, as Iceberg's own objects."""
    head = table.table.currentSnapshot()
    for manifest in head.deleteManifests(table.table.io()):
        reader = table.jvm.org.apache.iceberg.ManifestFiles.readDeleteManifest(
            manifest, table.table.io(), table.table.specs()
        )
        try:
            yield from (file for file in reader.iterator() if file.location() in paths)
        finally:
            reader.close()


def expire(payload: str, driver: Driver) -> str:
    """Expire exactly these snapshots and references; no file is deleted here."""
    order = json.loads(payload)
    table = ActionTable(driver, where_of(order))
    with translated(table.catalog, f"expiring snapshots of table {table.name}"):
        transaction = table.table.newTransaction()
        if order["refs"]:
            _remove_refs(table, transaction, order["refs"])
        if order["snapshot_ids"]:
            # Nothing is older than 0: only the named snapshots go.
            expiry = transaction.expireSnapshots().expireOlderThan(0).cleanExpiredFiles(False)
            for snapshot_id in order["snapshot_ids"]:
                expiry = expiry.expireSnapshotId(int(snapshot_id))
            expiry.commit()
        # If we die here, the snapshots are gone or not; their files, then, are orphans.
        transaction.commitTransaction()
    return json.dumps({"receipt": "{}"})


def _remove_refs(table: ActionTable, transaction: Any, refs: dict[str, str]) -> None:
    now = table.table.refs()
    changes = transaction.manageSnapshots()
    for name, snapshot_id in refs.items():
        ref = now.get(name)
        if ref is None or str(ref.snapshotId()) != snapshot_id:
            raise TemporaryError(
                f"reference {name} of table {table.name} was moved or removed in the meantime",
                code="expiry_conflict",
                hint="it is retried",
            )
        changes = changes.removeBranch(name) if ref.isBranch() else changes.removeTag(name)
    changes.commit()


def set_properties(payload: str, driver: Driver) -> str:
    """Set table properties."""
    order = json.loads(payload)
    table = ActionTable(driver, where_of(order))
    with translated(table.catalog, f"setting properties of table {table.name}"):
        update = table.table.updateProperties()
        for name, value in order["properties"].items():
            update = update.set(name, value)
        # If we die here, the next attempt sets them again.
        update.commit()
    return json.dumps({"receipt": "{}"})
