"""Publishing plain Parquet: one put, if-none-match, of the commit that lists a process's files.

Exactly once, because all that could publish a key race for one name, and a process moves on to the
next name only when the one it noted is certainly another's: its own put, should it still be under
way, can no longer land there. The fence uses the same name, for a tombstone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from calve.destination.content import refuse_overlap, unchanged
from calve.destination.description import refuse_changes
from calve.destination.names import receipts_of
from calve.destination.outcome import AlreadyExported, PublishedSnapshot, PublishFenced, Undone
from calve.destination.plan import ExportPlan
from calve.destination.receipt import Receipt, files_of, paths_in, recount, refuse_shrinking
from calve.model.errors import CalveError, PermanentError, TemporaryError, UnknownOutcomeError
from calve.model.record import SPACED, Record, loads
from calve.parquet.commits import KeyCommit, only_key, refuse_foreign, shown
from calve.parquet.folder import Folder


def publish(
    folder: Folder,
    process_id: str,
    plan: ExportPlan,
    receipts: Sequence[Receipt],
    noted: str,
    note: Callable[[str], None],
) -> PublishedSnapshot | AlreadyExported:
    """One attempt: search, check, recount, note, put once, look again."""
    found = folder.generations(only_key(plan).hash)
    settled = _settled(folder, process_id, plan, found)
    if settled is not None:
        return settled
    table = folder.table()
    if plan.refuse_overlap:
        refuse_overlap(table.exports(), plan.table, plan.keys)
    refuse_changes(plan, table.metadata, f"folder {folder.location}")
    recount(plan, receipts)
    refuse_foreign(folder.location, found)
    replaced = shown(found)
    is_there = replaced is not None and not folder.with_presence(replaced).missing
    refuse_shrinking(plan, receipts, replaced.rows if replaced and is_there else 0)
    commit = KeyCommit.of(plan, process_id, receipts, generation=len(found))
    # If we die here, the note names a generation that was never put; a fence takes that name.
    note(_write_note([*_read_note(noted), commit.generation]))
    _put(folder, commit)
    return _look_again(folder, process_id, plan, commit)


def find(folder: Folder, process_id: str, plan: ExportPlan) -> PublishedSnapshot | None:
    """The process's own commit, if it has put one."""
    found = folder.generations(only_key(plan).hash)
    own = (one for one in found if one.process == process_id and not one.tombstone)
    return next((_snapshot_of(one, shown(found[: one.generation])) for one in own), None)


def _settled(
    folder: Folder, process_id: str, plan: ExportPlan, found: Sequence[KeyCommit]
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
        exports=(current.export,), unchanged=unchanged(current.content, only_key(plan).content)
    )


def _put(folder: Folder, commit: KeyCommit) -> None:
    uri = folder.commit_uri(commit.key, commit.generation)
    try:
        # If we die here, the commit is there or not; the next attempt reads it by its name.
        folder.storage.put_if_absent(uri, commit.to_json().encode())
    except TemporaryError as cause:
        raise _unknown(uri, cause) from cause


def _look_again(
    folder: Folder, process_id: str, plan: ExportPlan, sent: KeyCommit
) -> PublishedSnapshot | AlreadyExported:
    """Whatever the storage answered, the object decides: our own put may be reported as taken."""
    try:
        found = folder.generations(sent.key)
    except TemporaryError as cause:
        raise _unknown(folder.commit_uri(sent.key, sent.generation), cause) from cause
    settled = _settled(folder, process_id, plan, found)
    if settled is None:
        raise TemporaryError(
            f"another process took generation {sent.generation} of the key in {folder.location}",
            code="publish_conflict",
            hint="it is retried automatically",
        )
    return settled


def _published(folder: Folder, commit: KeyCommit, found: Sequence[KeyCommit]) -> PublishedSnapshot:
    replaced = shown(found[: commit.generation])
    if replaced is not None and shown(found) == commit:
        _remove_replaced(folder, commit, found)
    return _snapshot_of(commit, replaced)


def _snapshot_of(commit: KeyCommit, replaced: KeyCommit | None) -> PublishedSnapshot:
    return PublishedSnapshot(
        process_id=commit.process,
        snapshot_id=commit.id,
        rows=commit.rows,
        files=len(commit.files),
        bytes=commit.bytes,
        replaced_rows=0 if replaced is None else replaced.rows,
        replaced_files=0 if replaced is None else len(replaced.files),
    )


def _remove_replaced(folder: Folder, commit: KeyCommit, found: Sequence[KeyCommit]) -> None:
    """Files of generations that this one replaced: readers that glob would always see both."""
    kept = {file.path for file in commit.files}
    gone = [file.path for one in found[: commit.generation] for file in one.files if file.path not in kept]
    refuse_foreign(folder.location, found[: commit.generation])
    # If we die here, the process is not COMPLETED yet: the next attempt finds its commit and goes on.
    folder.storage.delete(gone)


def fence(folder: Folder, process_id: str, plan: ExportPlan, noted: str) -> PublishFenced | PublishedSnapshot:
    """Put a tombstone at every name that was noted. A process that noted nothing has put nothing, and
    the store refuses its next note."""
    key = only_key(plan)
    for generation in _read_note(noted):
        tombstone = KeyCommit(key=key.hash, generation=generation, process=process_id, tombstone=True)
        uri = folder.commit_uri(key.hash, generation)
        # If we die here, the tombstone is there or not; the next fence finds out.
        if folder.storage.put_if_absent(uri, tombstone.to_json().encode()):
            continue
        found = folder.read_commit(key.hash, generation)
        if found is None:
            raise UnknownOutcomeError(
                f"{uri} is taken and cannot be read",
                code="publish_unknown",
                hint="it is looked up again automatically",
            )
        if found.process == process_id and not found.tombstone:
            # What it replaced goes here too: nobody else would look for it.
            return _published(folder, found, folder.generations(key.hash))
    return PublishFenced(tag=key.hash)


def remove_lost(
    folder: Folder, process_id: str, plan: ExportPlan, receipts: Sequence[Receipt]
) -> tuple[str, ...]:
    """T13: files of a published process that neither its receipts nor any commit of the key name: a
    reader that globs would see their rows twice. Twice is harmless."""
    found = folder.generations(only_key(plan).hash)
    if not any(commit.process == process_id and not commit.tombstone for commit in found):
        raise TemporaryError(
            f"{folder.location} does not show the commit of process {process_id}",
            code="commit_missing",
            hint="nothing is deleted; it is retried automatically",
        )
    kept = {file.path for commit in found for file in commit.files} | paths_in(receipts)
    gone = tuple(uri for uri in files_of(folder.storage, process_id, plan) if uri not in kept)
    # If we die here, some are deleted; the next call lists, proves and deletes the others.
    folder.storage.delete(gone)
    return gone


def undo(
    folder: Folder, process_id: str, plan: ExportPlan, noted: str, used: Sequence[Receipt] = ()
) -> Undone:
    """Delete what the process wrote and no commit lists, whatever its generation: a retry may have
    published it. What `used` names stays in any case. Idempotent."""
    storage = folder.storage
    mine = files_of(storage, process_id, plan)
    if noted and isinstance(fence(folder, process_id, plan, noted), PublishedSnapshot):
        return Undone(left=mine, reason="they are published", in_use=True)
    listed = {file.path for commit in folder.generations(only_key(plan).hash) for file in commit.files}
    listed |= paths_in(used)
    left = tuple(uri for uri in mine if uri in listed)
    gone = tuple(uri for uri in mine if uri not in listed)
    receipts = tuple(storage.list(receipts_of(folder.receipts, process_id)))
    # If we die here, some are deleted; the next call lists, proves and deletes the others.
    storage.delete(gone)
    # Receipts last: as long as a file is there, something names it.
    storage.delete(receipts)
    reason = "commits or a retry list them" if left else ""
    return Undone(deleted=(*gone, *receipts), left=left, reason=reason, in_use=bool(left))


@dataclass(frozen=True, kw_only=True)
class _Note(Record, layout=SPACED):
    generations: tuple[int, ...]


def _read_note(text: str) -> tuple[int, ...]:
    """The generations that were about to be put, oldest first."""
    return loads(_Note, text, "what was noted of a publish").generations if text else ()


def _write_note(generations: Sequence[int]) -> str:
    return _Note(generations=tuple(dict.fromkeys(generations))).to_json()


def _unknown(uri: str, cause: CalveError) -> UnknownOutcomeError:
    return UnknownOutcomeError(
        f"it is not known whether {uri} was put: {cause.message}",
        code="publish_unknown",
        hint="nothing is deleted or repeated; it is looked up again automatically",
        service=cause.service,
    )
