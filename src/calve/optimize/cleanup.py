"""Remove orphan files, and Calve's own receipts that are no longer needed.

`iceberg.health.orphans` decides what may go (D15); here each file is checked once more, against the table
as it is now, right before it is deleted.

Which process a file or a snapshot belongs to, as far as this store knows (D15).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calve.control.ports import StoreReader
from calve.iceberg import tables
from calve.iceberg.errors import catalog_call
from calve.iceberg.health.orphans import Orphans, Owner, find_orphans, list_files, reachable
from calve.iceberg.health.report import orphan_limit
from calve.iceberg.health.settings import Settings
from calve.iceberg.publish.marks import released_exports, tag_of
from calve.model.errors import NotFoundError, Outcome
from calve.model.limits import Limits
from calve.model.process import Process, ProcessId
from calve.model.record import loads
from calve.model.states import PROCESS_LIVE, Leftovers
from calve.objects.uri import Uri

_MAY_STILL_BE_USED = frozenset({Leftovers.KEPT, Leftovers.ADOPTED, Leftovers.UNDOING})
_MOST_LIVE = 100_000


def owner_in(store: StoreReader, table: str) -> Callable[[str], Owner]:
    """What the store says about a process, seen from a table: a process that wrote elsewhere is another's."""

    def owner(process_id: str) -> Owner:
        try:
            process = store.process(ProcessId(process_id))
        except NotFoundError:
            return Owner.UNKNOWN
        if _may_need_files(process):
            return Owner.LIVE
        return Owner.ENDED if process.destination == table else Owner.OTHERS

    return owner


def _may_need_files(process: Process) -> bool:
    if process.state in PROCESS_LIVE or process.leftovers in _MAY_STILL_BE_USED:
        return True
    return process.error is not None and process.error.outcome is Outcome.UNKNOWN


def held_snapshots(
    store: StoreReader, table_uuid: str, besides: str = ""
) -> tuple[frozenset[int], frozenset[str]]:
    """The base snapshots of live processes that work on a table, and the tags that live processes may
    still look for. `besides` is the process that asks: once its tasks are done it needs its base no more."""
    bases: set[int] = set()
    tags: set[str] = set()
    for process in store.live(_MOST_LIVE):
        tags.add(tag_of(process.id))
        if (text := store.plan(process.id)) is None:
            continue
        plan = loads(dict[str, Any], text, f"the plan of process {process.id}")
        destination = plan.get("destination") or plan
        base = destination.get("base_snapshot_id")
        if destination.get("uuid") == table_uuid and base is not None and process.id != besides:
            bases.add(int(base))
    return frozenset(bases), frozenset(tags)


def live_ids(store: StoreReader) -> frozenset[str]:
    return frozenset(process.id for process in store.live(_MOST_LIVE))


@dataclass(frozen=True, kw_only=True)
class Cleaned:
    orphans: int = 0
    orphan_bytes: int = 0
    of_unknown: int = 0  # left: files of processes that this store does not know
    young: int = 0  # left: too young to judge
    receipts: int = 0


def full_name(table: Table) -> str:
    """As processes name their destination."""
    return ".".join((table.catalog.name, *table.name()))


def look_for_orphans(
    table: Table, settings: Settings, store: StoreReader, limits: Limits, now: datetime
) -> Orphans:
    with catalog_call(table.catalog.name, f"looking for orphans of table {'.'.join(table.name())}"):
        return find_orphans(
            table,
            reachable(table),
            older_than=orphan_limit(settings, limits, now),
            owner=owner_in(store, full_name(table)),
        )


def clean(
    catalog: Catalog,
    identifier: tuple[str, ...],
    settings: Settings,
    store: StoreReader,
    limits: Limits,
    now: datetime,
) -> Cleaned:
    """Twice is harmless."""
    table = tables.load(catalog, identifier)
    found = look_for_orphans(table, settings, store, limits, now)
    with catalog_call(catalog.name, f"removing orphans of table {'.'.join(identifier)}"):
        removed = 0
        if found.removable:
            # The listing took time: a file may be in use again (a rollback, an add_files).
            stays = reachable(tables.load(catalog, identifier))
            removed = delete_files(table, [item.path for item in found.removable if item.path not in stays])
        receipts = delete_files(table, old_receipts(table, store, limits, now))
    return Cleaned(
        orphans=removed,
        orphan_bytes=found.bytes,
        of_unknown=found.of_unknown,
        young=found.young,
        receipts=receipts,
    )


def old_receipts(table: Table, store: StoreReader, limits: Limits, now: datetime) -> list[str]:
    """Receipts as old as the tags are kept, of processes that this store knows to have ended."""
    older_than = now - timedelta(days=limits.tag_days)
    owner = owner_in(store, full_name(table))
    # What a released key was exported by is needed for as long as its rows are nowhere else.
    whose = {one.process_id: Owner.LIVE for one in released_exports(table.metadata)}
    found = []
    folder = Uri.parse(tables.receipts_location(table.catalog, table))
    for item in list_files(table, str(folder)):
        process = Uri.parse(item.path).relative_to(folder).partition("/")[0]
        if item.modified_at >= older_than:
            continue
        if process not in whose:
            whose[process] = owner(process)
        if whose[process] is Owner.ENDED:
            found.append(item.path)
    return found


def delete_files(table: Table, paths: Iterable[str]) -> int:
    """Delete through the table's own file access; returns how many there were. A file that is already
    gone is not an error."""
    deleted = 0
    for path in paths:
        try:
            # If we die here, the rest is found again: nothing refers to it.
            table.io.delete(path)
        except FileNotFoundError:
            continue
        deleted += 1
    return deleted
