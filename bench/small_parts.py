"""Many tiny parts in one partition, and many partitions of one part: milliseconds for each, by a warm worker."""

from kit.report import Report
from kit.world import folder, warm
from support.place import Place

APART = "SETTINGS max_bytes_to_merge_at_max_space_in_pool = 1, parts_to_throw_insert = 1000000"


def main() -> None:
    report = Report("small-parts", __doc__)
    parts, partitions = (200, 50) if report.quick else (2_000, 500)
    with folder() as home:
        place = Place(home)
        place.execute(
            "CREATE DATABASE db",
            f"CREATE TABLE db.parts (id UInt64, note String) ENGINE = MergeTree ORDER BY id {APART}",
            f"CREATE TABLE db.partitions (id UInt64, note String) ENGINE = MergeTree PARTITION BY id ORDER BY id {APART}",
            *(f"INSERT INTO db.parts VALUES ({number}, 'x')" for number in range(parts)),
            f"INSERT INTO db.partitions SELECT number, 'x' FROM numbers({partitions})"
            " SETTINGS max_partitions_per_insert_block = 0",
        )
        # Ten partitions share a process and a commit, as 500 do with the default of 50 commits.
        with warm(home, CALVE_LIMITS__COMMITS_PER_EXPORT=str(partitions // 10)) as worker:
            worker.export("db.parts", "lake.ns.first")
            with report.timed(f"{parts} parts") as run:
                [process] = worker.export("db.parts", "lake.ns.parts")
                run.detail["tasks"] = process.tasks.total
            with report.timed(f"{partitions} partitions") as run:
                run.detail["processes"] = len(worker.export("db.partitions", "lake.ns.partitions"))
        report.ratio("ms a part", 1000 * report.best(f"{parts} parts") / parts, 10, at_least=False)
        report.ratio(
            "ms a partition", 1000 * report.best(f"{partitions} partitions") / partitions, 150, at_least=False
        )
    report.finish()


if __name__ == "__main__":
    main()
