"""Iceberg's own actions, run through the driver's JVM: what an optimize task is.

Each commit an action makes carries `calve.process-id` and `calve.task` in its snapshot's summary,
and each step first looks for its mark: a step that landed unseen is found, not repeated. An action that
reports rewritten files and left no snapshot has failed (P18). Rows stay right while others write: Iceberg
refuses a rewrite whose input files were removed or got new deletes in the meantime, and rewritten files
keep the sequence number that later deletes apply to (P19).
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from calve.model.errors import CalveError, PermanentError, TemporaryError
from calve.spark.catalog_conf import certificates_for, jars_for, spark_catalog
from calve.spark.driver import Driver
from calve.spark.errors import translated

PROCESS_ID = "calve.process-id"
TASK = "calve.task"


@dataclass(frozen=True, kw_only=True)
class TablePlace:
    """A table and who works on it. `properties` may hold secrets: an order is never stored."""

    catalog: str
    properties: Mapping[str, Any] = field(repr=False)
    identifier: tuple[str, ...]
    uuid: str
    location: str
    process_id: str


class ActionTable:
    """One table in the driver's JVM."""

    def __init__(self, driver: Driver, where: TablePlace) -> None:
        self._where = where
        self.catalog, self.name = where.catalog, ".".join(where.identifier)
        self.process_id = where.process_id
        self.jvm = driver.jvm
        conf = spark_catalog(where.catalog, where.properties, where.location)
        with translated(where.catalog, f"opening table {'.'.join(where.identifier)} in Spark"):
            driver.trust(certificates_for(where.properties))
            self._session = driver.session(conf, jars_for(conf))
            self.table = self._load()

    def _load(self) -> Any:
        where = self._where
        name = ".".join(f"`{part.replace('`', '``')}`" for part in (where.catalog, *where.identifier))
        table = self.jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(self._session, name)
        found = table.uuid().toString()
        if found != where.uuid:
            raise PermanentError(
                f"table {'.'.join(where.identifier)} was dropped and created again: its uuid is {found},"
                f" the plan's is {where.uuid}",
                code="destination_replaced",
                hint=f"calve optimize {where.catalog}.{'.'.join(where.identifier)}",
            )
        return table

    def actions(self) -> Any:
        return self.jvm.org.apache.iceberg.spark.actions.SparkActions.get(self._session)

    def expression(self, text: Mapping[str, Any]) -> Any:
        parser = self.jvm.org.apache.iceberg.expressions.ExpressionParser
        with translated(self._where.catalog, "reading a filter"):
            return parser.fromJson(json.dumps(text), self.table.schema())

    def sort_order(self, columns: list[dict[str, str]]) -> Any:
        jvm = self.jvm.org.apache.iceberg
        builder = jvm.SortOrder.builderFor(self.table.schema())
        with translated(self._where.catalog, "reading a sort order"):
            for column in columns:
                nulls = jvm.NullOrder.valueOf(column["nulls"])
                make = builder.desc if column["direction"] == "desc" else builder.asc
                builder = make(column["name"], nulls)
            return builder.build()

    def strings(self, values: list[str]) -> Any:
        array = self.jvm.java.lang.reflect.Array.newInstance(
            self.jvm.java.lang.Class.forName("java.lang.String"), len(values)
        )
        for at, value in enumerate(values):
            array[at] = value
        return array

    def marked(self, step: str) -> dict[str, str] | None:
        """The summary of the snapshot that a step of this process made, with its id. All metadata in one
        call: asked for one by one, thousands of snapshots would take longer than the rewrite."""
        self.table.refresh()
        metadata = self.table.operations().current()
        read = json.loads(self.jvm.org.apache.iceberg.TableMetadataParser.toJson(metadata))
        for snapshot in read.get("snapshots", ()):
            summary: dict[str, str] = snapshot.get("summary", {})
            if summary.get(PROCESS_ID) == self._where.process_id and summary.get(TASK) == step:
                return summary | {"snapshot-id": str(snapshot["snapshot-id"])}
        return None

    def commit(self, step: str, action: Any, execute: Callable[[Any], int]) -> dict[str, str] | None:
        """Run one action under a step's mark. The summary of its snapshot; None if there was nothing
        to do. `execute` says how many files the action claims to have replaced."""
        where = self._where
        name = ".".join(where.identifier)
        with translated(where.catalog, f"step {step} on table {name}"):
            if (found := self.marked(step)) is not None:
                return found
        action = action.snapshotProperty(PROCESS_ID, where.process_id).snapshotProperty(TASK, step)
        try:
            # If we die here, the commit landed or did not: the mark tells the next attempt. Files that
            # no commit refers to are orphans, and go with them.
            with translated(where.catalog, f"rewriting table {name} (step {step})"):
                claimed = execute(action)
        except CalveError:
            if (found := self._look(step)) is not None:
                return found
            raise
        found = self._look(step)
        if claimed and found is None:
            raise TemporaryError(
                f"table {name}: Iceberg reports {claimed} replaced files, but no snapshot shows it",
                code="rewrite_not_committed",
                hint="it is retried; see Spark's log",
            )
        return found

    def _look(self, step: str) -> dict[str, str] | None:
        with translated(self._where.catalog, f"looking for step {step}"):
            return self.marked(step)


def rewrite(payload: str, driver: Driver) -> str:
    """One task: the data files that a filter selects, then their position deletes."""
    started = time.monotonic()
    order = json.loads(payload)
    table = ActionTable(driver, where_of(order))
    step = str(order["task"])
    filter_ = order["filter"]
    done = [table.commit(step, _rewrite_data(table, order), _execute_data)]
    if order.get("position_deletes"):
        action = table.actions().rewritePositionDeletes(table.table).filter(table.expression(filter_))
        action = action.option("rewrite-all", "true")  # drops positions whose data file is gone
        done.append(table.commit(f"{step}/deletes", action, _execute_deletes))
    return json.dumps(answered(step, done, time.monotonic() - started))


def look(payload: str, driver: Driver) -> str:
    """What Spark sees of a table; changes nothing. For `calve doctor`."""
    table = ActionTable(driver, where_of(json.loads(payload))).table
    head = table.currentSnapshot()
    seen = {"snapshot_id": None if head is None else str(head.snapshotId())}
    return json.dumps({"receipt": json.dumps(seen)})


def where_of(order: Mapping[str, Any]) -> TablePlace:
    given = order["where"]
    return TablePlace(**{**given, "identifier": tuple(given["identifier"])})


def _rewrite_data(table: ActionTable, order: Mapping[str, Any]) -> Any:
    action = table.actions().rewriteDataFiles(table.table).filter(table.expression(order["filter"]))
    for name, value in order["options"].items():
        action = action.option(name, value)
    strategy = order.get("sort") or {}
    if strategy.get("zorder"):
        return action.zOrder(table.strings(strategy["zorder"]))
    if strategy.get("columns"):
        return action.sort(table.sort_order(strategy["columns"]))
    return action.sort() if strategy.get("table") else action.binPack()


def _execute_data(action: Any) -> int:
    result = action.execute()
    if failed := int(result.failedDataFilesCount()):
        raise TemporaryError(
            f"{failed} data files were not rewritten", code="rewrite_incomplete", hint="it is retried"
        )
    return int(result.rewrittenDataFilesCount())


def _execute_deletes(action: Any) -> int:
    return int(action.execute().rewrittenDeleteFilesCount())


def answered(step: str, done: list[dict[str, str] | None], seconds: float) -> dict[str, Any]:
    return answer_of(step, [summary for summary in done if summary is not None], seconds)


def answer_of(step: str, summaries: list[dict[str, str]], seconds: float = 0.0) -> dict[str, Any]:
    """What a task reports, from the summaries of the snapshots it made: all that it did is in them,
    so a lost attempt is reported the same when its snapshots are found."""

    def total(name: str) -> int:
        return sum(int(summary.get(name, 0)) for summary in summaries)

    receipt = {
        "step": step,
        "snapshots": [summary["snapshot-id"] for summary in summaries],
        "rewritten_files": total("deleted-data-files"),
        "added_files": total("added-data-files"),
        "rewritten_rows": total("deleted-records"),
        "added_rows": total("added-records"),
        "rewritten_bytes": total("removed-files-size"),
        "added_bytes": total("added-files-size"),
        "removed_delete_files": total("removed-delete-files"),
        "added_delete_files": total("added-delete-files"),
        "replaced_manifests": total("manifests-replaced"),
        "created_manifests": total("manifests-created"),
        "seconds": round(seconds, 3),
    }
    return {
        "receipt": json.dumps(receipt, separators=(",", ":"), sort_keys=True),
        "rows": receipt["added_rows"],
        "files": receipt["added_files"],
        "bytes": receipt["added_bytes"],
        "spent": {"write": receipt["seconds"]} if seconds else {},
    }
