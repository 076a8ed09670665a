"""Everything that the next step of one process depends on, at one moment.

What is durable comes from the store; what this worker does at this very moment (`busy`,
`in_flight`, `stopped`, `lost`, `slots`) is about the worker itself and may be forgotten: a
worker that forgets finds its attempts lost and recovers them.
"""

from dataclasses import dataclass
from datetime import datetime

from calve.model.errors import ErrorInfo
from calve.model.limits import Limits
from calve.model.process import Breaker, Process


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
    lost: int = 0  # RUNNING in the store, but nobody runs them (the stopped ones not counted)
    stopping: bool = False  # what is in flight was told to stop already
    ready: int = 0  # PENDING tasks that may start now, as far as they were counted
    slots: int = 0  # how many it may start now
    next_task_at: datetime | None = None
    failed_task: ErrorInfo | None = None
    # around it
    busy: str = ""  # the slow step that this worker performs for it now
    down: Breaker | None = None  # the open breaker that holds it back
    draining: bool = False
    drain_over: bool = False  # draining, and running tasks had their time
