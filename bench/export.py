"""Exports of mixed rows by a warm worker, commit and checksums included, against ClickHouse's own insert of the
same rows into one Parquet file on the same cores (`INSERT INTO FUNCTION file(…, Parquet) SELECT *`, zstd 3).

Both take turns, so that a busy machine is busy for both.
"""

from kit.report import Report
from kit.world import fill_to_settle, folder, plain, warm
from support.place import Place

TO_REACH = {2_000_000: 0.8, 10_000_000: 1.0, 20_000_000: 1.0}


def main() -> None:
    report = Report("export", __doc__)
    for rows, least in {1_000_000: 0.8}.items() if report.quick else TO_REACH.items():
        with folder() as home:
            fill_to_settle(Place(home), rows)
            data = home / "clickhouse"
            with warm(home) as worker:
                worker.settle()
                for _ in range(2 if report.quick else 3):
                    report.note(f"plain insert, {rows:,}", plain(data, home))
                    with report.timed(f"export, {rows:,}") as run:
                        [process] = worker.export()
                        run.detail |= {
                            "tasks": process.tasks.total,
                            "files": process.files,
                            "mb": process.bytes // 10**6,
                        }
                        assert process.rows == rows
            ours, theirs = f"export, {rows:,}", f"plain insert, {rows:,}"
            report.ratio(f"rows/s, {rows:,}", report.best(theirs) / report.best(ours), least, at_least=True)
            report.ratio(
                f"core-seconds, {rows:,}", report.cores(ours) / report.cores(theirs), 0.85, at_least=False
            )
    report.finish()


if __name__ == "__main__":
    main()
