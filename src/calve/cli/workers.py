"""`calve ps --workers`: who is there, when each was heard of, what it met last."""

import sys
from collections import Counter
from datetime import datetime, timedelta

from calve.cli import output, words
from calve.cli.command import Session
from calve.model.process import Worker
from calve.model.reach import without_kinds

_HEAD = ("WORKER", "HOST", "STATE", "SLOTS", "HOLDS", "UP", "HEARD OF", "REACHES", "LAST ERROR")


def list_workers(session: Session) -> None:
    from calve.app.view import worker_json

    store, lease = session.app.store, timedelta(seconds=session.app.config.limits.lease_seconds)
    found, now = store.workers(), store.now()
    held = Counter(process.owner for process in store.live())
    documents = [
        worker_json(worker, state=state(worker, now, lease), processes=held[worker.id]) for worker in found
    ]
    rows = [_row(worker, state(worker, now, lease), held[worker.id], now) for worker in found]
    numbers = frozenset({"SLOTS", "HOLDS", "UP", "HEARD OF"})
    fits, cut = output.width(sys.stdout), frozenset({"HOST", "REACHES", "LAST ERROR"})
    text = words.table(_HEAD, rows, right=numbers, width=fits, cut=cut)
    session.answer(documents, text if rows else "")
    if not found and not session.json:
        output.say("No worker is running. Start one: calve worker")


def state(worker: Worker, now: datetime, lease: timedelta) -> str:
    """`silent`: not heard of for a lease, so others take over what it held."""
    if now - worker.heartbeat_at > lease:
        return "silent"
    return "draining" if worker.draining else "working"


def _row(worker: Worker, state: str, held: int, now: datetime) -> tuple[str, ...]:
    return (
        worker.id,
        worker.host,
        state,
        str(worker.slots),
        str(held),
        words.duration(now - worker.started_at),
        f"{words.duration(now - worker.heartbeat_at)} ago",
        " ".join(without_kinds(worker.reach)),
        output.one_line(worker.error.message) if worker.error else "",
    )
