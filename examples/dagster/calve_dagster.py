"""An asset of Dagster: its partitions are those of the ClickHouse table, its check is `calve verify`.

pip install dagster requests && pip install --no-deps calve
CALVE_SERVER=… CALVE_TOKEN_FILE=… dagster dev -f calve_dagster.py
"""

import os

import dagster as dg

from calve import Client

TABLE, DESTINATION = "db.events", "lake.ns.events"
partitions = dg.DynamicPartitionsDefinition(name="events")


def client() -> Client:
    return Client(os.environ["CALVE_SERVER"])


@dg.asset(
    partitions_def=partitions, check_specs=[dg.AssetCheckSpec(name="verify", asset="events", blocking=True)]
)
def events(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    """A partition as an Iceberg snapshot. Asking again is safe: what is exported is skipped, what is under way is joined."""
    with client() as calve:
        asked = calve.export(TABLE, DESTINATION, partitions=[context.partition_key])
        if asked.refused:
            raise dg.Failure("; ".join(one.message for one in asked.refused), allow_retries=False)
        ids = [process.id for process in asked.processes] or [known["id"] for known in asked.known]
        ended = calve.wait(*ids)
        for process in ended:
            if process.error:
                raise dg.Failure(f"{process.id}: {process.error.message}")
        proofs = calve.verify(*ids)
    return dg.MaterializeResult(
        metadata={
            "rows": sum(process.rows for process in ended),
            "snapshot": str(ended[-1].snapshot_id),
            "processes": ", ".join(ids),
        },
        check_results=[
            dg.AssetCheckResult(
                check_name="verify",
                passed=all(proof["ok"] for proof in proofs),
                metadata={"faults": str([proof["faults"] for proof in proofs])},
            )
        ],
    )


@dg.sensor(target=events, minimum_interval_seconds=600)
def new_partitions(context: dg.SensorEvaluationContext) -> dg.SensorResult:
    """A run for each partition that the table has and the lake has not."""
    with client() as calve:
        found = calve.partitions(TABLE, DESTINATION)
    ids = [one["id"] for one in found if one["exported"] == "no"]
    known = set(context.instance.get_dynamic_partitions("events"))
    return dg.SensorResult(
        run_requests=[dg.RunRequest(partition_key=one, run_key=one) for one in ids],
        dynamic_partitions_requests=[partitions.build_add_request([one for one in ids if one not in known])],
    )


defs = dg.Definitions(assets=[events], sensors=[new_partitions])
