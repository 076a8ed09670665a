"""An export by a warm worker, against ClickHouse's own `INSERT INTO FUNCTION icebergLocal(…)` of the same rows, which
neither checks nor publishes once, on the same cores. Both take turns."""

from pathlib import Path

from kit.report import Report, Run
from kit.world import alone, fill, folder, warm
from support.place import Place

COLUMNS = (
    "id Decimal(20, 0), day Date32, at DateTime64(6), score Float64, note Nullable(String), tag String, user UUID,"
    " price Decimal(12, 2)"
)


def native(data: Path, out: Path) -> Run:
    """Into a table without partitions, with the types that Iceberg has."""
    allowed = "allow_experimental_insert_into_iceberg = 1"
    table = f"{out}/"
    before = (
        "DROP TABLE IF EXISTS native",
        f"CREATE TABLE native ({COLUMNS}) ENGINE = IcebergLocal('{table}', 'Parquet') SETTINGS {allowed}",
    )
    columns = (
        "toDecimal128(id, 0), toDate32(day), toDateTime64(at, 6), score, note, toString(tag), user, price"
    )
    statement = (
        f"INSERT INTO FUNCTION icebergLocal('{table}') SELECT {columns} FROM db.events SETTINGS {allowed}"
    )
    [(_, run)] = alone(data, [("native", before, statement)])
    return run


def main() -> None:
    report = Report("export-native", __doc__)
    rows = 1_000_000 if report.quick else 10_000_000
    with folder() as home:
        fill(Place(home), rows)
        with warm(home) as worker:
            worker.export()
            for turn in range(2 if report.quick else 3):
                (out := home / f"native-{turn}").mkdir()
                report.note("icebergLocal", native(home / "clickhouse", out))
                with report.timed("export") as run:
                    [process] = worker.export()
                    run.detail["tasks"] = process.tasks.total
        ratio = report.best("icebergLocal") / report.best("export")
        report.ratio(f"rows/s, {rows:,}", ratio, 1.0, at_least=True)
        report.ratio(
            f"core-seconds, {rows:,}",
            report.cores("export") / report.cores("icebergLocal"),
            1.0,
            at_least=False,
        )
    report.finish()


if __name__ == "__main__":
    main()
