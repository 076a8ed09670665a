"""Tables that are unlike the mixed one: 1,000 columns, deep nesting, long strings. Against ClickHouse's own insert
of the same rows into one Parquet file, in turns."""

from kit.report import Report
from kit.world import folder, plain, warm
from support.place import Place


def tables(quick: bool) -> dict[str, tuple[str, str]]:
    rows = 20_000 if quick else 100_000  # of the long strings; the others are as large with more
    columns = [f"c{number} {('Int64', 'Float64', 'String')[number % 3]}" for number in range(1000)]
    values = [("number", "number / 7", "toString(number % 1000)")[number % 3] for number in range(1000)]
    return {
        "columns": (", ".join(columns), f"{', '.join(values)} FROM numbers({rows * 3})"),
        "nested": (
            "id UInt32, tree Array(Tuple(name String, leaves Array(Tuple(a Int32, b Map(String, Array(Int64))))))",
            "number, arrayMap(x -> (toString(x), arrayMap(y -> (toInt32(y), map('k', [number, y])), range(3))), range(4))"
            f" FROM numbers({rows * 30})",
        ),
        "strings": (
            "id UInt32, text String",
            f"number, randomPrintableASCII(4000) FROM numbers({rows})",
        ),
    }


def main() -> None:
    report = Report("wide", __doc__)
    for name, (columns, values) in tables(report.quick).items():
        with folder() as home:
            Place(home).execute(
                "CREATE DATABASE db",
                f"CREATE TABLE db.events ({columns}) ENGINE = MergeTree ORDER BY tuple()",
                f"INSERT INTO db.events SELECT {values}",
            )
            with warm(home) as worker:
                worker.export()
                for _ in range(2):
                    report.note(f"plain insert, {name}", plain(home / "clickhouse", home))
                    with report.timed(f"export, {name}") as run:
                        run.detail["tasks"] = worker.export()[0].tasks.total
        ours, theirs = f"export, {name}", f"plain insert, {name}"
        report.ratio(f"rows/s, {name}", report.best(theirs) / report.best(ours), 0.8, at_least=True)
    report.finish()


if __name__ == "__main__":
    main()
