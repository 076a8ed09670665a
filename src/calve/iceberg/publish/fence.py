"""The fence: after it, no commit of a process can land.

A commit that was sent, or is about to be sent by a worker that was stopped, asserts that main is
the head it was built on, and that its process's tag is absent. The fence moves main to an empty
snapshot and sets the tag on it, in one commit that asserts the same. The first to commit decides.
Only after `PublishFenced` may a process end FAILED or CANCELLED and its files be deleted (D2). The tag may
be swept later; main has moved for good (T1).
"""

from logging import getLogger

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from calve.destination.file_io import lent_to
from calve.destination.outcome import PublishedSnapshot, PublishFenced
from calve.destination.plan import ExportPlan
from calve.iceberg.errors import catalog_call
from calve.iceberg.publish import marks
from calve.iceberg.publish.build import build_empty
from calve.iceberg.publish.commit import CommitAnswer, send, tombstone_commit
from calve.iceberg.publish.marks import search
from calve.iceberg.publish.publish import tag_age_ms
from calve.iceberg.tables import find_by_uuid
from calve.model.errors import TemporaryError, UnknownOutcomeError
from calve.model.limits import Limits

LOOKS = 8  # races lost to other writers in one call; more is the control plane's budget

_log = getLogger(__name__)


def fence(
    catalog: Catalog, process_id: str, plan: ExportPlan, noted: str, *, limits: Limits | None = None
) -> PublishFenced | PublishedSnapshot:
    """Put the process's tombstone on main, or find that the process was published.

    Twice gives the same answer. UnavailableError or UnknownOutcomeError where neither can be had
    now: then nothing may be deleted, and the process's keys stay locked.
    """
    reason = ""
    lost: list[Snapshot] = []
    for look in range(LOOKS + 1):
        try:
            table = find_by_uuid(catalog, plan.destination.identifier, plan.destination.uuid)
        except TemporaryError as cause:
            if not look:
                raise
            raise _unknown(process_id, cause.message, cause.service) from cause
        if table is None:
            # A commit asserts the table's uuid, so it cannot land where there is no such table.
            # Should the very table come back, undo has left the files in place.
            return PublishFenced(tag=marks.tag_of(process_id))
        if (settled := _settled(table, process_id, plan, noted)) is not None:
            _tidy(table, lost)
            return settled
        if look == LOOKS or reason:
            break
        doing = f"fencing process {process_id}"
        with lent_to(table), catalog_call(catalog.name, doing):
            empty = build_empty(table, process_id)
        lost.append(empty)
        commit = tombstone_commit(catalog, table.metadata, process_id, empty, tag_age_ms(limits))
        # If we die here, the tombstone stands or does not: the next call finds out.
        reply = send(catalog, table, commit, doing)
        if reply.answer is CommitAnswer.REFUSED and reply.error is not None:
            raise reply.error
        if reply.answer is CommitAnswer.UNKNOWN:
            reason = "no reason given" if reply.error is None else reply.error.message
    raise _unknown(process_id, reason or "main moved at every try, or the catalog does not show it yet")


def _settled(
    table: Table, process_id: str, plan: ExportPlan, noted: str
) -> PublishFenced | PublishedSnapshot | None:
    found = search(table.metadata, process_id, plan.keys, marks.read_note(noted))
    if found.ours is not None:
        return found.ours
    return PublishFenced(tag=marks.tag_of(process_id)) if found.fenced else None


def _tidy(table: Table, tried: list[Snapshot]) -> None:
    """Manifest lists of tries that lost. Each asserted what no longer holds, so none can land."""
    there = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
    for snapshot in tried:
        if snapshot.snapshot_id in there:
            continue
        try:
            # If we die here, a file that nothing refers to is left.
            table.io.delete(snapshot.manifest_list)
        except OSError as cause:
            _log.info("could not delete %s, which nothing refers to: %s", snapshot.manifest_list, cause)


def _unknown(process_id: str, reason: str, service: str = "") -> UnknownOutcomeError:
    return UnknownOutcomeError(
        f"process {process_id} could not be fenced: {reason}",
        code="fence_unknown",
        hint="nothing is deleted; it is retried automatically; `calve doctor` lists it",
        service=service,
    )
