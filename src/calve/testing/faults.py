"""Wrappers around any port that count its mutating calls and break at a chosen one.

Three ways to break at call N: the program dies before it, the program dies after it, or the call
is carried out and reported as failed. The last is what a lost acknowledgement looks like.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar, cast

from calve.control.kind import Kind, WrappedKind
from calve.model.errors import CalveError, StoreError, TemporaryError, UnknownOutcomeError

P = TypeVar("P")
T = TypeVar("T")

STORE_CALLS = frozenset(
    {
        "submit", "request_cancel", "claim", "renew", "yield_", "apply", "claim_releases", "renew_releases",
        "record_release", "heartbeat", "forget_worker", "trip", "claim_probe", "close_breaker", "forget_history",
        "forget_requests",
    }
)  # fmt: skip
REGISTRY_CALLS = frozenset(
    {
        "number_events", "answer_request", "put_token", "revoke_token", "put_halt", "lift_halt", "audit",
        "record_proof", "beat_server", "forget_server", "follow_target", "add_notices", "claim_notices",
        "record_notices", "put_actions", "claim_actions", "hold_actions", "record_action", "claim_look",
        "put_sighting", "fail_look", "put_session", "forget_session", "add_hold", "release_hold", "approve",
        "revoke_approval", "announce",
    }
)  # fmt: skip
KIND_CALLS = frozenset({"take", "plan", "publish", "fence", "undo", "release", "probe"})
KIND_READS = frozenset({"pins", "pin_tasks", "order", "find_receipt"})  # change nothing, so are not counted
RUNNER_CALLS = frozenset({"run", "cancel"})


BROKEN: Counter[tuple[str, str]] = Counter()  # what this program broke so far: the call, and how


class Crash(BaseException):
    """The program dies here. Not an `Exception`: nothing in the program may handle it."""


class Break(StrEnum):
    BEFORE = "before"
    AFTER = "after"
    REPORTED_FAILED = "reported_failed"  # applied, and reported as failed
    FAILED = "failed"  # not applied, and reported so


@dataclass
class Faults:
    """Counts the mutating calls of everything that shares it, and breaks at number `at` (from 1).

    `skipping=STORE_CALLS`: what changes something outside the store is counted alone. The store's own calls
    are enumerated over fakes, thousands a second (`tests/crash`); around real products they would repeat that.
    """

    at: int = 0
    how: Break = Break.BEFORE
    armed: bool = True
    skipping: frozenset[str] = frozenset()
    calls: list[str] = field(default_factory=list)

    def call(self, name: str, error: type[CalveError], work: Callable[[], Any]) -> Any:
        if not self.armed or name in self.skipping:
            return work()
        self.calls.append(name)
        if len(self.calls) != self.at:
            return work()
        BROKEN[name, self.how.value] += 1
        if self.how is Break.BEFORE:
            raise Crash(name)
        if self.how is Break.FAILED:
            raise error(f"{name} failed on purpose", code="injected")
        answer = work()
        if self.how is Break.AFTER:
            raise Crash(name)
        del answer
        raise error(f"{name} was carried out and reported failed, on purpose", code="injected")


class _Crashing:
    def __init__(self, port: object, calls: frozenset[str], faults: Faults, error: type[CalveError]) -> None:
        self._port = port
        self._calls = calls
        self._faults = faults
        self._error = error

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._port, name)
        if name not in self._calls:
            return attribute
        return lambda *args, **kwargs: self._faults.call(
            name, self._error, lambda: attribute(*args, **kwargs)
        )


class _CrashingKind(WrappedKind):
    def __init__(self, kind: Kind, faults: Faults) -> None:
        super().__init__(kind)
        self._faults = faults

    def around(self, call: str, of: str, work: Callable[[], T]) -> T:
        if call not in KIND_CALLS:
            return work()
        error = UnknownOutcomeError if call == "publish" else TemporaryError
        return cast(T, self._faults.call(call, error, work))


def crashing_store(store: P, faults: Faults) -> P:
    return cast(P, _Crashing(store, STORE_CALLS | REGISTRY_CALLS, faults, StoreError))


def crashing_kind(kind: Kind, faults: Faults) -> Kind:
    return _CrashingKind(kind, faults)


def crashing_runner(runner: P, faults: Faults) -> P:
    return cast(P, _Crashing(runner, RUNNER_CALLS, faults, TemporaryError))
