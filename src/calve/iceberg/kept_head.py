"""A tag on the head that a view reads: while it is there, no expiry removes the files of that head, ours or another's.

A commit of a reference alone: no row, no snapshot and no branch changes by it. It asserts where the tag was, so two that
move it do not undo each other; whatever the answer was, a look decides.
"""

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calve.iceberg.publish.commit import CommitAnswer, Reply, send, tag_commit
from calve.iceberg.publish.marks import head_of
from calve.iceberg.tables import load
from calve.model.errors import CalveError, TemporaryError

_TRIES = 5


def tag_of_view(table_uuid: str) -> str:
    """Of the view over one ClickHouse table."""
    return f"calve-view-{table_uuid}"


def keep_head(catalog: Catalog, identifier: tuple[str, ...], tag: str) -> Table:
    """Put the tag on main's head; the table as it is then. Twice is harmless."""
    return _settle(catalog, identifier, tag, there=True)


def forget_head(catalog: Catalog, identifier: tuple[str, ...], tag: str) -> None:
    """Remove the tag, which may be gone already."""
    _settle(catalog, identifier, tag, there=False)


def _settle(catalog: Catalog, identifier: tuple[str, ...], tag: str, *, there: bool) -> Table:
    reply = Reply(answer=CommitAnswer.LANDED)
    for _ in range(_TRIES):
        table = load(catalog, identifier)
        head = head_of(table.metadata)
        wanted = head.snapshot_id if there and head is not None else None
        found = table.metadata.refs.get(tag)
        if (None if found is None else found.snapshot_id) == wanted:
            return table
        # If we die here, the tag has moved or not: the next call looks first.
        reply = send(
            catalog, table, tag_commit(table.metadata, tag, wanted), f"tagging {'.'.join(identifier)}"
        )
        if reply.answer is CommitAnswer.REFUSED and isinstance(reply.error, CalveError):
            raise reply.error
    raise TemporaryError(
        f"the tag {tag} of {'.'.join(identifier)} could not be set: {reply.error.message if reply.error else 'busy'}",
        code="publish_conflict",
        hint="others write to the table; retry",
    )
