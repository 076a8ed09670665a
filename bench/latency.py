"""A partition of 1,000 rows: from submission until it is visible, by a warm worker; and cold, as one command that
starts Spark, exports and ends."""

import subprocess
import sys
from pathlib import Path

from kit.report import Report
from kit.world import fill, folder, warm
from support.place import Place


def main() -> None:
    report = Report("latency", __doc__)
    with folder() as home:
        fill(Place(home), 1_000, parts=1)
        calve = Path(sys.executable).with_name("calve")
        for turn in range(2 if report.quick else 5):
            with report.timed("cold"):  # the first leaves Spark's classes for the others
                command = [calve, "export", "db.events", "--all", "--to", f"lake.ns.cold{turn}"]
                subprocess.run(command, check=True, capture_output=True, cwd=home)
        with warm(home) as worker:
            worker.export()
            for _ in range(5 if report.quick else 20):
                with report.timed("warm"):
                    worker.export()
        report.ratio("seconds, warm", report.best("warm"), 1.5, at_least=False)
        report.ratio("seconds, cold", report.best("cold"), 8.0, at_least=False)
    report.finish()


if __name__ == "__main__":
    main()
