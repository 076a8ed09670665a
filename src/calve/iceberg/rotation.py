"""Files with released rows are read whole, a bounded share at a time, those first that were not read for longest.

What an export wrote is compared with its receipt, which lies beside the files and holds what the tasks read at the
source. What a rewrite wrote was compared when it was proven: here with what was found when it was first read.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table

from calve.destination import checksums
from calve.destination.names import DataFileName, receipt_uri
from calve.destination.proof import read_back
from calve.destination.receipt import Receipt
from calve.iceberg.errors import catalog_call
from calve.iceberg.guard import Held
from calve.iceberg.verify import planned
from calve.model.errors import NotFoundError
from calve.model.record import Record
from calve.objects.errors import translated
from calve.objects.storage import ObjectStore
from calve.objects.uri import full_uri


@dataclass(frozen=True, kw_only=True)
class Checked(Record):
    """When a file was last read whole, and what it had then."""

    at: float  # seconds since 1970, by the store's clock
    rows: int = 0
    sums: Mapping[str, str] = field(default_factory=dict)  # by field id


@dataclass(frozen=True, kw_only=True)
class Checks:
    """What one share found."""

    checked: Mapping[str, Checked]  # by path
    faults: tuple[str, ...] = ()
    missing: int = 0  # rows of files that are damaged or gone
    bytes: int = 0


def check_some(
    table: Table,
    storage: ObjectStore,
    receipts_location: str,
    files: Sequence[Held],
    known: Mapping[str, Checked],
    *,
    now: float,
    most_bytes: int,
) -> Checks:
    """Read at least one group of files, and at most about `most_bytes`. An outage is raised; a file that is gone or has other
    rows is an answer."""
    name = ".".join(table.name())
    with catalog_call(table.catalog.name, f"reading metadata of table {name}"):
        shown = planned(table, name, _head(table))
    tasks = {path: (task, deletes) for (path, deletes), task in shown.items()}
    checked: dict[str, Checked] = {}
    faults: list[str] = []
    missing = size = 0
    groups = sorted(
        _groups(files),
        key=lambda group: min(known[one.path].at if one.path in known else 0.0 for one in group),
    )
    for group in groups:
        weight = sum(one.bytes for one in group)
        if checked and size + weight > most_bytes:
            break
        size += weight
        work = [tasks[one.path][0] for one in group if one.path in tasks]
        deleted = any(tasks[one.path][1] for one in group if one.path in tasks)
        try:
            found = _read(table, work)
            fault = _fault(table, storage, receipts_location, group, found, known, deleted=deleted)
        except NotFoundError as error:
            found, fault = Checked(at=now), error.message
        if fault:
            faults.append(fault)
            missing += sum(one.rows for one in group)
        for one in group:
            sums = found if len(group) == 1 and not fault else Checked(at=now)
            checked[one.path] = Checked(at=now, rows=sums.rows, sums=sums.sums)
    return Checks(checked=checked, faults=tuple(faults), missing=missing, bytes=size)


def _head(table: Table) -> int:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def _groups(files: Iterable[Held]) -> Iterator[list[Held]]:
    """Files of one attempt share a receipt; any other stands alone."""
    by_attempt: dict[tuple[str, int, int], list[Held]] = {}
    for one in files:
        name = DataFileName.parse(one.path)
        if name is None:
            yield [one]
        else:
            by_attempt.setdefault((name.process_id, name.task, name.attempt), []).append(one)
    yield from by_attempt.values()


def _read(table: Table, work: Sequence[FileScanTask]) -> Checked:
    place = table.location()
    with translated(place):
        rows, sums = read_back(table.metadata, table.io, table.schema(), work)
    ids = {one.name: str(one.field_id) for one in table.schema().fields}
    return Checked(at=0.0, rows=rows, sums={ids[name]: checksums.text(value) for name, value in sums.items()})


def _fault(
    table: Table,
    storage: ObjectStore,
    receipts_location: str,
    group: Sequence[Held],
    found: Checked,
    known: Mapping[str, Checked],
    *,
    deleted: bool,
) -> str:
    """ "" where nothing is wrong with them."""
    first = group[0].path
    receipt = None if deleted else _receipt(storage, receipts_location, group)
    if receipt is not None:
        expected = Checked(at=0.0, rows=receipt.rows, sums=_by_id(table.metadata.schemas, receipt.checksums))
    elif len(group) == 1 and first in known and known[first].sums:
        expected = known[first]
    else:
        rows = sum(one.rows for one in group)
        return "" if deleted or found.rows == rows else f"{first} has {found.rows} rows, not {rows}"
    if found.rows != expected.rows:
        return f"{first} has {found.rows} rows, not {expected.rows}"
    differing = [id for id, value in expected.sums.items() if found.sums.get(id, value) != value]
    if differing:
        return f"column {table.schema().find_column_name(int(differing[0]))} of {first} has other values than were exported"
    return ""


def _receipt(storage: ObjectStore, receipts_location: str, group: Sequence[Held]) -> Receipt | None:
    """Of exactly these files; None where it is gone, or some of its files were rewritten."""
    name = DataFileName.parse(group[0].path)
    if name is None:
        return None
    try:
        text = storage.read(receipt_uri(receipts_location, name.process_id, name.task, name.attempt))
        receipt = Receipt.from_json(text.decode())
    except NotFoundError:
        return None
    same = {full_uri(one.path) for one in receipt.files} == {full_uri(one.path) for one in group}
    return receipt if same else None


def _by_id(schemas: Sequence[Schema], by_name: Mapping[str, str]) -> dict[str, str]:
    """By the newest schema that has columns of all these names: a receipt knows them by name."""
    for schema in reversed(schemas):
        ids = {one.name: str(one.field_id) for one in schema.fields}
        if by_name.keys() <= ids.keys():
            return {ids[name]: value for name, value in by_name.items()}
    return {}
