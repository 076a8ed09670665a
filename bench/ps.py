"""`calve ps` on a store with a million task rows, against the same questions on a small one.

    python bench/ps.py [--tasks 1000000] [--url sqlite:///… | postgresql://…]

Prints, for each question, its time on both and the ratio. Questions are answered by indexes, so
the ratio stays near 1 whatever the number of tasks.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Connection, insert

from calve.model.process import BatchId, NewProcess, ProcessId, ProcessQuery, WorkerId
from calve.model.states import PROCESS_LIVE, PROCESS_TERMINAL, ProcessState, TaskState
from calve.store import SqlStore, open_store
from calve.store.tables import processes, tasks

TASKS_OF_A_PROCESS = 100
LIVE = 50
ROUNDS = 30
SMALL = 100_000  # a tenth, of the same shape: every answer has as many rows
REACH = frozenset({"source:main", "catalog:lake"})


def fill(store: SqlStore, task_count: int) -> None:
    """Ended processes with their tasks, and a few living ones on top."""
    count = max(task_count // TASKS_OF_A_PROCESS, 1)
    for start in range(0, count, 1_000):
        numbers = range(start, min(start + 1_000, count))
        new = [_new(number) for number in numbers]
        store.submit(new)
        store.database.write(lambda connection, new=new: _end(connection, new))
    store.submit([_new(count + number) for number in range(LIVE)])


def _new(number: int) -> NewProcess:
    return NewProcess(
        id=ProcessId(f"p{number:012d}"),
        kind="export",
        source="main:db.events",
        destination=f"lake.ns.t{number % 20}",
        lane="catalog:lake",
        needs=("catalog:lake", "source:main"),
        request="{}",
        batch=BatchId(f"batch-{number // 50}"),
    )


def _end(connection: Connection, new: list[NewProcess]) -> None:
    rows = [
        {
            "process_id": item.id,
            "number": number,
            "state": TaskState.DONE.value,
            "attempt": 1,
            "free_attempts": 0,
            "fence": 1,
            "finished_at": 1,
            "spec": '{"slices": [[0, 0, 1000000]]}',
            "receipt": '{"rows": 1000000}',
        }
        for item in new
        for number in range(1, TASKS_OF_A_PROCESS + 1)
    ]
    connection.execute(insert(tasks), rows)
    connection.execute(
        processes.update()
        .where(processes.c.id.in_([item.id for item in new]))
        .values(
            state=ProcessState.COMPLETED.value,
            planned=True,
            finished_at=1,
            tasks_total=TASKS_OF_A_PROCESS,
            tasks_done=TASKS_OF_A_PROCESS,
        )
    )


def questions(store: SqlStore) -> dict[str, Callable[[], object]]:
    some = ProcessId("p000000000003")
    return {
        "ps": lambda: store.processes(ProcessQuery(states=PROCESS_LIVE)),
        "ps --all": lambda: store.processes(ProcessQuery()),
        "ps --state COMPLETED": lambda: store.processes(ProcessQuery(states=PROCESS_TERMINAL)),
        "ps of a batch": lambda: store.processes(ProcessQuery(batch=BatchId("batch-0"))),
        "ps of a destination": lambda: store.processes(ProcessQuery(destination="lake.ns.t3", limit=50)),
        "live": store.live,
        "find by prefix": lambda: store.find("p000000000003"),
        "tasks of one": lambda: store.tasks(some),
        "ready tasks of one": lambda: store.ready_tasks(some, 10),
        "claim (nothing free)": lambda: store.claim(WorkerId("other"), REACH, lease_seconds=3600, limit=10),
    }


def measure(url: str, task_count: int) -> dict[str, float]:
    with open_store(url) as store:
        started = time.perf_counter()
        fill(store, task_count)
        print(f"{task_count:>9,} tasks filled in {time.perf_counter() - started:.1f} s")
        store.claim(WorkerId("holder"), REACH, lease_seconds=3600, limit=10 * LIVE)
        times: dict[str, float] = {}
        for name, ask in questions(store).items():
            ask()
            rounds = []
            for _ in range(ROUNDS):
                started = time.perf_counter()
                ask()
                rounds.append(time.perf_counter() - started)
            times[name] = statistics.median(rounds) * 1000
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--postgres", action="store_true", help="a PostgreSQL of its own, not SQLite")
    given = parser.parse_args()
    if given.postgres:
        from support.postgres import postgres

        with postgres() as server:
            report(server.new_database(), server.new_database(), given.tasks)
        return
    with tempfile.TemporaryDirectory() as folder:
        small, large = (f"sqlite:///{Path(folder) / name}" for name in ("small.db", "large.db"))
        report(small, large, given.tasks)


def report(small_url: str, large_url: str, task_count: int) -> None:
    small, large = measure(small_url, SMALL), measure(large_url, task_count)
    print(f"{'question':<24}{f'{SMALL:,} tasks':>16}{f'{task_count:,} tasks':>18}{'ratio':>8}")
    for name, before in small.items():
        after = large[name]
        print(f"{name:<24}{before:>13.2f} ms{after:>15.2f} ms{after / before:>8.2f}")


if __name__ == "__main__":
    main()
