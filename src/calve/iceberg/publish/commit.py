"""One commit, sent once, and what its answer means.

The request itself carries the assertions, so the catalog refuses a second publish from
whomever: this table, main where we searched it, our tag absent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    UnauthorizedError,
)
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from calve.iceberg.errors import translate
from calve.iceberg.publish import marks
from calve.model.errors import CalveError, PermanentError

# 419: REST catalogs' own, for a token that has expired. Not 404: the table may have been renamed since
# an earlier copy of the request was applied (T12), so a look has to tell.
_DEFINITIVE_STATUS = (401, 403, 419)
# Nessie's words: it has references of its own, and none in a table but main. No retry helps (T15).
_NO_TAGS = "ref must be 'main'"
_AGELESS_MS = 2**63 - 1  # said, since a table may have a default age for references


class CommitAnswer(Enum):
    """What a sent commit became, as far as its answer says."""

    LANDED = "landed"
    CONFLICT = "conflict"  # an assertion failed; may hide an earlier landing, so look
    REFUSED = "refused"  # 401, 403, 419, no tags: nobody tried to apply it
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Reply:
    answer: CommitAnswer
    error: CalveError | None = None


@dataclass(frozen=True, kw_only=True)
class TableCommit:
    """A commit is data: what must hold, and what changes."""

    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]


def publish_commit(
    catalog: Catalog,
    metadata: TableMetadata,
    process_id: str,
    snapshot: Snapshot,
    properties: dict[str, str],
    tag_age_ms: int,
    *,
    removed: Sequence[str] = (),
) -> TableCommit:
    """The snapshot on main, the tag and the keys' properties, all or nothing."""
    updates: list[TableUpdate] = [
        AddSnapshotUpdate(snapshot=snapshot),
        _set_main(metadata, snapshot),
        _set_tag(process_id, snapshot.snapshot_id, tag_age_ms),
    ]
    if properties:
        updates.append(SetPropertiesUpdate(updates=properties))
    if removed:
        updates.append(RemovePropertiesUpdate(removals=list(removed)))
    return TableCommit(
        requirements=(
            _assert_uuid(metadata),
            _assert_main(metadata),
            *_assert_tag(catalog, metadata, process_id, None),
        ),
        updates=tuple(updates),
    )


def tombstone_commit(
    catalog: Catalog, metadata: TableMetadata, process_id: str, empty: Snapshot, tag_age_ms: int
) -> TableCommit:
    """The empty snapshot on main, and the tag on it.

    T1: a late publish asserts that main is where it was searched, so a new head refuses it for as
    long as that head has successors only. A tag alone would not: it is as old as the snapshot that
    it names, and is swept with the next expiry of a table that nobody has written to for a while.
    """
    tag = metadata.refs.get(marks.tag_of(process_id))  # of a fence that main was rolled back behind
    return TableCommit(
        requirements=(
            _assert_uuid(metadata),
            _assert_main(metadata),
            *_assert_tag(catalog, metadata, process_id, None if tag is None else tag.snapshot_id),
        ),
        updates=(
            AddSnapshotUpdate(snapshot=empty),
            _set_main(metadata, empty),
            _set_tag(process_id, empty.snapshot_id, tag_age_ms),
        ),
    )


class TagMove(Enum):
    """What becomes of the tag of released rows."""

    ALONG = "along"  # to the new head, whose rows are proven
    STAYS = "stays"
    GOES = "goes"  # nothing is released any more


def release_commit(
    metadata: TableMetadata, empty: Snapshot, properties: dict[str, str], removed: list[str], move: TagMove
) -> TableCommit:
    """The empty snapshot on main, and properties with it. Main moves, so that a replace which was built
    before is refused."""
    tag = metadata.refs.get(marks.RELEASED_TAG)
    updates: list[TableUpdate] = [AddSnapshotUpdate(snapshot=empty), _set_main(metadata, empty)]
    if move is TagMove.ALONG:
        updates.append(_set_ref(marks.RELEASED_TAG, empty.snapshot_id, _AGELESS_MS))
    elif move is TagMove.GOES and tag is not None:
        updates.append(RemoveSnapshotRefUpdate.model_validate({"ref-name": marks.RELEASED_TAG}))
    if properties:
        updates.append(SetPropertiesUpdate(updates=properties))
    if removed:
        updates.append(RemovePropertiesUpdate(removals=removed))
    return TableCommit(
        requirements=(
            _assert_uuid(metadata),
            _assert_main(metadata),
            _assert_ref(marks.RELEASED_TAG, None if tag is None else tag.snapshot_id),
        ),
        updates=tuple(updates),
    )


def tag_commit(metadata: TableMetadata, tag: str, snapshot_id: int | None) -> TableCommit:
    """The tag alone, on that snapshot for good; None: without it."""
    before = metadata.refs.get(tag)
    gone = RemoveSnapshotRefUpdate.model_validate({"ref-name": tag})
    return TableCommit(
        requirements=(
            _assert_uuid(metadata),
            _assert_ref(tag, None if before is None else before.snapshot_id),
        ),
        updates=(gone if snapshot_id is None else _set_ref(tag, snapshot_id, _AGELESS_MS),),
    )


def send(catalog: Catalog, table: Table, commit: TableCommit, doing: str) -> Reply:
    """Send once and classify. Never raises for an answer; nothing is repeated."""
    try:
        # If we die here, the commit may or may not have landed: the marks tell the next look.
        catalog.commit_table(table, commit.requirements, commit.updates)
    except Exception as cause:  # noqa: BLE001 - whatever it is, the answer is data
        return Reply(answer=_classify(cause), error=_told(catalog, doing, cause))
    return Reply(answer=CommitAnswer.LANDED)


def _classify(cause: Exception) -> CommitAnswer:
    """Only what is known not to be an answer to *this* request failing midway is not UNKNOWN."""
    if _has_no_tags(cause):
        return CommitAnswer.REFUSED
    if isinstance(cause, CommitFailedException | BadRequestError):
        return CommitAnswer.CONFLICT
    if isinstance(cause, UnauthorizedError | ForbiddenError):
        return CommitAnswer.REFUSED
    if _status(cause) in _DEFINITIVE_STATUS:
        return CommitAnswer.REFUSED
    return CommitAnswer.UNKNOWN


def _told(catalog: Catalog, doing: str, cause: Exception) -> CalveError:
    error = translate(catalog.name, doing, cause)
    if not _has_no_tags(cause):
        return error
    return PermanentError(
        error.message,
        code="catalog_without_tags",
        hint="Calve marks each publish with a tag, which this catalog does not keep (Nessie): use another; see docs/catalogs.md",
    )


def _has_no_tags(cause: Exception) -> bool:
    return isinstance(cause, CommitFailedException | BadRequestError) and _NO_TAGS in str(cause)


def _status(cause: Exception) -> Any:
    """PyIceberg has no error of its own for a 419 to a commit; the HTTP error below it tells."""
    return getattr(getattr(cause.__cause__, "response", None), "status_code", None)


def _assert_uuid(metadata: TableMetadata) -> AssertTableUUID:
    return AssertTableUUID(uuid=metadata.table_uuid)


def _assert_main(metadata: TableMetadata) -> AssertRefSnapshotId:
    main = metadata.refs.get(MAIN_BRANCH)
    return _assert_ref(MAIN_BRANCH, None if main is None else main.snapshot_id)


def _assert_tag(
    catalog: Catalog, metadata: TableMetadata, process_id: str, snapshot_id: int | None
) -> tuple[AssertRefSnapshotId, ...]:
    if isinstance(catalog, MetastoreCatalog) and not metadata.snapshots:
        return ()  # PyIceberg rejects it on a table without snapshots; there `main = null` does the same
    return (_assert_ref(marks.tag_of(process_id), snapshot_id),)


def _assert_ref(name: str, snapshot_id: int | None) -> AssertRefSnapshotId:
    return AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": snapshot_id})


def _set_main(metadata: TableMetadata, snapshot: Snapshot) -> SetSnapshotRefUpdate:
    """With the retention somebody may have set on main: the update replaces the whole reference."""
    main = metadata.refs.get(MAIN_BRANCH)
    return SetSnapshotRefUpdate.model_validate(
        {
            "ref-name": MAIN_BRANCH,
            "type": SnapshotRefType.BRANCH,
            "snapshot-id": snapshot.snapshot_id,
            "max-ref-age-ms": None if main is None else main.max_ref_age_ms,
            "max-snapshot-age-ms": None if main is None else main.max_snapshot_age_ms,
            "min-snapshots-to-keep": None if main is None else main.min_snapshots_to_keep,
        }
    )


def _set_tag(process_id: str, snapshot_id: int, tag_age_ms: int) -> SetSnapshotRefUpdate:
    return _set_ref(marks.tag_of(process_id), snapshot_id, tag_age_ms)


def _set_ref(name: str, snapshot_id: int, age_ms: int) -> SetSnapshotRefUpdate:
    return SetSnapshotRefUpdate.model_validate(
        {
            "ref-name": name,
            "type": SnapshotRefType.TAG,
            "snapshot-id": snapshot_id,
            "max-ref-age-ms": age_ms,
        }
    )
