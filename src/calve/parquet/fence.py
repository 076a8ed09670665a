"""Fencing a publish of plain Parquet: the name that the process noted is taken by a tombstone."""

from calve.iceberg.publish.outcome import Fenced, PublishedSnapshot
from calve.model.errors import UnknownOutcomeError
from calve.model.plan import ExportPlan
from calve.parquet import commits, places
from calve.parquet.commits import Commit, only_key
from calve.parquet.folder import ParquetFolder
from calve.parquet.publish import read_note


def fence(folder: ParquetFolder, process_id: str, plan: ExportPlan, noted: str) -> Fenced | PublishedSnapshot:
    """No put of this process can land from now on, or it was found to have landed. A process that
    noted nothing has put nothing, and its next note is refused by the store."""
    key = only_key(plan)
    for generation in read_note(noted):
        tombstone = Commit(key=key.hash, generation=generation, process=process_id, tombstone=True)
        uri = places.commit(folder.location, key.hash, generation)
        # If we die here, the tombstone stands or does not; the next fence finds out.
        if folder.storage.put_if_absent(uri, tombstone.to_json().encode()):
            continue
        found = commits.read(folder.storage, folder.location, key.hash, generation)
        if found is None:
            raise UnknownOutcomeError(
                f"{uri} is taken and cannot be read",
                code="publish_unknown",
                hint="it is looked up again by itself",
            )
        if found.process == process_id and not found.tombstone:
            return PublishedSnapshot(
                process_id=process_id,
                snapshot_id=f"{found.key}.{found.generation}",
                rows=found.rows,
                files=len(found.files),
                bytes=found.bytes,
            )
    return Fenced(tag=key.hash)
