"""What an optimize asks of Spark's driver: payloads, and work that is not a task of its own.

A payload is JSON, made when it is sent and never stored: it holds the catalog's secrets.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyiceberg.table import Table

from calve.control.ports import TaskOrder
from calve.iceberg.health.due import Expiry
from calve.iceberg.publish.commit import CommitAnswer, Reply
from calve.model.errors import (
    CalveError,
    ErrorInfo,
    Outcome,
    PermanentError,
    TemporaryError,
    UnavailableError,
    UnknownOutcomeError,
)
from calve.model.process import Process
from calve.optimize.plan import OptimizePlan, TaskSpec
from calve.optimize.ports import OptimizePorts

REWRITE = "calve.spark.actions:rewrite"
_TIDY = "calve.spark.maintenance:tidy"
_EXPIRE = "calve.spark.maintenance:expire"
_SET_PROPERTIES = "calve.spark.maintenance:set_properties"
_NO_TASK = -1
_PYICEBERG_WRITES = 2  # formats up to this one


def needs_spark(table: Table) -> bool:
    """Whether PyIceberg can read the table's metadata but not write it."""
    return table.metadata.format_version > _PYICEBERG_WRITES


def rewrite_payload(plan: OptimizePlan, spec: TaskSpec, number: int, properties: Mapping[str, Any]) -> str:
    """One task."""
    return _payload(
        plan,
        properties,
        task=number,
        filter=spec.filter,
        options=dict(spec.options),
        position_deletes=spec.position_deletes,
        sort=dict(plan.sort),
    )


def look_payload(table: Table, catalog: str, properties: Mapping[str, Any]) -> str:
    """A question about a table that belongs to no process."""
    where = {
        "catalog": catalog,
        "properties": dict(properties),
        "identifier": list(table.name()),
        "uuid": str(table.metadata.table_uuid),
        "location": table.metadata.location.rstrip("/"),
        "process_id": "",
    }
    return json.dumps({"where": where})


def tidy(
    ports: OptimizePorts,
    process: Process,
    plan: OptimizePlan,
    *,
    dangling: bool,
    dropped_deletes: Sequence[str],
    manifest_specs: Sequence[int],
) -> dict[str, Any]:
    """Drop delete files that delete nothing, rewrite manifests. Returns the receipt."""
    payload = _payload(
        plan,
        ports.catalog_properties(plan.catalog),
        dangling=dangling,
        dropped_deletes=list(dropped_deletes),
        manifest_specs=list(manifest_specs),
    )
    return _run(ports, process, _TIDY, payload)


def expiry_commit(
    ports: OptimizePorts, process: Process, plan: OptimizePlan
) -> Callable[[Table, Expiry], Reply]:
    """A function that commits an expiry in PyIceberg's place."""

    def commit(table: Table, past: Expiry) -> Reply:
        payload = _payload(
            plan,
            ports.catalog_properties(plan.catalog),
            # Ids as text: they are larger than the integers that JSON readers agree on.
            snapshot_ids=[str(snapshot_id) for snapshot_id in past.snapshot_ids],
            refs={name: str(table.metadata.refs[name].snapshot_id) for name in past.refs},
        )
        try:
            _run(ports, process, _EXPIRE, payload)
        except CalveError as error:
            return Reply(answer=CommitAnswer.UNKNOWN, error=error)
        return Reply(answer=CommitAnswer.LANDED)

    return commit


def set_properties(
    ports: OptimizePorts, process: Process, plan: OptimizePlan, changed: Mapping[str, str]
) -> None:
    payload = _payload(plan, ports.catalog_properties(plan.catalog), properties=dict(changed))
    _run(ports, process, _SET_PROPERTIES, payload)


def _payload(plan: OptimizePlan, properties: Mapping[str, Any], /, **what: Any) -> str:
    where = {
        "catalog": plan.catalog,
        "properties": dict(properties),
        "identifier": list(plan.identifier),
        "uuid": plan.uuid,
        "location": plan.location,
        "process_id": plan.process_id,
    }
    return json.dumps({"where": where, **what})


def _run(ports: OptimizePorts, process: Process, function: str, payload: str) -> dict[str, Any]:
    """Run it and wait. Returns its receipt; raises its error."""
    result = ports.run_on_driver(
        TaskOrder(
            process_id=process.id,
            number=_NO_TASK,
            attempt=process.publish_attempts,
            function=function,
            payload=payload,
            on_driver=True,
        )
    )
    if result.error is not None:
        raise error_of(result.error)
    answer: dict[str, Any] = json.loads(result.receipt)
    return answer


def error_of(info: ErrorInfo) -> CalveError:
    """An error that came back as data, as the nearest class: all that the control plane asks of it is kept."""
    kind: type[CalveError] = PermanentError
    if info.retryable:
        kind = TemporaryError
        if info.service:
            kind = UnavailableError
        if info.outcome is Outcome.UNKNOWN:
            kind = UnknownOutcomeError
    return kind(info.message, code=info.code, hint=info.hint, service=info.service)
