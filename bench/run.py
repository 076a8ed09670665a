"""Run every benchmark that writes a report, or those that are named, one after another: `run.py export --quick`.

Options are handed on to each. A few older ones (`outage`, `optimize`, `release`, `ps`) print their bounds and have
options of their own: they run when they are named.
"""

import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def main(names: list[str]) -> int:
    options = [name for name in names if name.startswith("-")]
    names = [name for name in names if not name.startswith("-")]
    there = {path.stem.replace("_", "-"): path for path in sorted(FOLDER.glob("*.py")) if path.stem != "run"}
    unknown = [name for name in names if name not in there]
    if unknown:
        sys.stderr.write(f"error: no benchmark {', '.join(unknown)}\nhint: there are {', '.join(there)}\n")
        return 2
    failed = []
    for name in names or [name for name, path in there.items() if "Report(" in path.read_text()]:
        print(f"== {name}", flush=True)
        began = time.monotonic()
        if subprocess.run([sys.executable, there[name], *options], check=False).returncode:
            failed.append(name)
        print(f"-- {name}: {time.monotonic() - began:.0f} s", flush=True)
    if failed:
        sys.stderr.write(f"error: failed: {', '.join(failed)}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
