"""The ports of the control plane, metered: each passes every call on as it came.

A meter never changes what a call answers or raises. What a wrapper remembers is bounded, and safe to forget.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from calve.control.kind import Kind, Kinds, WrappedKind
from calve.control.ports import Runner, TaskOrder, TaskResult
from calve.model.errors import (
    CalveError,
    ConflictError,
    ErrorInfo,
    FenceLostError,
    Outcome,
    StoreError,
    StoreUnknownError,
)
from calve.model.process import Lease, Process, ProcessId, Task
from calve.model.states import PROCESS_TERMINAL
from calve.wire import logs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from calve.metrics.meters import Meters

T = TypeVar("T")
_MOST_PROCESSES = 4096  # whose kind is remembered
_UNKNOWN_KIND = "other"


class LoggedKind(WrappedKind):
    """Whatever a kind logs says which process it is about."""

    def around(self, call: str, of: str, work: Callable[[], T]) -> T:
        if call in ("release", "probe"):  # of a pin, of a service
            return work()
        with logs.bound(process=of):
            return work()


class LoggedRunner:
    """What a runner logs in this program says which process it is about."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    @property
    def slots(self) -> int:
        return self._runner.slots

    def run(self, group: str, orders: Sequence[TaskOrder], on_result: Callable[[TaskResult], None]) -> None:
        with logs.bound(process=orders[0].process_id if orders else ""):
            self._runner.run(group, orders, on_result)

    def cancel(self, group: str) -> None:
        self._runner.cancel(group)

    def close(self) -> None:
        self._runner.close()


def logged(kinds: Mapping[str, Kind]) -> Kinds:
    return _wrapped(kinds, LoggedKind)


class KindsOf:
    """Which kind a process is of: an order does not say. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[ProcessId, str] = OrderedDict()

    def learn(self, process: Process) -> None:
        with self._lock:
            self._known[process.id] = process.kind
            self._known.move_to_end(process.id)
            while len(self._known) > _MOST_PROCESSES:
                self._known.popitem(last=False)

    def of(self, process_id: ProcessId) -> str:
        with self._lock:
            return self._known.get(process_id, _UNKNOWN_KIND)


class MeteredKind(WrappedKind):
    """Times publishes, and counts those that may be tried again."""

    def __init__(self, kind: Kind, meters: "Meters", kinds: KindsOf) -> None:
        super().__init__(kind)
        self._meters = meters
        self._kinds = kinds

    def around(self, call: str, of: str, work: Callable[[], T]) -> T:
        if call != "publish":
            return work()
        started, outcome = time.monotonic(), "failed"
        try:
            answer = work()
            outcome = "done"
            return answer
        except CalveError as error:
            if error.outcome is Outcome.UNKNOWN:
                outcome = "unknown"
            _count_retry(self._meters, self.name, error.info)
            raise
        finally:
            seconds = time.monotonic() - started
            self._meters.observe("calve_publish_seconds", seconds, kind=self.name, outcome=outcome)

    def order(self, process: Process, plan: str, task: Task, attempt: int) -> TaskOrder:
        self._kinds.learn(process)
        return super().order(process, plan, task, attempt)


def metered(kinds: Mapping[str, Kind], meters: "Meters", known: KindsOf) -> Kinds:
    return _wrapped(kinds, lambda kind: MeteredKind(kind, meters, known))


class MeteredRunner:
    """Times attempts, counts what they wrote and what may be tried again, and knows how many run."""

    def __init__(self, runner: Runner, meters: "Meters", kinds: KindsOf, *, slots: int = 0) -> None:
        """`slots`: how many attempts run at once, where the runner is not asked."""
        self._runner = runner
        self._meters = meters
        self._kinds = kinds
        self._slots = slots
        self._lock = threading.Lock()
        self._used = 0
        meters.follow("calve_slots", lambda: self._used, state="used")
        meters.follow("calve_slots", lambda: max(self._slots - self._used, 0), state="free")

    @property
    def slots(self) -> int:
        self._slots = self._runner.slots
        return self._slots

    def run(self, group: str, orders: Sequence[TaskOrder], on_result: Callable[[TaskResult], None]) -> None:
        running = {(order.number, order.attempt): order for order in orders}
        started = time.monotonic()
        with self._lock:
            self._used += len(running)

        def ended(result: TaskResult) -> None:
            with self._lock:  # an attempt may be told of twice
                order = running.pop((result.number, result.attempt), None)
                self._used -= order is not None
            if order is not None:
                self._record(order, result, time.monotonic() - started)
            on_result(result)

        lost = ErrorInfo(code="attempt_lost", message="", retryable=True)
        try:
            self._runner.run(group, orders, ended)
        except CalveError as error:
            lost = error.info
            raise
        finally:
            with self._lock:
                left = list(running.values())
                running.clear()
                self._used -= len(left)
            for order in left:
                kind, seconds = self._kinds.of(order.process_id), time.monotonic() - started
                self._meters.observe("calve_task_seconds", seconds, kind=kind, outcome="lost")
                _count_retry(self._meters, kind, lost)

    def cancel(self, group: str) -> None:
        self._runner.cancel(group)

    def close(self) -> None:
        self._runner.close()

    def _record(self, order: TaskOrder, result: TaskResult, seconds: float) -> None:
        kind = self._kinds.of(order.process_id)
        outcome = "done" if result.error is None else "failed"
        self._meters.observe("calve_task_seconds", seconds, kind=kind, outcome=outcome)
        if result.error is not None:
            _count_retry(self._meters, kind, result.error)
            return
        self._meters.count("calve_rows_total", result.rows, kind=kind)
        self._meters.count("calve_bytes_total", result.bytes, kind=kind)


class MeteredStore:
    """Times every call of a store."""

    def __init__(self, store: Any, meters: "Meters") -> None:
        self._store = store
        self._meters = meters

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name.startswith("_") or not callable(found):
            return found

        def call(*given: Any, **named: Any) -> Any:
            with self._timed(name):
                return found(*given, **named)

        self.__dict__[name] = call
        return call

    @contextmanager
    def _timed(self, call: str) -> "Iterator[None]":
        started, outcome = time.monotonic(), "error"
        try:
            yield
            outcome = "ok"
        except StoreUnknownError:
            outcome = "unknown"
            raise
        except (FenceLostError, ConflictError):
            outcome = "ok"  # it answered: somebody else was first
            raise
        except StoreError:
            raise
        except CalveError as error:
            outcome = "error" if error.retryable else "ok"
            raise
        finally:
            seconds = time.monotonic() - started
            self._meters.observe("calve_store_call_seconds", seconds, call=call, outcome=outcome)


class WorkersStore(MeteredStore):
    """The store of one worker: also counts the leases that another took."""

    def __init__(self, store: Any, meters: "Meters") -> None:
        super().__init__(store, meters)
        self._lock = threading.Lock()
        self._held: dict[ProcessId, int] = {}  # fences
        self._given_up: set[tuple[ProcessId, int]] = set()  # since the last claim began

    def claim(self, *given: Any, **named: Any) -> list[Process]:
        with self._lock:
            self._given_up.clear()
        with self._timed("claim"):
            rows: list[Process] = self._store.claim(*given, **named)
        held = {row.id: row.fence for row in rows}
        with self._lock:
            lost = [one for one, fence in self._held.items() if held.get(one) != fence]
            self._held = {one: fence for one, fence in held.items() if (one, fence) not in self._given_up}
        if lost:
            self._meters.count("calve_leases_lost_total", len(lost))
        return rows

    def yield_(self, lease: Lease) -> None:
        self._drop(lease)
        with self._timed("yield_"):
            self._store.yield_(lease)

    def apply(self, lease: Lease, change: Any) -> Process:
        try:
            with self._timed("apply"):
                row: Process = self._store.apply(lease, change)
        except FenceLostError:
            if self._drop(lease):
                self._meters.count("calve_leases_lost_total")
            raise
        if row.state in PROCESS_TERMINAL:  # its lease goes with its end
            self._drop(lease)
        return row

    def _drop(self, lease: Lease) -> bool:
        with self._lock:
            self._given_up.add((lease.process_id, lease.fence))
            held = self._held.get(lease.process_id) == lease.fence
            if held:
                del self._held[lease.process_id]
            return held


def _wrapped(kinds: Mapping[str, Kind], wrap: Callable[[Kind], Kind]) -> Kinds:
    def maker(name: str) -> Callable[[], Kind]:
        return lambda: wrap(kinds[name])

    return Kinds({name: maker(name) for name in kinds})


def _count_retry(meters: "Meters", kind: str, error: ErrorInfo) -> None:
    if error.retryable:
        meters.count("calve_retries_total", kind=kind, code=meters.code(error.code))
