"""A runner that rewrites tables without a JVM: PyIceberg in place of Iceberg's Spark actions.

For lives that are lived a hundred times over. It keeps what `runner.actions` promises: it looks for
its mark first, makes one commit that carries it, and answers from the snapshot's summary. The same
orders run with real Spark in `tests/optimize`. Knows tables partitioned by the identity of an
integer column.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.table import Table

from calve.control.ports import TaskOrder, TaskResult
from calve.model.errors import ErrorInfo
from calve.spark.actions import PROCESS_ID, TASK, answer_of


@dataclass
class PlainRewriter:
    """See `control.ports.Runner`. Single-threaded; `rewrites` are the commits it made, in order."""

    catalog: Catalog
    slots: int = 2
    rewrites: list[tuple[str, str]] = field(default_factory=list)  # process and task
    before_commit: Callable[[TaskOrder], None] = lambda _: None
    fails: list[ErrorInfo] = field(default_factory=list)  # of the next orders

    def run(self, group: str, orders: Sequence[TaskOrder], on_result: Callable[[TaskResult], None]) -> None:
        for order in orders:
            if self.fails:
                error = self.fails.pop(0)
                on_result(TaskResult(number=order.number, attempt=order.attempt, error=error))
                continue
            assert order.function == "calve.spark.actions:rewrite", order.function
            answer = self._rewrite(order, json.loads(order.payload))
            on_result(TaskResult(number=order.number, attempt=order.attempt, **answer))

    def _rewrite(self, order: TaskOrder, given: Mapping[str, Any]) -> dict[str, Any]:
        identifier = tuple(given["where"]["identifier"])
        step = str(given["task"])
        found = marked(self.catalog.load_table(identifier), order.process_id, step)
        if not found:
            self.before_commit(order)
            self._commit(self.catalog.load_table(identifier), given["filter"], order.process_id, step)
            self.rewrites.append((order.process_id, step))
            found = marked(self.catalog.load_table(identifier), order.process_id, step)
        return answer_of(step, found)

    def _commit(self, table: Table, wanted: Mapping[str, Any], process_id: str, step: str) -> None:
        """One snapshot: the files of these partitions out, one for each of them in."""
        marks = {PROCESS_ID: process_id, TASK: step}
        with (
            table.transaction() as transaction,
            transaction.update_snapshot(snapshot_properties=marks).overwrite() as snapshot,
        ):
            for column, value in _equalities(wanted):
                scan = table.scan(row_filter=f"{column} = {value}")
                for task in scan.plan_files():
                    snapshot.delete_data_file(task.file)
                for file in _dataframe_to_data_files(table.metadata, scan.to_arrow(), table.io):
                    snapshot.append_data_file(file)

    def warm(self) -> None:
        """Nothing to start ahead of time."""

    def cancel(self, group: str) -> None:
        """Everything has ended already."""

    def close(self) -> None:
        """Nothing to give back."""


def marked(table: Table, process_id: str, step: str) -> list[dict[str, str]]:
    """The summaries of the snapshots that a step of a process made: one, if all is well."""
    return [
        dict(snapshot.summary.additional_properties) | {"snapshot-id": str(snapshot.snapshot_id)}
        for snapshot in table.metadata.snapshots
        if snapshot.summary is not None
        and snapshot.summary.additional_properties.get(PROCESS_ID) == process_id
        and snapshot.summary.additional_properties.get(TASK) == step
    ]


def _equalities(wanted: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The partitions that a filter of a plan names."""
    if wanted["type"] == "or":
        yield from _equalities(wanted["left"])
        yield from _equalities(wanted["right"])
    else:
        assert wanted["type"] == "eq", wanted
        yield wanted["term"], wanted["value"]
