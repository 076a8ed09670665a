"""Planning a table of 100,000 parts: cutting it into tasks, writing the plan and reading it back, against a table
of 10,000 parts. Linear in the parts."""

from calve.destination.plan import DestinationPlan, ExportPlan, PartPlan, Relation
from calve.export.slices import partition_slices
from kit.report import Report

SMALL, LARGE = 10_000, 100_000


def planned(parts: int) -> int:
    listed = tuple(
        PartPlan(
            name=f"202401_{number}_{number}_0",
            partition_id=str(number % 50),
            rows=10_000 + number % 7,
            bytes=300_000,
            content=f"{number:032x}",
            path=f"/var/lib/clickhouse/store/{number}",
        )
        for number in range(parts)
    )
    plan = ExportPlan(
        process_id="p",
        source="main",
        source_identity="s",
        table="db.events",
        relation=Relation(mode="frozen"),
        parts=listed,
        tasks=partition_slices(listed, task_bytes_mb=256, cores=16, columns=8),
        columns=(),
        keys=(),
        destination=DestinationPlan(
            catalog="lake", identifier=("ns", "events"), uuid="u", location="", data_location="",
            receipts_location="", schema_id=0, schema="", spec_id=0,
        ),
    )  # fmt: skip
    return len(ExportPlan.from_json(plan.to_json()).tasks)


def main() -> None:
    report = Report("plan", __doc__)
    for parts in (SMALL, LARGE):
        for _ in range(3):
            with report.timed(f"{parts:,} parts") as run:
                run.detail["tasks"] = planned(parts)
    small, large = report.best(f"{SMALL:,} parts"), report.best(f"{LARGE:,} parts")
    report.ratio("ten times the parts", large / small, 13, at_least=False)
    report.ratio("seconds, 100,000 parts", large, 10, at_least=False)
    report.finish()


if __name__ == "__main__":
    main()
