"""What every step needs: the ports, the limits, and this worker's own knowledge."""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from calve.control.budget import Breakers, Random, backoff_seconds, is_unavailable
from calve.control.inflight import InFlight
from calve.control.kind import Kind
from calve.control.ports import Runner, Store
from calve.model.change import Change, ClearWait, Item, Met, NewEvent, WaitFor
from calve.model.errors import ErrorInfo, PermanentError
from calve.model.limits import Limits
from calve.model.process import Lease, Process, ProcessId

Spawn = Callable[[Callable[[], None]], None]  # run work, now or beside the loop

_log = logging.getLogger("calve.control")


class Plans:
    """Plans of the processes this worker holds. They are immutable, so a copy goes stale only with a
    store that lost what it had acknowledged (a fail-over to a replica that lagged): the process is
    then planned anew, and its earlier plan is forgotten."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._plans: dict[ProcessId, str] = {}

    def require(self, process_id: ProcessId) -> str:
        with self._lock:
            known = self._plans.get(process_id)
        if known is not None:
            return known
        plan = self._store.plan(process_id)
        if plan is None:
            raise PermanentError(
                f"process {process_id} is planned, but its plan is not in the store",
                code="plan_missing",
                hint=f"calve retry {process_id}",
            )
        with self._lock:
            self._plans[process_id] = plan
        return plan

    def forget(self, process_id: ProcessId) -> None:
        with self._lock:
            self._plans.pop(process_id, None)

    def keep_only(self, held: frozenset[ProcessId]) -> None:
        with self._lock:
            self._plans = {key: plan for key, plan in self._plans.items() if key in held}


@dataclass(frozen=True, kw_only=True)
class Context:
    store: Store
    kinds: Mapping[str, Kind]
    runner: Runner
    limits: Limits
    in_flight: InFlight
    breakers: Breakers
    probes: Mapping[str, Callable[[], None]]  # of what the runner needs, by service
    plans: Plans
    random: Random
    monotonic: Callable[[], float]
    spawn: Spawn
    draining: Callable[[], bool]
    wake: Callable[[], None]  # something ended: look again soon. Never carries a decision

    def kind(self, process: Process) -> Kind:
        try:
            return self.kinds[process.kind]
        except KeyError:
            raise PermanentError(
                f"this worker does not know processes of kind {process.kind!r}",
                code="unknown_kind",
                hint="run a worker of the version that submitted it",
            ) from None

    def backoff(self, tries: int) -> float:
        return backoff_seconds(tries, self.limits, self.random)

    def met(self, lease: Lease, process: Process, error: ErrorInfo, *also: Item, tries: int) -> None:
        """Record an error that a try at a step ended with, and how long to wait. `decide` reads it: an
        error that is not retryable ends the process. A failure to record it loses nothing: the
        step is decided again and meets it again (L38)."""
        self.breakers.met(process, [error])
        free = is_unavailable(error)
        wait = WaitFor(self.backoff(1 if free else tries)) if error.retryable else ClearWait()
        event = NewEvent(name="error", message=f"{error.code}: {error.message}")
        self.store.apply(lease, Change(event, Met(error), wait, *also))
        used = "not counted" if free else f"try {tries}"
        _log.warning(
            "process %s, %s: %s (%s): %s", process.id, process.state, error.code, used, error.message
        )
