"""A DAG: each month, last month's partition goes to the lake and is proven; then what reads it runs."""

from datetime import UTC, datetime, timedelta

from airflow.sdk import dag, task
from calve_airflow import CalveExport


@dag(
    schedule="0 4 2 * *",
    start_date=datetime(2024, 2, 2, tzinfo=UTC),
    catchup=False,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=10)},
)
def export_to_lake() -> None:
    @task
    def report(ids: list[str]) -> str:
        return f"exported by {', '.join(ids) or 'an earlier run'}"

    exported = CalveExport(
        task_id="export",
        table="db.events",
        to="lake.ns.events",
        partitions=["{{ macros.ds_format(macros.ds_add(ds, -5), '%Y-%m-%d', '%Y%m') }}"],
    )
    report(exported.output)


made = export_to_lake()
