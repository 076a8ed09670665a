"""Two workers against one, over a store that they share: exports of many partitions from a server that takes seconds to
answer, so that neither has to wait for the cores. Both workers have the default limits, with four tasks at once each.
"""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from calve.app.wiring import App
from calve.app.work import follow
from calve.model.process import Process
from calve.model.states import ProcessState
from kit.report import Report
from kit.world import folder
from support.clickhouse_front import FrontOptions, clickhouse_front
from support.server_place import ServerPlace

SLOTS = 4
START_SECONDS = 180.0


def main() -> None:
    report = Report("two-workers", __doc__)
    partitions, delay = (16, 6.0) if report.quick else (24, 8.0)
    options = FrontOptions(delays={"FORMAT Native": delay})
    with folder() as home, clickhouse_front(home / "server", options) as front:
        place = ServerPlace(
            home, front.url, configured_id="bench", CALVE_SPARK__MASTER=f"local[{SLOTS}]",
            CALVE_LIMITS__SLOTS=str(SLOTS),
        )  # fmt: skip
        place.execute(
            "CREATE DATABASE db",
            "CREATE TABLE db.events (id UInt64, note String) ENGINE = MergeTree PARTITION BY id ORDER BY id",
            f"INSERT INTO db.events SELECT number, 'x' FROM numbers({partitions})",
        )
        with place.app() as app, worker(place, app):
            warm_up(place, app, workers=1)
            for turn in range(2):
                measure(report, "one worker", place, app, turn)
            with worker(place, app):
                warm_up(place, app, workers=2)
                for turn in range(2):
                    measure(report, "two workers", place, app, turn)
    report.ratio("two over one", report.best("one worker") / report.best("two workers"), 1.8, at_least=True)
    report.finish()


@contextmanager
def worker(place: ServerPlace, app: App) -> Iterator[None]:
    """A `calve worker`, from when it is in the store."""
    before = len(app.store.workers())
    with (place.folder / f"worker-{before}.log").open("wb") as log:
        program = subprocess.Popen(
            [Path(sys.executable).with_name("calve"), "worker"],
            cwd=place.folder,
            env={**os.environ, **place.environment},
            stdout=log,
            stderr=log,
        )
        try:
            until = time.monotonic() + START_SECONDS
            while len(app.store.workers()) <= before:
                assert program.poll() is None and time.monotonic() < until, Path(log.name).read_text()
                time.sleep(0.1)
            yield
        finally:
            program.terminate()
            program.wait()


def warm_up(place: ServerPlace, app: App, workers: int) -> None:
    """Until each worker has run tasks, and so has a Spark."""
    for turn in range(5):
        shares = shared(app, export(place, app, f"warm{workers}_{turn}"))
        if len(shares) == workers:
            return
    raise SystemExit(f"error: only {len(shares)} of {workers} workers took any of the work")


def measure(report: Report, name: str, place: ServerPlace, app: App, turn: int) -> None:
    with report.timed(name) as run:
        done = export(place, app, f"{name.replace(' ', '_')}_{turn}")
        run.detail["shares"] = "+".join(map(str, shared(app, done).values()))


def export(place: ServerPlace, app: App, to: str) -> Sequence[Process]:
    """Every partition as a process of its own."""
    for standing in follow(app, place.submit(app, "db.events", f"lake.ns.{to}")):
        last = standing
    for process in last.processes:
        assert process.state is ProcessState.COMPLETED, process.error
    return last.processes


def shared(app: App, processes: Sequence[Process]) -> Counter[str]:
    """How many each worker took."""
    events = (event for process in processes for event in app.store.events(process.id))
    return Counter(event.message for event in events if event.message.startswith("by worker "))


if __name__ == "__main__":
    main()
