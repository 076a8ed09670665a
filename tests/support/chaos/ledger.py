"""Which rows there are, and when each was certainly written: the truth that exports and backups are compared with.

A row's values are a function of its id and of how often it was updated. Rows are inserted in batches, each with ids of
its own, and one thread writes a table. So rows that claim to be a partition at one moment can be judged without any
help by the product: batches whole, each row once, none missing that was acknowledged before, none from after.
"""

import hashlib
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

IDS_OF_A_BATCH = 100_000  # a batch has fewer rows
_FIRST_AT = 1_700_000_000


class Row(NamedTuple):
    """A row of a table, by value."""

    id: int
    p: int
    version: int
    payload: str
    cents: int
    at: int

    @property
    def batch(self) -> int:
        return self.id // IDS_OF_A_BATCH


def row(id: int, p: int, version: int = 0) -> Row:
    """What ClickHouse computes in `columns`."""
    payload = hashlib.md5(f"{id}-{version}".encode()).hexdigest()
    return Row(id=id, p=p, version=version, payload=payload, cents=id % 1000 * 25, at=_FIRST_AT + id % 86_400)


DDL = "id UInt64, p UInt16, version UInt32, payload String, amount Decimal(12, 2), at DateTime"


def columns(id: str, p: int, version: str) -> str:
    """The columns of a row in ClickHouse's SQL."""
    return (
        f"{id}, {p}, {version}, {payload(id, version)}, toDecimal64({id} % 1000, 2) / 4,"
        f" toDateTime({_FIRST_AT} + {id} % 86400)"
    )


def payload(id: str, version: str) -> str:
    return f"lower(hex(MD5(concat(toString({id}), '-', toString({version})))))"


@dataclass(kw_only=True)
class Batch:
    number: int
    partition: int
    rows: int
    began: float
    known: float | None = None  # when the server had acknowledged it; None: it may be there or not

    @property
    def ids(self) -> range:
        return range(self.number * IDS_OF_A_BATCH, self.number * IDS_OF_A_BATCH + self.rows)


@dataclass(kw_only=True)
class Update:
    """An ALTER … UPDATE of every row of a partition."""

    partition: int
    after: int  # the number of the last batch before it
    began: float
    known: float | None = None


@dataclass(kw_only=True)
class TableLedger:
    """One table. Numbers of batches rise with time."""

    batches: list[Batch] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def begin_batch(self, partition: int, rows: int, now: float) -> Batch:
        with self._lock:
            batch = Batch(number=len(self.batches) + 1, partition=partition, rows=rows, began=now)
            self.batches.append(batch)
            return batch

    def begin_update(self, partition: int, now: float) -> Update:
        with self._lock:
            update = Update(partition=partition, after=len(self.batches), began=now)
            self.updates.append(update)
            return update

    def partitions(self) -> list[int]:
        with self._lock:
            return sorted({one.partition for one in self.batches if one.known is not None})

    def of(self, partition: int) -> list[Batch]:
        return [one for one in self.batches if one.partition == partition]

    def faults(
        self,
        rows: Iterable[Row],
        partition: int,
        earliest: float,
        latest: float,
        *,
        whole: bool = True,
    ) -> Iterator[str]:
        """What is wrong with rows that claim to be this partition at one moment between the two. Not `whole`: only
        some of its batches, as those that came since an earlier export."""
        found: dict[int, list[Row]] = defaultdict(list)
        counted = Counter(rows)
        for one, count in counted.items():
            found[one.batch].append(one)
            if count > 1:
                yield f"row {one.id} is there {count} times"
        batches = {one.number: one for one in self.of(partition)}
        for number in sorted(found.keys() - batches.keys()):
            yield f"row {found[number][0].id} was never written to partition {partition}"
        for batch in batches.values():
            if batch.number in found:
                yield from self._batch_faults(batch, found[batch.number], earliest, latest)
            elif whole and batch.known is not None and batch.known <= earliest:
                yield f"batch {batch.number} is missing: {batch.rows} rows, acknowledged {earliest - batch.known:.1f} s before"
        if whole and found:
            last = max(found)
            for batch in batches.values():
                if batch.number < last and batch.known is not None and batch.number not in found:
                    yield f"batch {batch.number} is missing, and a later one is there"

    def _batch_faults(self, batch: Batch, rows: list[Row], earliest: float, latest: float) -> Iterator[str]:
        ids = {one.id for one in rows}
        if ids != set(batch.ids):
            yield f"batch {batch.number} has {len(ids & set(batch.ids))} of {batch.rows} rows"
        if len(rows) != len(ids):
            yield f"batch {batch.number} has {len(rows) - len(ids)} rows in two versions"
        if batch.began > latest:
            yield f"batch {batch.number} was written {batch.began - latest:.1f} s too late to be there"
        updates = [
            one for one in self.updates if one.partition == batch.partition and one.after >= batch.number
        ]
        least = sum(1 for one in updates if one.known is not None and one.known <= earliest)
        most = sum(1 for one in updates if one.began <= latest)
        versions = {one.version for one in rows}
        if len(versions) > 1 or not least <= min(versions) <= most:
            yield f"batch {batch.number} has versions {sorted(versions)}, not one between {least} and {most}"
        wrong = [one for one in rows if one != row(one.id, batch.partition, one.version)]
        if wrong:
            yield f"batch {batch.number} has {len(wrong)} rows of other values, such as {wrong[0]}"


@dataclass(kw_only=True)
class Ledger:
    """All tables, by name."""

    tables: dict[str, TableLedger] = field(default_factory=dict)

    def __getitem__(self, table: str) -> TableLedger:
        return self.tables[table]
