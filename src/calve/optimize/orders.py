"""What is shipped to the driver: JSON, made when it is sent and never stored, for it holds secrets."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyiceberg.table import Table

from calve.optimize.plan import OptimizePlan, TaskSpec


def rewrite_payload(plan: OptimizePlan, spec: TaskSpec, number: int, properties: Mapping[str, Any]) -> str:
    return json.dumps(
        {
            "where": _where(plan, properties),
            "task": number,
            "filter": spec.filter,
            "options": dict(spec.options),
            "position_deletes": spec.position_deletes,
            "sort": dict(plan.sort),
        }
    )


def look_payload(table: Table, catalog: str, properties: Mapping[str, Any]) -> str:
    """A question about a table, outside of any process."""
    return json.dumps(
        {
            "where": {
                "catalog": catalog,
                "properties": dict(properties),
                "identifier": list(table.name()),
                "uuid": str(table.metadata.table_uuid),
                "location": table.metadata.location.rstrip("/"),
                "process_id": "",
            }
        }
    )


def tidy_payload(
    plan: OptimizePlan,
    properties: Mapping[str, Any],
    *,
    dangling: bool,
    dropped_deletes: Sequence[str],
    manifest_specs: Sequence[int],
) -> str:
    return json.dumps(
        {
            "where": _where(plan, properties),
            "dangling": dangling,
            "dropped_deletes": list(dropped_deletes),
            "manifest_specs": list(manifest_specs),
        }
    )


def expire_payload(
    plan: OptimizePlan, properties: Mapping[str, Any], snapshot_ids: Sequence[int], refs: Mapping[str, int]
) -> str:
    """Ids as text: they are larger than what JSON readers agree on."""
    return json.dumps(
        {
            "where": _where(plan, properties),
            "snapshot_ids": [str(snapshot_id) for snapshot_id in snapshot_ids],
            "refs": {name: str(snapshot_id) for name, snapshot_id in refs.items()},
        }
    )


def properties_payload(plan: OptimizePlan, properties: Mapping[str, Any], changed: Mapping[str, str]) -> str:
    return json.dumps({"where": _where(plan, properties), "properties": dict(changed)})


def _where(plan: OptimizePlan, properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "catalog": plan.catalog,
        "properties": dict(properties),
        "identifier": list(plan.identifier),
        "uuid": plan.uuid,
        "location": plan.location,
        "process_id": plan.process_id,
    }
