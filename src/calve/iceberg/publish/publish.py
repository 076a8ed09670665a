"""One attempt to publish: search, check, recount, build, note, send once, look again.

The control plane calls it again, after a wait, until its budget ends. Every path out of here
is an answer that a look at the table gave, or an error that says whether one is still owed.
"""

from collections.abc import Callable, Sequence

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calve.destination.content import (
    increments_by_input,
    of_partitions,
    refuse_overlap,
    refuse_released,
    refuse_unchained,
    unchanged,
)
from calve.destination.file_io import lent_to
from calve.destination.outcome import AlreadyExported, EarlierExport, PublishedSnapshot
from calve.destination.plan import ExportPlan
from calve.destination.receipt import Receipt, recount, refuse_shrinking
from calve.iceberg import tables
from calve.iceberg.errors import catalog_call
from calve.iceberg.publish import marks
from calve.iceberg.publish.build import StagedSnapshot, build
from calve.iceberg.publish.commit import CommitAnswer, Reply, publish_commit, send
from calve.iceberg.publish.manifests import NOTHING, delete_unused, manifests_of
from calve.iceberg.publish.marks import Sent, all_exports, refuse_if_unprovable, search
from calve.iceberg.publish.replace import find_removal
from calve.iceberg.tables import find_by_uuid
from calve.model.errors import (
    CalveError,
    PermanentError,
    RefusedError,
    TemporaryError,
    UnknownOutcomeError,
)
from calve.model.limits import Limits

DAY_MS = 86_400_000


def tag_age_ms(limits: Limits | None) -> int:
    return int((limits or Limits()).tag_days * DAY_MS)


def publish(
    catalog: Catalog,
    process_id: str,
    plan: ExportPlan,
    receipts: Sequence[Receipt],
    noted: str,
    note: Callable[[str], None],
    *,
    limits: Limits | None = None,
    now_ms: int | None = None,
) -> PublishedSnapshot | AlreadyExported:
    """Publish the receipts' files as one snapshot, or find that it is done.

    Raises TemporaryError (lost a race: try again), UnknownOutcomeError (a commit may have landed:
    try again, delete nothing), UnavailableError, and as final answers PermanentError, RefusedError,
    NotFoundError. `note` must have written before it returns; if it raises, nothing is sent. An
    empty note takes it back: the send was certainly refused.
    """
    sent = marks.read_note(noted)
    table = _load(catalog, plan, sent)
    settled, earlier = _settled(table, process_id, plan, sent)
    if settled is not None:
        return settled
    refuse_if_unprovable(table.metadata, sent, tag_age_ms(limits))
    exports = of_partitions(all_exports(table.metadata, plan.keys), plan.keys)
    refuse_released(exports, plan.table, plan.keys)
    refuse_unchained(exports, plan.table, plan.keys)
    if plan.refuse_overlap:
        refuse_overlap(exports, plan.table, plan.keys)
    tables.check(plan, table)
    _refuse_renamed(plan, table)
    recount(plan, receipts)
    added = _added_to(earlier, exports) if plan.replace else ()
    merge = not sent  # an attempt after a lost race has to be short
    staged = _stage(catalog, table, process_id, plan, receipts, (*earlier, *added), now_ms, merge=merge)
    commit = publish_commit(
        catalog,
        table.metadata,
        process_id,
        staged.snapshot,
        marks.key_properties(
            plan, receipts, process_id, staged.snapshot.snapshot_id, staged.snapshot.sequence_number or 0
        ),
        tag_age_ms(limits),
        removed=[marks.property_of(one.key_hash) for one in added],
    )
    # If we die here, the note names a snapshot that was never sent: the search finds nothing, rightly.
    note(marks.write_note([*sent, staged.sent]))
    reply = send(catalog, table, commit, f"publishing snapshot {staged.sent.snapshot_id}")
    if reply.answer is CommitAnswer.REFUSED and not sent and reply.error is not None:
        # It was not applied, and nothing else is owed: the process may end without a fence,
        # which the same catalog would refuse as well. If we die here, it is fenced all the same.
        note("")
        raise reply.error
    return _look_again(catalog, process_id, plan, [*sent, staged.sent], reply)


def _added_to(replaced: Sequence[EarlierExport], exports: Sequence[EarlierExport]) -> list[EarlierExport]:
    """What was added to whole partitions that are replaced: it goes with them."""
    increments = increments_by_input(exports)
    wholes = [one for one in replaced if any(one.input) and not one.input[2]]
    return [one for whole in wholes for one in increments.get(whole.input[:2], ())]


def _settled(
    table: Table, process_id: str, plan: ExportPlan, sent: Sequence[Sent]
) -> tuple[PublishedSnapshot | AlreadyExported | None, tuple[EarlierExport, ...]]:
    """The answer, if the marks give one; otherwise the exports that this one is to replace."""
    found = search(table.metadata, process_id, plan.keys, sent)
    if found.ours is not None:
        return found.ours, ()
    if found.tombstone:
        raise PermanentError(
            f"process {process_id} was fenced in table {'.'.join(table.name())}: it can no longer publish",
            code="publish_fenced",
            hint=f"run it again as a new process: calve retry {process_id}",
        )
    if not found.earlier or plan.replace:
        return None, found.earlier
    if len(found.earlier) == len(plan.keys):
        contents = {key.hash: key.content for key in plan.keys}
        same = all(unchanged(export.content, contents[export.key_hash]) for export in found.earlier)
        return AlreadyExported(exports=found.earlier, unchanged=same), ()
    names = {key.hash: key.partition for key in plan.keys}
    partitions = ", ".join(sorted(names[export.key_hash] for export in found.earlier))
    raise RefusedError(
        f"partitions {partitions} were exported in the meantime by process {found.earlier[0].process_id}",
        code="partly_exported",
        hint="export again: partitions that are exported already are then skipped",
    )


def _refuse_renamed(plan: ExportPlan, table: Table) -> None:
    if tuple(table.name()) != plan.destination.identifier:
        raise PermanentError(
            f"table {_name(plan)} was renamed to {'.'.join(table.name())}",
            code="destination_renamed",
            hint="export again, to the name that it has now",
        )


def _stage(
    catalog: Catalog,
    table: Table,
    process_id: str,
    plan: ExportPlan,
    receipts: Sequence[Receipt],
    earlier: Sequence[EarlierExport],
    now_ms: int | None,
    *,
    merge: bool,
) -> StagedSnapshot:
    doing = f"writing metadata files of table {'.'.join(table.name())}"
    with lent_to(table), catalog_call(catalog.name, doing):
        removal = find_removal(table, plan, earlier) if plan.replace else NOTHING
        refuse_shrinking(plan, receipts, removal.rows)
        return build(table, process_id, plan, receipts, removal, now_ms, merge=merge)


def _look_again(
    catalog: Catalog, process_id: str, plan: ExportPlan, sent: Sequence[Sent], reply: Reply
) -> PublishedSnapshot | AlreadyExported:
    """Whatever the catalog answered, the table decides."""
    try:
        table = _load(catalog, plan, sent)  # a refused look settles nothing either
        settled, _ = _settled(table, process_id, plan, sent)
        if isinstance(settled, PublishedSnapshot):
            _prove_readable(catalog, table, settled)
    except TemporaryError as cause:
        raise _unknown(plan, f"a commit was sent, and {cause.message}", cause) from cause
    if isinstance(settled, PublishedSnapshot):
        delete_unused(table, process_id, sent, settled.snapshot_id)
    if settled is not None:
        return settled
    match reply.answer:
        case CommitAnswer.CONFLICT:
            raise TemporaryError(
                f"table {_name(plan)} changed while the snapshot was built: {_said(reply)}",
                code="publish_conflict",
                hint="another writer was first; it is retried automatically",
            )
        case CommitAnswer.LANDED:
            raise _unknown(plan, "the catalog accepted the commit and does not show it yet", None)
        case CommitAnswer.REFUSED | CommitAnswer.UNKNOWN:
            raise _unknown(plan, _said(reply), reply.error)


def _prove_readable(catalog: Catalog, table: Table, published: PublishedSnapshot) -> None:
    snapshot = marks.snapshot_of(table.metadata, int(published.snapshot_id))
    doing = f"reading back snapshot {published.snapshot_id}"
    with lent_to(table), catalog_call(catalog.name, doing):
        manifests_of(table, snapshot)


def _load(catalog: Catalog, plan: ExportPlan, sent: Sequence[Sent]) -> Table:
    """While an earlier send is unresolved, even a definitive answer to a load settles nothing, and a
    table that is gone from its name is looked for by its uuid (T12)."""
    destination = plan.destination
    if not sent:
        return tables.load(catalog, destination.identifier)
    try:
        table = find_by_uuid(catalog, destination.identifier, destination.uuid)
    except PermanentError as cause:
        raise _unknown(plan, f"a commit was sent earlier, and {cause.message}", cause) from cause
    if table is None:
        raise PermanentError(
            f"table {_name(plan)} (uuid {destination.uuid}) was dropped after a commit was sent to it",
            code="destination_dropped",
            hint="export again: the table is created again",
        )
    return table


def _unknown(plan: ExportPlan, what: str, cause: CalveError | None) -> UnknownOutcomeError:
    return UnknownOutcomeError(
        f"whether table {_name(plan)} has the snapshot is not known: {what}",
        code="publish_unknown",
        hint="nothing is deleted or repeated; it is looked up again automatically",
        service="" if cause is None else cause.service,
    )


def _said(reply: Reply) -> str:
    return "no reason given" if reply.error is None else reply.error.message


def _name(plan: ExportPlan) -> str:
    return ".".join((plan.destination.catalog, *plan.destination.identifier))
