"""How long commands that only look take: `calve --help`, and `ps` and `why` of a process that waits for a worker. With
bytecode of Calve's own modules too, as where it is installed.
"""

import os
import subprocess
import sys
from pathlib import Path

from kit.report import Report
from kit.world import fill, folder
from support.place import Place


def main() -> None:
    report = Report("start", __doc__)
    calve = Path(sys.executable).with_name("calve")
    with folder() as home:
        place = Place(home)
        # Where PYTHONDONTWRITEBYTECODE is set, every run compiled the checkout anew: a fifth of its time.
        environ = {**os.environ, "PYTHONPYCACHEPREFIX": str(home / "bytecode")}
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        fill(place, 1_000, parts=1)
        with place.app() as app:
            [waiting] = place.submit(app, "db.events", "lake.ns.events")
        for name, words, most in (
            ("--help", ["--help"], 0.2),
            ("ps", ["ps"], 0.4),
            ("why", ["why", waiting], 0.4),
        ):
            for _ in range(5 if report.quick else 15):
                with report.timed(f"calve {name}"):
                    subprocess.run([calve, *words], check=True, capture_output=True, cwd=home, env=environ)
            report.ratio(f"seconds, calve {name}", report.best(f"calve {name}"), most, at_least=False)
    report.finish()


if __name__ == "__main__":
    main()
