"""The fence: after it, no commit of a process can land.

A commit that was sent, or is about to be sent by a worker that was stopped, asserts that its
process's tag is absent. Whoever takes the tag first decides: the publish, or this tombstone.
Only after `Fenced` may a process end FAILED or CANCELLED and its files be deleted (D2).
"""

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calve.destination.outcome import Fenced, PublishedSnapshot
from calve.iceberg import tables
from calve.iceberg.errors import catalog_call
from calve.iceberg.publish import marks
from calve.iceberg.publish.build import build_empty, head_of
from calve.iceberg.publish.commit import Answer, Commit, send, tombstone_commit
from calve.iceberg.publish.publish import tag_age_ms
from calve.iceberg.publish.search import Findings, search
from calve.model.errors import NotFoundError, TemporaryError, UnknownOutcomeError
from calve.model.limits import Limits
from calve.model.plan import ExportPlan

LOOKS = 3  # a race is lost to the publish once, or to other writers; more is the control plane's budget


def fence(
    catalog: Catalog, process_id: str, plan: ExportPlan, noted: str, *, limits: Limits | None = None
) -> Fenced | PublishedSnapshot:
    """Take the process's tag as a tombstone, or find that the process was published.

    Twice gives the same answer. UnavailableError or UnknownOutcomeError where neither can be had
    now: then nothing may be deleted, and the process's keys stay locked.
    """
    sent = marks.read_note(noted)
    reason = ""
    for _ in range(LOOKS):
        try:
            table = tables.load(catalog, plan.destination.identifier)
        except NotFoundError:
            # A commit asserts the table's uuid, so it cannot land where there is no such table.
            # Should the very table come back under its name, undo has left the files in place.
            return Fenced(tag=marks.tag_of(process_id))
        if str(table.metadata.table_uuid) != plan.destination.uuid:
            return Fenced(tag=marks.tag_of(process_id))
        found = search(table.metadata, process_id, plan.keys, sent)
        if (settled := _settled(process_id, found)) is not None:
            return settled
        commit = _tombstone(catalog, table, process_id, tag_age_ms(limits))
        # If we die here, the tombstone stands or does not: the next call finds out.
        reply = send(catalog, table, commit, f"fencing process {process_id}")
        if reply.answer is Answer.REFUSED and reply.error is not None:
            raise reply.error
        reason = "" if reply.error is None else reply.error.message
        if reply.answer is Answer.UNKNOWN:
            break
    return _look_again(catalog, process_id, plan, noted, reason)


def _settled(process_id: str, found: Findings) -> Fenced | PublishedSnapshot | None:
    if found.ours is not None:
        return found.ours
    return Fenced(tag=marks.tag_of(process_id)) if found.tombstone else None


def _tombstone(catalog: Catalog, table: Table, process_id: str, age_ms: int) -> Commit:
    empty = None
    if head_of(table.metadata) is None:
        with catalog_call(catalog.name, f"writing metadata files of table {'.'.join(table.name())}"):
            empty = build_empty(table, process_id).snapshot
    return tombstone_commit(catalog, table.metadata, process_id, empty, age_ms)


def _look_again(
    catalog: Catalog, process_id: str, plan: ExportPlan, noted: str, reason: str
) -> Fenced | PublishedSnapshot:
    try:
        table = tables.load(catalog, plan.destination.identifier)
    except TemporaryError as cause:
        raise _unknown(process_id, cause.message, cause.service) from cause
    found = search(table.metadata, process_id, plan.keys, marks.read_note(noted))
    if (settled := _settled(process_id, found)) is not None:
        return settled
    raise _unknown(process_id, reason or "the catalog accepted it and does not show it yet")


def _unknown(process_id: str, reason: str, service: str = "") -> UnknownOutcomeError:
    return UnknownOutcomeError(
        f"process {process_id} could not be fenced: {reason}",
        code="fence_unknown",
        hint="nothing is deleted; it is tried again by itself, or with `calve doctor`",
        service=service,
    )
