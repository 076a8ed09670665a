"""Everything that the next step of one process depends on, at one moment, and how it is read.

What is durable comes from the store; what this worker does at this very moment (`busy`,
`in_flight`, `stopped`, `lost`, `slots`) is about the worker itself and may be forgotten: a
worker that forgets finds its attempts lost and recovers them.

Invariant (L36): a tick reads a few rows for each process held, whatever the number of its tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from calve.control.budget import halting, holding_back
from calve.control.inflight import InFlight
from calve.control.ports import StoreReader
from calve.model.access import Halt
from calve.model.errors import ErrorInfo
from calve.model.limits import Limits
from calve.model.process import Breaker, Lease, Process, Task
from calve.model.states import PinState, ProcessState, TaskState

_STALE = frozenset({PinState.JOURNALED, PinState.TAKEN})


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Frozen, so that a decision can be repeated, tested and explained."""

    process: Process
    now: datetime
    limits: Limits
    # PENDING
    stale_pins: tuple[str, ...] = ()  # journaled or taken by an attempt that left no plan
    # RUNNING
    in_flight: int = 0  # attempts that this worker runs for it, or whose end is not recorded yet
    stopped: int = 0  # attempts that this worker stopped and that have ended
    lost: int = 0  # RUNNING in the store, but no worker runs them (the stopped ones not counted)
    stopping: bool = False  # what is in flight was already asked to stop
    ready: int = 0  # PENDING tasks that may start now, as far as they were counted
    slots: int = 0  # how many it may start now
    next_task_at: datetime | None = None
    failed_task: ErrorInfo | None = None
    # around it
    busy: str = ""  # the slow step that this worker performs for it now
    down: Breaker | None = None  # the open breaker that holds it back
    halted: Halt | None = None  # somebody stopped work of its kind
    draining: bool = False
    drain_over: bool = False  # draining, and running tasks had their time


@dataclass(frozen=True, kw_only=True)
class Around:
    """What is the same for all processes in one tick."""

    now: datetime
    limits: Limits
    breakers: Sequence[Breaker]
    halts: Sequence[Halt]
    free_slots: int
    draining: bool
    drain_over: bool


@dataclass(frozen=True, kw_only=True)
class Gathered:
    facts: Facts
    ready: tuple[Task, ...] = ()


def gather(
    reader: StoreReader, in_flight: InFlight, lease: Lease, process: Process, around: Around, busy: str
) -> Gathered:
    facts = Facts(
        process=process,
        now=around.now,
        limits=around.limits,
        busy=busy,
        down=holding_back(process, around.breakers),
        halted=halting(process, around.halts),
        draining=around.draining,
        drain_over=around.drain_over,
    )
    match process.state:
        case ProcessState.PENDING:
            return Gathered(facts=replace(facts, stale_pins=_stale_pins(reader, process, busy)))
        case ProcessState.RUNNING:
            return _running(reader, in_flight, lease, facts, around)
        case _:
            return Gathered(facts=facts)


def _stale_pins(reader: StoreReader, process: Process, busy: str) -> tuple[str, ...]:
    if busy:
        return ()  # they are the pins of the attempt that is being made
    return tuple(pin.name for pin in reader.pins(process.id, _STALE))


def _running(
    reader: StoreReader, in_flight: InFlight, lease: Lease, facts: Facts, around: Around
) -> Gathered:
    process, tasks = facts.process, facts.process.tasks
    known = in_flight.known(lease)
    stopped = sum(lost.stopped for lost in in_flight.lost(lease).values())
    waves = in_flight.waves(lease)
    pending = tasks.total - tasks.done - tasks.failed - tasks.running
    held = facts.down is not None or facts.halted is not None or facts.draining
    may_start = pending > 0 and around.free_slots > 0 and not held
    ready = tuple(reader.ready_tasks(process.id, around.free_slots)) if may_start else ()
    waits = may_start and not ready
    return Gathered(
        facts=replace(
            facts,
            in_flight=len(known),
            stopped=stopped,
            # The counts agree in the hot path, so nothing is read; `recover_tasks` reads the rows.
            lost=max(tasks.running - len(known) - stopped, 0),
            stopping=bool(waves) and all(wave.stop is not None for wave in waves),
            ready=len(ready),
            next_task_at=reader.next_task_at(process.id) if waits else None,
            failed_task=_failure(reader, process) if tasks.failed else None,
        ),
        ready=ready,
    )


def _failure(reader: StoreReader, process: Process) -> ErrorInfo | None:
    failed = reader.tasks(process.id, frozenset({TaskState.FAILED}), limit=1)
    if not failed or failed[0].error is None:
        return None
    task, error = failed[0], failed[0].error
    tries = "at the first try" if task.attempt == 1 else f"after {task.attempt} tries"
    return replace(error, message=f"task {task.number}, {tries}: {error.message}")
