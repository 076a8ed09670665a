"""Work of a process that is no task of its own, done by Spark's driver: orders, and what came of them."""

import json
from collections.abc import Callable
from typing import Any

from pyiceberg.table import Table

from calve.control.ports import TaskOrder
from calve.iceberg.health.retention import Expiry
from calve.iceberg.publish.commit import Answer, Reply
from calve.model.errors import CalveError
from calve.model.process import Process
from calve.optimize.orders import expire_payload, properties_payload
from calve.optimize.plan import OptimizePlan
from calve.optimize.ports import OptimizePorts
from calve.optimize.raising import raised

NUMBER = -1  # no task's: its result is nobody's receipt
_PYICEBERG_WRITES = 2  # formats up to this one


def needs_spark(table: Table) -> bool:
    """Whether PyIceberg can read the table's metadata and not write it."""
    return table.metadata.format_version > _PYICEBERG_WRITES


def on_driver(ports: OptimizePorts, process: Process, function: str, payload: str) -> dict[str, Any]:
    """Run it and wait. Raises what it met."""
    result = ports.run_on_driver(
        TaskOrder(
            process_id=process.id,
            number=NUMBER,
            attempt=process.publish_attempts,
            function=function,
            payload=payload,
            on_driver=True,
        )
    )
    if result.error is not None:
        raise raised(result.error)
    answer: dict[str, Any] = json.loads(result.receipt)
    return answer


def expiring(ports: OptimizePorts, process: Process, plan: OptimizePlan) -> Callable[[Table, Expiry], Reply]:
    """What commits an expiry in PyIceberg's place."""

    def commit(table: Table, past: Expiry) -> Reply:
        refs = {name: table.metadata.refs[name].snapshot_id for name in past.refs}
        payload = expire_payload(plan, ports.catalog_properties(plan.catalog), past.snapshot_ids, refs)
        try:
            on_driver(ports, process, "calve.spark.maintenance:expire", payload)
        except CalveError as error:
            return Reply(answer=Answer.UNKNOWN, error=error)
        return Reply(answer=Answer.LANDED)

    return commit


def set_properties(
    ports: OptimizePorts, process: Process, plan: OptimizePlan, changed: dict[str, str]
) -> None:
    payload = properties_payload(plan, ports.catalog_properties(plan.catalog), changed)
    on_driver(ports, process, "calve.spark.maintenance:set_properties", payload)
