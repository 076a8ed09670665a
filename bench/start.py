"""How long commands that only look take to start: `calve --help`, `ps`, `why`."""

import subprocess
import sys
from pathlib import Path

from calve.app.config.template import render
from kit.report import Report
from kit.world import folder


def main() -> None:
    report = Report("start", __doc__)
    calve = Path(sys.executable).with_name("calve")
    with folder() as home:
        (home / "calve.toml").write_text(render())
        subprocess.run([calve, "ps"], check=False, capture_output=True, cwd=home)  # makes the store
        for words, most in (("--help", 0.2), ("ps", 0.4), ("why nobody", 0.4)):
            for _ in range(5 if report.quick else 15):
                with report.timed(f"calve {words}"):
                    subprocess.run([calve, *words.split()], check=False, capture_output=True, cwd=home)
            report.ratio(f"seconds, calve {words}", report.best(f"calve {words}"), most, at_least=False)
    report.finish()


if __name__ == "__main__":
    main()
