"""Who asks, with what right, and what is kept about it: tokens, requests, halts, the audit, notices, actions.

Rights belong to verbs of the façade; here is only their order. Times are the store's; where a value is
given to a store that sets the time itself, it may be None.
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from calve.model.errors import RefusedError
from calve.model.process import Process, ProcessId
from calve.model.states import ProcessState


class Role(StrEnum):
    """Each may do what those before it may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def may(self, needed: "Role") -> bool:
        return _RANKS[self] >= _RANKS[needed]


_RANKS = {role: rank for rank, role in enumerate(Role)}


@dataclass(frozen=True, kw_only=True)
class Caller:
    name: str  # of a token, "local", "cli:alice@host"
    role: Role
    origin: str = ""  # the peer's address


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Who asked for a change; stored in the change's own transaction. With a `key` the same request is
    accepted once: `hash` says whether it is the same."""

    who: str
    verb: str
    key: str = ""
    hash: str = ""
    subject: str = ""  # what the change is about, for people who read the audit


@dataclass(frozen=True, kw_only=True)
class KeyedRequest:
    """An idempotency key that was used, and what came of it."""

    who: str
    key: str
    verb: str
    hash: str
    processes: tuple[ProcessId, ...]  # joined ones first, then new ones
    answer: str | None  # None: not kept, to be made again from the processes
    made_at: datetime


class Replayed(RefusedError):
    """This caller sent the same request with the same key before; answer with `request`."""

    request: KeyedRequest  # not pickled

    @classmethod
    def of(cls, request: KeyedRequest) -> "Replayed":
        error = cls(
            f"the request with key {request.key!r} was accepted before; nothing was submitted",
            code="replayed",
            hint="calve ps",
        )
        error.request = request
        return error


@dataclass(frozen=True, kw_only=True)
class AccessToken:
    """The secret itself is nowhere, only its SHA-256. A name is never given twice: it is who asked."""

    id: str
    name: str
    role: Role
    hash: str = field(repr=False)
    created_by: str
    created_at: datetime | None = None
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    def valid(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


NAMED_HALTS = frozenset({"policy", "schedule"})  # kinds of halts whose source is the name of what is paused


@dataclass(frozen=True, kw_only=True)
class Halt:
    """Work of a kind that nobody begins or goes on with until the halt is lifted."""

    kind: str
    source: str  # as `Process.source`; "" means all
    who: str
    reason: str = ""
    made_at: datetime | None = None

    def holds(self, process: Process) -> bool:
        """Not one that publishes: between a send and a look at it there is nothing to wait for."""
        begun = process.state not in (ProcessState.PENDING, ProcessState.RUNNING)
        return not begun and self.kind == process.kind and self.source in ("", process.source)

    def __str__(self) -> str:
        if self.kind in NAMED_HALTS:
            return f"{self.kind} {self.source} is paused"
        return f"{self.kind}s{f' of {self.source}' if self.source else ''} are stopped"


@dataclass(frozen=True, kw_only=True)
class Server:
    """One program that answers over HTTP."""

    id: str
    host: str
    url: str
    version: str
    started_at: datetime | None = None
    heartbeat_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What was read back at the destination, and whether it is what was sent."""

    process_id: ProcessId
    ok: bool
    depth: str  # how much was read, as the verb that made it says
    detail: str = ""
    made_at: datetime | None = None


class AuditOutcome(StrEnum):
    ASKED = "asked"  # before an effect outside of the store
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class AuditEntry:
    number: int
    at: datetime
    who: str
    verb: str
    subject: str
    outcome: AuditOutcome
    processes: tuple[ProcessId, ...]
    detail: str


@dataclass(frozen=True, kw_only=True)
class Notice:
    """Something to tell a target; sent at least once, always with the same id."""

    id: str
    target: str
    name: str
    process_id: ProcessId
    body: str
    made_at: datetime | None = None
    attempts: int = 0
    not_before: datetime | None = None
    ended_at: datetime | None = None
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """A target was notified of a failure, and not yet of its end."""

    subject: str  # kind, source, destination and partitions of the work
    state: str
    process_id: ProcessId
    made_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Action:
    """One accepted line of `POST /v1/actions`."""

    id: str
    who: str
    role: Role
    command: str
    number: int = 0
    made_at: datetime | None = None
    claimed_until: datetime | None = None
    done_at: datetime | None = None
    processes: tuple[ProcessId, ...] = ()
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class ActionQuery:
    """Newest first."""

    ids: tuple[str, ...] = ()  # none means all
    before: int | None = None  # the number of the last one seen
    limit: int = 200


@dataclass(frozen=True, kw_only=True)
class FeedState:
    """Positions are given to committed events in order, without a gap, and never again."""

    store_id: str  # random, made with the store
    last_position: int  # of the newest numbered event, forgotten ones included
    forgotten_position: int  # events up to here may be gone


@dataclass(frozen=True, kw_only=True)
class Tally:
    kind: str
    state: ProcessState
    count: int
    oldest_at: datetime  # when the oldest of them was submitted


@dataclass(frozen=True, kw_only=True)
class Latest:
    """When work of a kind between two places last ended, and was last proven."""

    kind: str
    source: str
    destination: str
    completed_at: datetime | None = None
    failed_at: datetime | None = None
    proven_at: datetime | None = None

    @property
    def table(self) -> str:
        """What the work is about: of a restore that is what it makes, of a drill the schedule that asked for it, and not
        the backup, whose names never end."""
        return self.destination if self.kind in ("restore", "drill") else self.source


@dataclass(frozen=True, kw_only=True)
class Totals:
    at: datetime
    tallies: tuple[Tally, ...] = ()
    tasks_running: int = 0  # of live processes, as is `tasks_waiting`
    tasks_waiting: int = 0
    unknown_outcomes: int = 0
    pins_held: int = 0
    oldest_pin_at: datetime | None = None
    notices_waiting: int = 0
    latest: tuple[Latest, ...] = ()  # newest activity first
