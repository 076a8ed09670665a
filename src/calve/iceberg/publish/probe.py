"""Does a catalog refuse a commit whose assertions are false? All that keeps a publish single rests on it.

A look at one table: commits that must be refused, each for one false assertion. What they would change is a
property of our own, so a catalog that lets one through has damaged nothing, and the property is taken away again.
"""

from collections.abc import Iterator
from uuid import uuid4

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePropertiesUpdate,
    SetPropertiesUpdate,
    TableRequirement,
)

from calve.iceberg import tables
from calve.iceberg.publish.commit import CommitAnswer, Reply, TableCommit, send

PROPERTY = "calve.doctor"


def false_assertions(table: Table) -> dict[str, TableRequirement]:
    """Each in words, as what the catalog would have to find out."""
    metadata = table.metadata
    found: dict[str, TableRequirement] = {"the table's uuid": AssertTableUUID(uuid=uuid4())}
    main = metadata.refs.get(MAIN_BRANCH)
    if main is not None:
        found["the snapshot of main"] = _assert_ref(MAIN_BRANCH, main.snapshot_id ^ 1)
    named = next((name for name in metadata.refs if name != MAIN_BRANCH), MAIN_BRANCH)
    if named in metadata.refs:
        found["that a reference is absent"] = _assert_ref(named, None)
    return found


def let_through(catalog: Catalog, table: Table) -> Iterator[tuple[str, Reply]]:
    """The assertions that the catalog did not hold, or of which it cannot be told, with its answer."""
    for words, requirement in false_assertions(table).items():
        mark = uuid4().hex
        # If we die here, or are answered nothing, the property is there only if the catalog is broken.
        update = SetPropertiesUpdate(updates={PROPERTY: mark})
        reply = send(catalog, table, TableCommit(requirements=(requirement,), updates=(update,)), "probing")
        if reply.answer is CommitAnswer.CONFLICT:
            continue
        if reply.answer is CommitAnswer.UNKNOWN and _landed(catalog, table, mark):
            reply = Reply(answer=CommitAnswer.LANDED)
        if reply.answer is CommitAnswer.LANDED:
            _take_away(catalog, table)
        yield words, reply


def _landed(catalog: Catalog, table: Table, mark: str) -> bool:
    return tables.load(catalog, table.name()).properties.get(PROPERTY) == mark


def _take_away(catalog: Catalog, table: Table) -> None:
    # If we die here, a property named after us stays; it means nothing.
    removal = RemovePropertiesUpdate(removals=[PROPERTY])
    send(catalog, table, TableCommit(requirements=(), updates=(removal,)), "removing the probe")


def _assert_ref(name: str, snapshot_id: int | None) -> AssertRefSnapshotId:
    return AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": snapshot_id})
