"""Mistakes for workers, to show that a run finds them: those that the simulator plants, in real programs.

`python -m support.chaos.bugs NAME[,NAME…] …` is `calve …` with them.
"""

import sys
from contextlib import ExitStack

from support.simulator.bugs import BUGS

__all__ = ["BUGS", "command"]


def command(bug: str) -> tuple[str, ...]:
    """What starts a worker."""
    if not bug:
        return (sys.executable, "-m", "calve.cli")
    return (sys.executable, "-m", "support.chaos.bugs", bug)


def main() -> None:
    from calve.cli.main import main as calve

    with ExitStack() as stack:
        for name in sys.argv.pop(1).split(","):
            stack.enter_context(BUGS[name].planted())
        calve()


if __name__ == "__main__":
    main()
