"""A program that makes a backup and says, by a file, when its copy is under way; then it hangs."""

import sys
import time
from pathlib import Path

from backup_place import DirectRunner

from calve.app.wiring import App
from calve.cli.main import run
from calve.control.ports import TaskOrder


def hang(order: TaskOrder) -> None:
    Path("hangs").write_text(order.process_id)
    time.sleep(600)


if __name__ == "__main__":
    App.runner = property(lambda app: DirectRunner(before=hang))  # type: ignore[assignment,method-assign]
    sys.exit(run(sys.argv[1:]))
