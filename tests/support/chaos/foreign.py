"""Somebody else's job on the same lake tables: it appends, deletes, compacts and expires with PyIceberg, past the proxies.

Its rows are in partitions of its own, so that which rows must be there afterwards is known for each writer by itself.
What it did is marked in the snapshot, because a commit may land though its answer was lost.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
from pyiceberg.table import Table

from support.chaos.chronicle import FOREIGN_MARK, Chronicle
from support.chaos.diary import Diary
from support.chaos.ledger import IDS_OF_A_BATCH, Row, row
from support.chaos.schedule import Act

PARTITIONS = (900, 901)
KEPT_SNAPSHOTS = 5
_ROWS = 50
FIRST_ID = 1_000_000 * IDS_OF_A_BATCH


@dataclass(kw_only=True)
class Effect:
    """What an act does if it lands."""

    added: tuple[Row, ...] = ()
    removed: frozenset[int] = frozenset()


@dataclass(kw_only=True)
class Foreign:
    chronicle: Chronicle
    tables: tuple[str, ...]
    diary: Diary
    effects: dict[str, Effect] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    _number: int = 0

    def run(self, acts: tuple[Act, ...], over: threading.Event) -> None:
        for act in acts:
            if over.wait(max(0.0, act.at - self.diary.now())):
                return
            self.do(act)

    def do(self, act: Act) -> None:
        chance = act.random
        name, partition = chance.choice(self.tables), chance.choice(PARTITIONS)
        with self.diary.during("foreign writer", act.verb, f"{name} {partition}") as span:
            try:
                # First, so that nothing expires unseen.
                self.chronicle.look(self.tables)
                table = self.chronicle.table(name)
                if table is not None:
                    getattr(self, f"_{act.verb}")(table, partition, f"{act.verb}-{act.chance}")
                    self.diary.count(f"foreign: {act.verb}")
            except Exception as error:  # noqa: BLE001 - its storage is killed too: it tries again another time
                span.text += f": {type(error).__name__}"
                self.diary.count("foreign: refused or cut off")

    def _append(self, table: Table, partition: int, mark: str) -> None:
        first = FIRST_ID + self._number * IDS_OF_A_BATCH
        self._number += 1
        added = tuple(row(first + number, partition) for number in range(_ROWS))
        self._commit(
            mark, Effect(added=added), lambda: table.append(_arrow(table, added), {FOREIGN_MARK: mark})
        )

    def _delete(self, table: Table, partition: int, mark: str) -> None:
        """Every third row of a partition, copy on write."""
        found = table.scan(row_filter=_of(partition), selected_fields=("id",)).to_arrow()
        ids = [int(one) for one in found.column("id").to_pylist()][::3]
        if ids:
            where = f"{_of(partition)} and id in ({', '.join(map(str, ids))})"
            self._commit(
                mark,
                Effect(removed=frozenset(ids)),
                lambda: table.delete(where, snapshot_properties={FOREIGN_MARK: mark}),
            )

    def _compact(self, table: Table, partition: int, mark: str) -> None:
        data = table.scan(row_filter=_of(partition)).to_arrow()
        if data.num_rows:
            self._commit(
                mark,
                Effect(),
                lambda: table.overwrite(
                    data, overwrite_filter=_of(partition), snapshot_properties={FOREIGN_MARK: mark}
                ),
            )

    def _expire(self, table: Table, partition: int, mark: str) -> None:
        """Old snapshots that no reference names."""
        named = {ref.snapshot_id for ref in table.metadata.refs.values()}
        old = [one.snapshot_id for one in table.metadata.snapshots[:-KEPT_SNAPSHOTS]]
        gone = [one for one in old if one not in named]
        if gone:
            table.maintenance.expire_snapshots().by_ids(gone).commit()
            self.diary.count("foreign: snapshots expired", len(gone))

    def _commit(self, mark: str, effect: Effect, send: Callable[[], None]) -> None:
        self.effects[mark] = effect
        send()


def _of(partition: int) -> str:
    return f"p == {partition}"


def _arrow(table: Table, rows: tuple[Row, ...]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "id": Decimal(one.id),
                "p": one.p,
                "version": one.version,
                "payload": one.payload,
                "amount": Decimal(one.cents) / 100,
                "at": datetime.fromtimestamp(one.at, UTC),
            }
            for one in rows
        ],
        schema=table.schema().as_arrow(),
    )
