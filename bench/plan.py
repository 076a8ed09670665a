"""Planning a table of 100,000 parts: cutting it into tasks, writing the plan and reading it back, against a table
of 10,000 parts. Linear in the parts. And `calve partitions` of both, as a command: the parts are rows that stand in
for a server's `system.parts`, in partitions of ten parts."""

import os
import subprocess
import sys
from pathlib import Path

from calve.destination.plan import DestinationPlan, ExportPlan, PartPlan, Relation
from calve.export.slices import partition_slices
from kit.report import Report
from kit.world import folder
from support.clickhouse_front import NO_USERS, FrontOptions, clickhouse_front
from support.server_place import ServerPlace

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


def list_partitions(report: Report, parts: int) -> None:
    options = FrontOptions(stand_ins=NO_USERS | {"system.parts ": "standing.parts "})
    with folder() as home, clickhouse_front(home / "server", options) as front:
        place = ServerPlace(home, front.url, configured_id="bench")
        place.execute(
            "CREATE DATABASE db",
            "CREATE TABLE db.events (id UInt64) ENGINE = MergeTree PARTITION BY id ORDER BY id",
            "INSERT INTO db.events VALUES (1)",
            "CREATE DATABASE standing",
            "CREATE TABLE standing.parts ENGINE = Memory AS SELECT * REPLACE ("
            " toString(intDiv(number, 10)) AS partition, toString(intDiv(number, 10)) AS partition_id,"
            " toString(number) AS name, toInt64(number) AS min_block_number, toInt64(number) AS max_block_number)"
            f" EXCEPT number FROM `system`.`parts`, numbers({parts}) AS n WHERE database = 'db' AND table = 'events'",
        )
        for _ in range(3):
            with report.timed(f"calve partitions, {parts:,} parts") as run:
                done = subprocess.run(
                    [Path(sys.executable).with_name("calve"), "partitions", "db.events"],
                    cwd=home,
                    env={**os.environ, **place.environment},
                    check=True,
                    capture_output=True,
                    text=True,
                )
                run.detail["lines"] = len(done.stdout.splitlines())


def main() -> None:
    report = Report("plan", __doc__)
    for parts in (SMALL, LARGE):
        for _ in range(3):
            with report.timed(f"{parts:,} parts") as run:
                run.detail["tasks"] = planned(parts)
    small, large = report.best(f"{SMALL:,} parts"), report.best(f"{LARGE:,} parts")
    report.ratio("ten times the parts", large / small, 13, at_least=False)
    report.ratio("seconds, 100,000 parts", large, 10, at_least=False)
    for parts in (SMALL, LARGE):
        list_partitions(report, parts)
    small, large = (report.best(f"calve partitions, {parts:,} parts") for parts in (SMALL, LARGE))
    report.ratio("calve partitions, ten times the parts", large / small, 13, at_least=False)
    report.ratio("calve partitions, seconds, 100,000 parts", large, 10, at_least=False)
    report.finish()


if __name__ == "__main__":
    main()
