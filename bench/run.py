"""Run every benchmark of this folder, or those that are named, one after another: `run.py export --quick`.

Options are handed on to each.
"""

import subprocess
import sys
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
    for name in names or there:
        print(f"== {name}", flush=True)
        if subprocess.run([sys.executable, there[name], *options], check=False).returncode:
            failed.append(name)
    if failed:
        sys.stderr.write(f"error: failed: {', '.join(failed)}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
