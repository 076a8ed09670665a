"""One part of many rows, exported by a worker with one core and by one with two: how much faster two are."""

from kit.report import Report
from kit.world import fill, folder, warm
from support.place import Place


def main() -> None:
    report = Report("big-part", __doc__)
    rows = 3_000_000 if report.quick else 20_000_000
    with folder() as home:
        fill(Place(home), rows, parts=1)
        for cores in (1, 2):
            with warm(home, cores=cores) as worker:
                worker.export(to=f"lake.ns.on{cores}")
                for _ in range(2):
                    with report.timed(f"{cores} core{'s'[: cores - 1]}") as run:
                        [process] = worker.export(to=f"lake.ns.on{cores}")
                        run.detail |= {"tasks": process.tasks.total, "files": process.files}
                        assert process.rows == rows
        report.ratio("two cores over one", report.best("1 core") / report.best("2 cores"), 1.7, at_least=True)
    report.finish()


if __name__ == "__main__":
    main()
