"""Shows processes that move, as `calve export` does; started as a script on a pseudo-terminal."""

import sys
from dataclasses import replace
from datetime import UTC, datetime

from calve.app.front import Standing
from calve.cli.progress import display
from calve.model.errors import ErrorInfo
from calve.model.process import Process, ProcessId, TaskCounts
from calve.model.states import ProcessState

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DOWN = ErrorInfo(code="unreachable", message="catalog lake does not answer " * 5, retryable=True)


def process(partition: str) -> Process:
    return Process(
        id=ProcessId(partition), kind="export", state=ProcessState.PENDING, version=1, source="main:db.events",
        destination="lake.ns.events", lane="catalog:lake", needs=(), request="{}", partitions=(partition,),
        batch=None, priority=0, retry_of=None, adopted=False, created_at=NOW, deadline_at=NOW,
    )  # fmt: skip


def moving(count: int) -> list[list[Process]]:
    waiting = [process(f"2024{month:02}") for month in range(1, count + 1)]
    running = [
        replace(
            one, state=ProcessState.RUNNING, tasks=TaskCounts(total=4, done=3), rows=1_234_567, error=DOWN
        )
        for one in waiting
    ]
    ended = [replace(one, state=ProcessState.COMPLETED, error=None, finished_at=NOW) for one in running]
    return [waiting, running, ended]


if __name__ == "__main__":
    with display(quiet=False) as shown:
        for processes in moving(int(sys.argv[1])):
            shown.update(Standing(processes=tuple(processes), own_worker=True))
