"""Run every benchmark that writes a report, or those that are named, one after another: `run.py export --quick`.

Options are handed on to each. A few older ones (`outage`, `optimize`, `release`, `ps`) print their bounds and have
options of their own: they run when they are named. A verdict on each, one line against its targets, goes to
`results/verdicts.txt` as soon as it has ended, so that a run may go on unattended and be stopped at any time. One that
does not end is killed after an hour.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from kit.report import RESULTS, verdict

FOLDER = Path(__file__).resolve().parent
VERDICTS = RESULTS / "verdicts.txt"
MOST_SECONDS = 3600.0


def main(names: list[str]) -> int:
    options = [name for name in names if name.startswith("-")]
    names = [name for name in names if not name.startswith("-")]
    there = {path.stem.replace("_", "-"): path for path in sorted(FOLDER.glob("*.py")) if path.stem != "run"}
    unknown = [name for name in names if name not in there]
    if unknown:
        sys.stderr.write(f"error: no benchmark {', '.join(unknown)}\nhint: there are {', '.join(there)}\n")
        return 2
    failed = []
    RESULTS.mkdir(exist_ok=True)
    VERDICTS.write_text("")
    for name in names or [name for name, path in there.items() if "Report(" in path.read_text()]:
        print(f"== {name}", flush=True)
        began, report = time.time(), RESULTS / f"{name}.json"
        code = run([sys.executable, str(there[name]), *options])
        if code:
            failed.append(name)
        if report.exists() and report.stat().st_mtime >= began:
            said = verdict(json.loads(report.read_text()))
        else:
            said = f"{name}: {'FAILED' if code else 'ended'} with {code}, no report in {RESULTS}"
        seconds = time.time() - began
        with VERDICTS.open("a") as verdicts:
            verdicts.write(f"{said} [{seconds:.0f} s]\n")
        print(f"-- {name}: {seconds:.0f} s", flush=True)
    print(f"\n{VERDICTS.read_text()}(in {VERDICTS})", flush=True)
    if failed:
        sys.stderr.write(f"error: failed: {', '.join(failed)}\n")
    return 1 if failed else 0


def run(command: list[str]) -> int:
    """Its exit code. One that hangs, or that is interrupted with us, is killed with its group; a JVM ends with it."""
    program = subprocess.Popen(command, start_new_session=True)
    try:
        return program.wait(MOST_SECONDS)
    except subprocess.TimeoutExpired:
        return -signal.SIGKILL
    finally:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
