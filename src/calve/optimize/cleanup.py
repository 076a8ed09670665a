"""Remove orphan files, and Calve's own receipts that are no longer needed.

`iceberg.health.orphans` decides what may go (D15); here each file is checked once more, against the table
as it is now, right before it is deleted.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calve.control.ports import StoreReader
from calve.iceberg import tables
from calve.iceberg.errors import catalog_call
from calve.iceberg.health.orphans import Orphans, Owner, find_orphans
from calve.iceberg.health.report import orphan_limit
from calve.iceberg.health.settings import Settings
from calve.iceberg.health.table_files import list_files, reachable
from calve.model.limits import Limits
from calve.objects.uri import Uri
from calve.optimize.ownership import owner_in


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
    whose: dict[str, Owner] = {}
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
