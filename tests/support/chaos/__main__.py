"""`make chaos MINUTES=5 SEED=7`: one run, its report, and exit code 1 if a promise was broken."""

import argparse
import random
import sys
import tempfile
from pathlib import Path

from support.chaos.bugs import BUGS, command
from support.chaos.run import Asked, run


def main() -> int:
    asked = _arguments()
    seed = asked.seed if asked.seed is not None else random.SystemRandom().randrange(1, 1_000_000)
    folder = asked.folder or Path(tempfile.mkdtemp(prefix=f"calve-chaos-{seed}-"))
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)  # PostgreSQL runs as another user
    report = run(
        Asked(
            seed=seed, minutes=asked.minutes, folder=folder, workers=asked.workers, command=command(asked.bug)
        )
    )
    report.write()
    print(report.told())
    return 0 if report.ok else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos")
    parser.add_argument("--minutes", type=float, default=5.0, help="how long things are broken")
    parser.add_argument("--seed", type=int, help="plans the same strikes and requests again")
    parser.add_argument("--folder", type=Path, help="where everything is written, and kept")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--bug", default="", help=f"with mistakes planted in workers: {', '.join(BUGS)}")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
