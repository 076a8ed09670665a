"""`calve.spark.run` and `calve.spark.doctor`: Calve on a session that exists, in a notebook or a job.

No `calve worker` and no second session: the program that has the session does the work, as a command does that finds no
worker running. What is queued is in the store all the same, so a job that dies is gone on with by the next one.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from calve.app.calve import Calve
from calve.app.config import load_config
from calve.client.client import Client
from calve.client.tables import Queued, QueuedExport, Table
from calve.model.process import Process
from calve.spark.session import SessionRunner, remarks

Work = Callable[[Client], Queued | QueuedExport]


def run(
    spark: Any,
    work: Work | None = None,
    *,
    config: str | Path | None = None,
    timeout_seconds: float | None = None,
) -> Table[Process]:
    """Call `work` with a `Client`, do what it queued on this session, and return the processes once they have ended,
    however they did. Without `work`: do whatever is queued, until nothing is left, as `calve worker --until-idle`.
    TimeoutError after `timeout_seconds`: the processes are kept, and the next run goes on."""
    with _opened(spark, config) as calve:
        if work is None:
            calve.worker().run(until_idle=True)
            return Table()
        client = Client._over(calve)
        ids = [process.id for process in work(client).processes]
        if not ids:
            return Table()  # all of it was exported before
        for _ in calve.run(ids, timeout_seconds=timeout_seconds):
            pass
        return client.wait(*ids, timeout_seconds=0)


def doctor(spark: Any, *, config: str | Path | None = None) -> Table[dict[str, Any]]:
    """Findings of `calve doctor` from where this session is, and what must be set where it is made."""
    found: Table[dict[str, Any]] = Table()
    for words, remedy in remarks(spark):
        found.append({"part": "session", "ok": True, "severity": "warning", "words": words, "remedy": remedy})
    with _opened(spark, config) as calve:
        found.extend(calve.doctor())
    return found


@contextmanager
def _opened(spark: Any, config: str | Path | None) -> Iterator[Calve]:
    runner = SessionRunner(spark, prepare="calve.export.task:prepare")
    loaded = load_config(config)
    # Whatever [spark] says is of the workers that start a session themselves.
    on_this = replace(loaded, spark=replace(loaded.spark, master=runner.master, conf={}))
    with Calve(on_this, runner=runner) as calve:
        yield calve
