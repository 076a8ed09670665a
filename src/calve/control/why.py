"""Why a process stands where it stands, in one sentence. The command line, the API and the dashboard
all ask this one function. Reads only what any program can read: the store."""

from collections.abc import Iterable
from datetime import datetime
from typing import Protocol, assert_never

from calve.control.budget import halting, holding_back, known_to
from calve.model.access import Halt
from calve.model.errors import Outcome
from calve.model.process import Breaker, Process, ProcessId, Task, Worker, WorkerId
from calve.model.reach import kinds_in, reaches
from calve.model.states import PROCESS_TERMINAL, Leftovers, ProcessState, TaskState

_ENDS = {
    ProcessState.COMPLETED: "completed",
    ProcessState.FAILED: "failed",
    ProcessState.CANCELLED: "was cancelled",
}
_FRESH_SECONDS = 60.0  # a worker that was silent for longer is not counted on


class WhyReader(Protocol):
    """What of a store is asked."""

    def now(self) -> datetime: ...

    def halts(self) -> list[Halt]: ...

    def workers(self) -> list[Worker]: ...

    def breakers(self) -> list[Breaker]: ...

    def ready_tasks(self, process_id: ProcessId, limit: int) -> list[Task]: ...

    def next_task_at(self, process_id: ProcessId) -> datetime | None: ...

    def tasks(
        self, process_id: ProcessId, states: frozenset[TaskState] = frozenset(), limit: int | None = None
    ) -> list[Task]: ...


def why(reader: WhyReader, process: Process, *, tasks: bool = True) -> str:
    """Without `tasks` its tasks are not looked at: for a list of processes, where that would be three reads each."""
    now = reader.now()
    if process.damaged:
        return f"Nobody works on it: its row in the store is damaged ({process.damaged}). See `calve doctor`."
    if process.state in PROCESS_TERMINAL:
        return _ended(process)
    return (
        _asked_to_end(process, now)
        or _halted(reader, process)
        or _no_worker(reader, process, now)
        or _down(reader, process)
        or _backing_off(process, now)
        or _no_lease(process, now)
        or _working(reader, process, tasks=tasks)
    )


def _ended(process: Process) -> str:
    at = f" at {_time(process.finished_at)}" if process.finished_at else ""
    said = f": {process.error.message}" if process.error else ""
    if process.error is not None and process.error.outcome is Outcome.UNKNOWN:
        next_at = f"; the next check is at {_time(process.cleanup_at)}" if process.cleanup_at else ""
        return f"It failed{at} and whether it was published is unknown{next_at}{said}."
    kept = ""
    if process.leftovers is Leftovers.KEPT and process.cleanup_at:
        kept = f"; its files are kept for `calve retry {process.id}` until {_time(process.cleanup_at)}"
    return f"It {_ENDS[process.state]}{at}{said}{kept}."


def _asked_to_end(process: Process, now: datetime) -> str:
    if process.cancel_requested:
        return "A cancel was requested; it waits for a worker to carry it out."
    if process.deadline_at <= now:
        return f"Its deadline passed at {_time(process.deadline_at)}; it waits for a worker to end it."
    return ""


def _halted(reader: WhyReader, process: Process) -> str:
    halt = halting(process, reader.halts())
    if halt is None:
        return ""
    said, reason = str(halt), f" ({halt.reason})" if halt.reason else ""
    running = f" {process.tasks.running} running tasks finish first." if process.tasks.running else ""
    start = f"`calve sql 'SYSTEM START {halt.kind.upper()}S{f' {halt.source}' if halt.source else ''}'`"
    return (
        f"{said[0].upper()}{said[1:]} since {_time(halt.made_at)} by {halt.who}{reason}; start them with {start}."
        f"{running} Its deadline stays {_time(process.deadline_at)}."
    )


def _no_worker(reader: WhyReader, process: Process, now: datetime) -> str:
    alive = [worker for worker in reader.workers() if _alive(worker, now)]
    if any(reaches(worker.reach, process) and not worker.draining for worker in alive):
        return ""
    if process.owner is not None and any(worker.id == process.owner for worker in alive):
        return ""
    needs = ", ".join(process.needs) or "nothing in particular"
    if not alive:
        return "No worker is running: start one with `calve worker`."
    if not any(process.kind in (kinds_in(worker.reach) or {process.kind}) for worker in alive):
        return (
            f"It waits for a worker of a version that knows the kind {process.kind!r};"
            f" none of the {len(alive)} running workers does."
        )
    return f"It waits for a worker whose configuration reaches {needs}; none of the {len(alive)} running workers does."


def _alive(worker: Worker, now: datetime) -> bool:
    return (now - worker.heartbeat_at).total_seconds() < _FRESH_SECONDS


def waiting_for(reader: WhyReader, processes: Iterable[Process]) -> dict[ProcessId, Breaker]:
    """The services that are down and that live processes wait for."""
    breakers = reader.breakers()
    if not breakers:
        return {}
    reaches = {worker.id: worker.reach for worker in reader.workers()}
    found = {
        process.id: holding_back(process, known_to(reaches.get(process.owner or WorkerId(""), ()), breakers))
        for process in processes
        if process.state not in PROCESS_TERMINAL
    }
    return {process_id: breaker for process_id, breaker in found.items() if breaker is not None}


def _down(reader: WhyReader, process: Process) -> str:
    breaker = waiting_for(reader, [process]).get(process.id)
    if breaker is None:
        return ""
    return (
        f"It waits for {breaker.service}, which has been down since {_time(breaker.opened_at)} ({breaker.reason});"
        f" the next probe is at {_time(breaker.probe_at)}."
    )


def _backing_off(process: Process, now: datetime) -> str:
    if process.not_before is None or process.not_before <= now:
        return ""
    after = f" after: {process.error.message}" if process.error else ""
    return f"It is backing off until {_time(process.not_before)}{after}."


def _no_lease(process: Process, now: datetime) -> str:
    if process.owner is None:
        return "It waits in the queue for a worker to take it."
    if process.lease_until is not None and process.lease_until <= now:
        return (
            f"Its worker {process.owner} has been silent since before {_time(process.lease_until)};"
            " it waits for another worker to take over."
        )
    return ""


def _working(reader: WhyReader, process: Process, *, tasks: bool) -> str:
    match process.state:
        case ProcessState.PENDING:
            return f"Worker {process.owner} is pinning and planning it."
        case ProcessState.RUNNING:
            return _running(reader, process, look=tasks)
        case ProcessState.PUBLISHING:
            tried = f", try {process.publish_attempts}" if process.publish_attempts > 1 else ""
            return f"Worker {process.owner} is publishing it{tried}."
        case ProcessState.COMPLETED | ProcessState.FAILED | ProcessState.CANCELLED:
            return _ended(process)
        case unreachable:
            assert_never(unreachable)


def _running(reader: WhyReader, process: Process, *, look: bool) -> str:
    tasks = process.tasks
    if tasks.done >= tasks.total:
        return f"All tasks are done; worker {process.owner} is about to publish it."
    if tasks.running:
        granted = next((one.granted for one in reader.workers() if one.id == process.owner), None)
        if granted is not None and not granted.executors:
            return (
                f"{tasks.running} of its {tasks.total} tasks wait for executors, {tasks.done} are done: Spark has granted"
                f" {process.owner} {granted}, as a cluster does that is full or has lost its machines."
            )
        on = f" Spark grants {granted}." if granted else ""
        return f"{tasks.running} of its {tasks.total} tasks are running, {tasks.done} are done.{on}"
    if not look:
        return f"{tasks.done} of its {tasks.total} tasks are done, and none is running."
    if reader.ready_tasks(process.id, 1):
        return f"{tasks.done} of its {tasks.total} tasks are done; the next waits for a free slot of {process.owner}."
    next_at = reader.next_task_at(process.id)
    failed = [task for task in reader.tasks(process.id, frozenset({TaskState.PENDING}), 100) if task.error]
    after = f" after: {failed[0].error.message}" if failed and failed[0].error else ""
    return (
        f"Its tasks are backing off until {_time(next_at)}{after}." if next_at else "It is between two steps."
    )


def _time(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC" if at else "a time not yet known"
