"""What the tests of one program broke, and the rows that other engines read back: figures of docs/reliability.md.

Counted always, kept only where `CALVE_TALLY` names a folder: there each test program leaves a file, and
`scripts/tally.py` adds them up.
"""

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from calve.testing import faults

counts: Counter[tuple[str, ...]] = Counter()

_SIGNALS = {number: number.name for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT)}


def count(*what: str, times: int = 1) -> None:
    """`what` from wide to narrow: "commit", "timeout", "landed"."""
    counts[what] += times


def begin() -> None:
    """Count the signals that this program sends, too. A hook cannot be taken off again, so only where figures are kept."""
    if "CALVE_TALLY" in os.environ:
        sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("os.kill", "os.killpg") and arguments[1] in _SIGNALS:
        count("signal", _SIGNALS[arguments[1]])


def end() -> None:
    if "CALVE_TALLY" not in os.environ:
        return
    total = counts + Counter({("break", call, how): times for (call, how), times in faults.BROKEN.items()})
    folder = Path(os.environ["CALVE_TALLY"])
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps([[*what, times] for what, times in sorted(total.items())])
    (folder / f"{os.getpid()}.json").write_text(text, encoding="utf-8")
