"""Publishing plain Parquet: one put, if-none-match, of the commit that lists a process's files.

Exactly once, because all that could publish a key race for one name, and a process moves on to the
next name only when the one it noted is certainly another's (its own put, should it still be under
way, can no longer land there).
"""

import json
from collections.abc import Callable, Sequence

from calve.iceberg.publish.outcome import AlreadyExported, EarlierExport, PublishedSnapshot
from calve.iceberg.publish.overlap import refuse_overlap
from calve.iceberg.publish.recount import recount
from calve.iceberg.tables import check, load
from calve.model.content import unchanged
from calve.model.errors import CalveError, PermanentError, TemporaryError, UnknownOutcomeError
from calve.model.plan import ExportPlan
from calve.model.receipt import Receipt
from calve.parquet import commits, places
from calve.parquet.commits import Commit, only_key, shown
from calve.parquet.folder import IDENTIFIER, ParquetFolder


def publish(
    folder: ParquetFolder,
    process_id: str,
    plan: ExportPlan,
    receipts: Sequence[Receipt],
    noted: str,
    note: Callable[[str], None],
) -> PublishedSnapshot | AlreadyExported:
    """One attempt: search, check, recount, note, put once, look again. Raises as Iceberg's does."""
    found = commits.generations(folder.storage, folder.location, only_key(plan).hash)
    settled = _settled(folder, process_id, plan, found)
    if settled is not None:
        return settled
    table = load(folder, IDENTIFIER)
    if plan.refuse_overlap:
        refuse_overlap(table.metadata.properties, plan.table, plan.keys)
    check(plan, table)
    recount(plan, receipts)
    commit = Commit.of(plan, process_id, receipts, generation=len(found))
    # If we die here, the note names a generation that was never put: whoever fences takes that name.
    note(_write_note([*read_note(noted), commit.generation]))
    _put(folder, commit)
    return _look_again(folder, process_id, plan, commit)


def _settled(
    folder: ParquetFolder, process_id: str, plan: ExportPlan, found: Sequence[Commit]
) -> PublishedSnapshot | AlreadyExported | None:
    """The answer, if the commits give one. Before any other check (L11)."""
    for commit in found:
        if commit.process == process_id and commit.tombstone:
            raise PermanentError(
                f"process {process_id} was fenced in {folder.location}: it can no longer publish",
                code="publish_fenced",
                hint=f"run it again as a new process: calve retry {process_id}",
            )
        if commit.process == process_id:
            return _published(folder, commit, found)
    current = shown(found)
    if current is None or plan.replace:
        return None
    return AlreadyExported(
        exports=(_earlier(current),), unchanged=unchanged(current.content, only_key(plan).content)
    )


def _put(folder: ParquetFolder, commit: Commit) -> None:
    uri = places.commit(folder.location, commit.key, commit.generation)
    try:
        # If we die here, the commit is there or not; the next attempt reads it by its name.
        folder.storage.put_if_absent(uri, commit.to_json().encode())
    except TemporaryError as cause:
        raise _unknown(uri, cause) from cause


def _look_again(
    folder: ParquetFolder, process_id: str, plan: ExportPlan, sent: Commit
) -> PublishedSnapshot | AlreadyExported:
    """Whatever the storage answered, the object decides: its own put, too, may be told as taken."""
    try:
        found = commits.generations(folder.storage, folder.location, sent.key)
    except TemporaryError as cause:
        raise _unknown(places.commit(folder.location, sent.key, sent.generation), cause) from cause
    settled = _settled(folder, process_id, plan, found)
    if settled is None:
        raise TemporaryError(
            f"generation {sent.generation} of the key was taken by another process in {folder.location}",
            code="publish_conflict",
            hint="it is tried again by itself",
        )
    return settled


def _published(folder: ParquetFolder, commit: Commit, found: Sequence[Commit]) -> PublishedSnapshot:
    replaced = shown(found[: commit.generation])
    if replaced is not None and shown(found) is commit:
        _remove_replaced(folder, commit, found)
    return PublishedSnapshot(
        process_id=commit.process,
        snapshot_id=f"{commit.key}.{commit.generation}",
        rows=commit.rows,
        files=len(commit.files),
        bytes=commit.bytes,
        replaced_rows=0 if replaced is None else replaced.rows,
        replaced_files=0 if replaced is None else len(replaced.files),
    )


def _remove_replaced(folder: ParquetFolder, commit: Commit, found: Sequence[Commit]) -> None:
    """Files of generations that this one replaced: readers that glob would see both for ever."""
    kept = {file.path for file in commit.files}
    gone = [file.path for one in found[: commit.generation] for file in one.files if file.path not in kept]
    # If we die here, the process is not COMPLETED yet: the next attempt finds its commit and goes on.
    folder.storage.delete(gone)


def _earlier(commit: Commit) -> EarlierExport:
    identity, partition, selection = commit.input
    return EarlierExport(
        key_hash=commit.key,
        process_id=commit.process,
        snapshot_id=str(commit.generation),
        content=commit.content,
        rows=commit.rows,
        files=len(commit.files),
        input=(identity, partition, selection),
    )


def read_note(text: str) -> tuple[int, ...]:
    """The generations that were about to be put, oldest first."""
    return tuple(json.loads(text)["generations"]) if text else ()


def _write_note(generations: Sequence[int]) -> str:
    return json.dumps({"generations": list(dict.fromkeys(generations))})


def _unknown(uri: str, cause: CalveError) -> UnknownOutcomeError:
    return UnknownOutcomeError(
        f"whether {uri} was put is not known: {cause.message}",
        code="publish_unknown",
        hint="nothing is deleted or repeated; it is looked up again by itself",
        service=cause.service,
    )
