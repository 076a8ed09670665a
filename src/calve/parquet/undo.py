"""Deleting what a process wrote and no commit lists, proven by reading the key's commits afresh."""

from collections.abc import Sequence

from calve.iceberg.publish.outcome import PublishedSnapshot
from calve.iceberg.undo import Undone, files_of
from calve.model.plan import ExportPlan
from calve.parquet import commits, places
from calve.parquet.commits import only_key
from calve.parquet.fence import fence
from calve.parquet.folder import ParquetFolder


def undo(folder: ParquetFolder, process_id: str, plan: ExportPlan, noted: str) -> Undone:
    """Idempotent. What a commit of any generation lists stays: a retry may have published it."""
    storage, location = folder.storage, folder.location
    if noted and isinstance(fence(folder, process_id, plan, noted), PublishedSnapshot):
        return Undone(deleted=(), left=files_of(storage, process_id, plan), reason="it is published")
    listed = {
        file.path
        for commit in commits.generations(storage, location, only_key(plan).hash)
        for file in commit.files
    }
    mine = files_of(storage, process_id, plan)
    left: Sequence[str] = tuple(uri for uri in mine if uri in listed)
    gone = [uri for uri in mine if uri not in listed]
    receipts = storage.list(f"{places.receipts(location)}/{process_id}")
    # If we die here, some are deleted; the next call lists, proves and deletes the others.
    storage.delete(gone)
    # Receipts last: as long as a file is there, something names it.
    storage.delete(receipts)
    return Undone(deleted=(*gone, *receipts), left=tuple(left), reason="commits list them" if left else "")
