"""One process on a page, in bounded reads, whatever its size.

At most 400 attempts are given one by one. Of more, every k-th task is read (k prime, so that waves of 32 do not alias)
and added up over time; the ten slowest are exact. Spans are seconds after `from`, by the store's clock; the phases
inside of an attempt are the executor's own durations, and what is left of it is waiting.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from calve.app import view
from calve.app.commands import command
from calve.app.pages.document import Remembered, head
from calve.app.pages.sightings import pair
from calve.app.view import Json
from calve.app.wiring import App
from calve.control.budget import halting
from calve.control.why import why
from calve.model.errors import UsageError
from calve.model.process import BatchId, Event, Process, ProcessQuery
from calve.model.record import fields_of
from calve.model.seen import PHASES, Attempt
from calve.model.states import PROCESS_TERMINAL, PROCESS_TRANSITIONS, ProcessState, TaskState

BARS = 400
BUCKETS = 240
SAMPLE = 1000  # tasks
MANY = 2000  # tasks
SLOWEST = 10
_TASKS = 100
_WAITING = 8
_EVENTS = 50
_FIRST_EVENTS = 20
_BATCH = 200
_PLAN_BYTES = 256 * 1024
_MILESTONES = frozenset({"submitted", "leased", "planned", *(state.value.lower() for state in ProcessState)})
PHASE_WORDS = {
    "export": {
        "read": "reading and checking",
        "write": "writing, which reads again",
        "upload": "uploading",
    },
    "backup": {"upload": "copying"},
    "restore": {"read": "fetching"},
    "optimize": {"write": "rewriting"},
    "proof": {"read": "reading back"},
    "drill": {"read": "reading back", "write": "restoring and comparing"},
}


def sheet(
    app: App, text: str, *, states: Sequence[str] = (), after: int = -1, before: int | None = None
) -> Json:
    """`states` and `after` choose the page of tasks, `before` that of events."""
    document = head(app)
    process = _one(app, text)
    store, registry = app.store, app.registry
    reader = Remembered(store)
    newest = registry.newest_events(process.id, before=before, limit=_EVENTS)
    oldest = store.events(process.id, limit=_FIRST_EVENTS)
    tasks = registry.task_page(process.id, states=_states(states), after=after, limit=_TASKS)
    successors = store.processes(ProcessQuery(retry_of=process.id, limit=5))
    size = registry.plan_size(process.id)
    outages = _outages(app, process)
    return document | {
        "process": view.served_json(process),
        "why": why(reader, process),
        "successor": successors[0].id if successors else None,
        "predecessor": process.retry_of,
        "retries": [one.id for one in successors],
        "batch": _batch(app, process.batch),
        "milestones": _milestones(oldest, newest if before is None else ()),
        "transitions": {
            state.value: sorted(one.value for one in following)
            for state, following in PROCESS_TRANSITIONS.items()
        },
        "attempts": attempts_json(app, process),
        "phases": PHASE_WORDS.get(process.kind, {}),
        "running": [_task(one) for one in _running(app, process)],
        "waits": _waits(process, oldest),
        "waiting": _waiting(reader, process, oldest, outages),
        "outages": outages,
        "tasks": [_task(one) for one in tasks],
        "tasks_next": tasks[-1].number if len(tasks) == _TASKS else None,
        "events": [view.event_json(one) for one in newest],
        "events_next": newest[-1].number if len(newest) == _EVENTS else None,
        "plan": {"bytes": size, "agreed": _agreed(process), **_plan(app, process, size)},
        "pins": [view.pin_json(one) for one in store.pins(process.id)],
        "proofs": [view.plain_json(one) for one in registry.proofs([process.id])],
        "forgotten": process.state in PROCESS_TERMINAL and not oldest and before is None,
        "commands": {
            verb: command(verb, ids=[process.id])
            for verb in ("show", "why", "events", "cancel", "retry", "verify")
        },
        "subjects": [["pair", pair(process.source, process.destination)]],
    }


def _one(app: App, text: str) -> Process:
    found = app.find([text])
    if len(found) > 1:
        raise UsageError(
            f"{text} is a batch of {len(found)} processes", code="several_processes", hint=f"calve ps {text}"
        )
    return app.store.process(found[0])


def _states(names: Sequence[str]) -> frozenset[TaskState]:
    try:
        return frozenset(TaskState(name.upper()) for name in names)
    except ValueError:
        known = ", ".join(state.value for state in TaskState)
        raise UsageError("invalid states", code="bad_option", hint=f"give some of {known}") from None


def _running(app: App, process: Process) -> list[Any]:
    if not process.tasks.running:
        return []
    return app.registry.task_page(process.id, states=frozenset({TaskState.RUNNING}), limit=_TASKS)


def _task(task: Any) -> Json:
    return {name: value for name, value in view.task_json(task).items() if name != "receipt"}


def _batch(app: App, batch: BatchId | None) -> Json | None:
    if batch is None:
        return None
    found = app.store.processes(ProcessQuery(batch=batch, limit=_BATCH))
    counts = Counter(one.state.value for one in found)
    return {"id": batch, "counts": dict(sorted(counts.items())), "more": len(found) == _BATCH}


def _plan(app: App, process: Process, size: int | None) -> Json:
    """With the hash of its text as it is stored: equal ones are equal plans. Without either, if it is long."""
    if size is None or size > _PLAN_BYTES:
        return {"sha256": None, "document": None}
    text = app.store.plan(process.id) or ""
    try:
        document = json.loads(text or "null")
    except (ValueError, RecursionError):
        document = None  # another kind's own text
    return {"sha256": hashlib.sha256(text.encode("utf-8", "replace")).hexdigest(), "document": document}


def _agreed(process: Process) -> str:
    """The hash of the plan that somebody saw and started, of an export; "" if he started without."""
    return str(fields_of(process.request).get("plan_hash") or "")


def _milestones(oldest: Sequence[Event], newest: Sequence[Event]) -> list[Json]:
    found = {one.number: one for one in (*oldest, *newest) if one.name in _MILESTONES}
    return [{"name": one.name, "at": view.time_json(one.at)} for _, one in sorted(found.items())]


def _waits(process: Process, oldest: Sequence[Event]) -> list[Json]:
    """Before a worker took it. Of the rest the chart knows: outages, and the gap before an attempt."""
    leased = next((one.at for one in oldest if one.name == "leased"), None)
    if leased is None and process.state not in PROCESS_TERMINAL:
        return [{"from": view.time_json(process.created_at), "to": None, "for": "a worker"}]
    if leased is None or (leased - process.created_at).total_seconds() < 1:
        return []
    return [{"from": view.time_json(process.created_at), "to": view.time_json(leased), "for": "a worker"}]


def _waiting(reader: Remembered, process: Process, oldest: Sequence[Event], outages: Sequence[Json]) -> Json:
    """Tasks that could run now, since when, and what they wait for. Those that back off are in the attempts."""
    counts = process.tasks
    left = counts.total - counts.done - counts.failed - counts.running
    if process.state is not ProcessState.RUNNING or left <= 0:
        return {"count": 0, "for": "", "tasks": []}
    planned = next((one.at for one in oldest if one.name == "planned"), process.created_at)
    down = next((one["service"] for one in outages if not one["closed_at"]), "")
    held = halting(process, reader.halts())
    wanted = (
        str(held) if held else f"{down}, which is down" if down else "a free slot" if process.owner else "a worker"
    )  # fmt: skip
    ready = [
        {"number": one.number, "since": view.time_json(one.not_before or planned)}
        for one in reader.ready_tasks(process.id, _WAITING)
    ]
    return {"count": left, "for": wanted, "tasks": ready}


def _outages(app: App, process: Process) -> list[Json]:
    """Of the services that the process needs, while it lived."""
    services = {process.lane, *process.needs}
    end = process.finished_at
    return [
        view.plain_json(one)
        for one in app.registry.outages(process.created_at)
        if one.service in services and (end is None or one.opened_at < end)
    ]


# -- attempts -----------------------------------------------------------------------------------------


def attempts_json(app: App, process: Process) -> Json:
    """Few are read as they are now; of many the last look is shown, with its time, for it reads them all."""
    if process.tasks.total <= MANY:
        return _attempts(app, process)
    return app.scans.of(process, lambda: _attempts(app, process))


def _attempts(app: App, process: Process) -> Json:
    registry = app.registry
    counts = registry.attempt_counts(process.id)
    start = counts.first_at or process.created_at
    found: Json = {
        "at": view.time_json(app.store.now()),
        "count": counts.count,
        "failed": counts.failed,
        "from": view.time_json(start),
        "seconds": _after(counts.last_at, start) if counts.last_at else 0.0,
        "bars": None,
        "buckets": None,
        "slowest": [bar(one, start) for one in registry.slowest_attempts(process.id, SLOWEST)],
    }
    if counts.count <= BARS:
        return found | {"bars": [bar(one, start) for one in registry.attempts(process.id, limit=BARS)]}
    every = _prime_above(process.tasks.total // SAMPLE)
    sample = registry.attempts(process.id, every=every, limit=4 * SAMPLE)
    return found | {"buckets": buckets(sample, start, found["seconds"], every)}


def bar(attempt: Attempt, start: datetime) -> Json:
    return {
        "number": attempt.number,
        "attempt": attempt.attempt,
        "start": _after(attempt.started_at, start),
        "end": _after(attempt.ended_at, start),
        "ending": attempt.ending.value,
        "code": attempt.code,
        "worker": attempt.worker,
        "rows": attempt.rows,
        "bytes": attempt.bytes,
        "spent": _spent(attempt),
    }


def _spent(attempt: Attempt) -> dict[str, float] | None:
    """Seconds by phase; None where nobody measured."""
    found = {phase: getattr(attempt, f"{phase}_ms") for phase in PHASES}
    measured = {phase: ms / 1000 for phase, ms in found.items() if ms is not None}
    return measured or None


def buckets(sample: Sequence[Attempt], start: datetime, seconds: float, every: int) -> Json:
    """How many attempts were in each phase, on average over each piece of time, and what they brought in it."""
    step = max(seconds / BUCKETS, 0.001)
    found: dict[str, list[float]] = {
        name: [0.0] * BUCKETS for name in ("waiting", *PHASES, "worked", "rows", "bytes", "failed")
    }
    for one in sample:
        begin, end = _after(one.started_at, start), _after(one.ended_at, start)
        for name, first, last in _spans(one, begin, end):
            for place, share in _over(first, last, step):
                found[name][place] += share / step
        for place, share in _over(begin, end, step):
            part = share / max(end - begin, 0.001)
            found["rows"][place] += one.rows * part
            found["bytes"][place] += one.bytes * part
        if one.code:
            found["failed"][min(int(end / step), BUCKETS - 1)] += 1
    scaled = {name: [round(value * every, 2) for value in values] for name, values in found.items()}
    return {"step_seconds": round(step, 3), "every": every, "sampled": len(sample)} | scaled


def _spans(attempt: Attempt, begin: float, end: float) -> list[tuple[str, float, float]]:
    """Waiting comes first: for a core, or for an executor to start."""
    spent = _spent(attempt)
    if spent is None:
        return [("worked", begin, end)]
    at = max(begin, end - sum(spent.values()))
    spans = [("waiting", begin, at)]
    for phase, seconds in spent.items():
        spans.append((phase, at, min(end, at + seconds)))
        at = min(end, at + seconds)
    return spans


def _over(first: float, last: float, step: float) -> list[tuple[int, float]]:
    """The pieces of time that a span lies in, with its seconds in each."""
    found = []
    for place in range(max(0, int(first / step)), min(BUCKETS - 1, int(last / step)) + 1):
        share = min(last, (place + 1) * step) - max(first, place * step)
        if share > 0:
            found.append((place, share))
    return found


def _after(at: datetime, start: datetime) -> float:
    return round(max((at - start).total_seconds(), 0.0), 3)


def _prime_above(number: int) -> int:
    found = max(number + 1, 2)
    while any(found % small == 0 for small in range(2, int(found**0.5) + 1)):
        found += 1
    return found
