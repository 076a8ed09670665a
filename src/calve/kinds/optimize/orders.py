"""What is shipped to the driver: JSON, made when it is sent and never stored, for it holds secrets."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from calve.kinds.optimize.plan import OptimizePlan, TaskSpec


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


def tidy_payload(
    plan: OptimizePlan, properties: Mapping[str, Any], dangling: bool, manifest_specs: Sequence[int]
) -> str:
    return json.dumps(
        {
            "where": _where(plan, properties),
            "dangling": dangling,
            "manifest_specs": list(manifest_specs),
        }
    )


def _where(plan: OptimizePlan, properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "catalog": plan.catalog,
        "properties": dict(properties),
        "identifier": list(plan.identifier),
        "uuid": plan.uuid,
        "location": plan.location,
        "process_id": plan.process_id,
    }
