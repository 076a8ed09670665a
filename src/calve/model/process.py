"""Rows as the store keeps them: processes, tasks, pins, leases, workers, breakers, events.

Times are aware UTC and come from the store's clock, never from this machine's.

Identifiers. Random, so that stores which know nothing of each other never collide,
and short enough to type: a unique prefix is accepted wherever a person gives one.
"""

import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NewType

from calve.model.errors import ErrorInfo
from calve.model.states import Leftovers, PinState, ProcessState, TaskState

ProcessId = NewType("ProcessId", str)
BatchId = NewType("BatchId", str)
WorkerId = NewType("WorkerId", str)

_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"  # 32 signs, none mistaken for another
BATCH_PREFIX = "batch-"


def random_text(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def new_process_id() -> ProcessId:
    """65 random bits: it names tags, files and freezes in tables that other stores use too."""
    return ProcessId(random_text(13))


def new_batch_id() -> BatchId:
    return BatchId(BATCH_PREFIX + random_text(8))


def new_worker_id(host: str, pid: int) -> WorkerId:
    """One incarnation of a worker: a restarted worker is another one, and owns nothing."""
    return WorkerId(f"{host}-{pid}-{random_text(6)}")


@dataclass(frozen=True, kw_only=True)
class Lock:
    """A name that at most one live process may hold, or a piece of one: see `model.locks`."""

    name: str
    partition: str = ""


@dataclass(frozen=True, kw_only=True)
class NewProcess:
    """What a submission says. Accepting it never depends on free slots."""

    id: ProcessId
    kind: str
    source: str  # "main:db.events", as a person reads it
    destination: str  # "lake.ns.events", as a person reads it
    lane: str  # the destination service: slots and leases are shared fairly between lanes
    needs: tuple[str, ...]  # what a worker's configuration must reach: "source:main", "catalog:lake"
    request: str  # JSON, what was asked for; read by the kind
    partitions: tuple[str, ...] = ()
    locks: tuple[Lock, ...] = ()
    batch: BatchId | None = None
    priority: int = 0  # higher first
    deadline_seconds: float = 86_400.0
    retry_of: ProcessId | None = None  # its leftovers are adopted, if they still stand

    def accepted(self, *, adopted: bool, now: datetime) -> "Process":
        """The row that it becomes."""
        return Process(
            id=self.id,
            kind=self.kind,
            state=ProcessState.PENDING,
            version=1,
            source=self.source,
            destination=self.destination,
            lane=self.lane,
            needs=self.needs,
            request=self.request,
            partitions=self.partitions,
            locks=self.locks,
            batch=self.batch,
            priority=self.priority,
            retry_of=self.retry_of,
            adopted=adopted,
            created_at=now,
            deadline_at=now + timedelta(seconds=self.deadline_seconds),
        )

    def __str__(self) -> str:
        retry = f", a retry of {self.retry_of}" if self.retry_of else ""
        return f"{self.kind} of {self.source} to {self.destination}{retry}"


@dataclass(frozen=True, kw_only=True)
class TaskCounts:
    total: int = 0
    done: int = 0
    failed: int = 0
    running: int = 0


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process as it stands in the store."""

    id: ProcessId
    kind: str
    state: ProcessState
    version: int  # raised by every change
    source: str
    destination: str
    lane: str
    needs: tuple[str, ...]
    request: str
    partitions: tuple[str, ...]
    batch: BatchId | None
    priority: int
    retry_of: ProcessId | None
    adopted: bool  # the leftovers of `retry_of` were won by this process
    created_at: datetime
    deadline_at: datetime
    locks: tuple[Lock, ...] = ()  # as submitted, also after they were freed: a retry asks for the same
    finished_at: datetime | None = None
    cancel_requested: bool = False
    # the lease
    owner: WorkerId | None = None
    fence: int = 0
    lease_until: datetime | None = None
    # budgets; a step counts itself before it is tried
    planned: bool = False
    plan_attempts: int = 0
    publish_attempts: int = 0
    fence_attempts: int = 0
    not_before: datetime | None = None  # backing off until then
    publish_sent: bool = False  # a commit may have been sent: ending needs the fence
    publish_note: str = ""  # JSON of the kind: what to look for, noted before the send
    tasks: TaskCounts = field(default_factory=TaskCounts)
    # the result
    rows: int = 0
    files: int = 0
    bytes: int = 0
    snapshot_id: str | None = None
    result: str = ""  # JSON of the kind
    error: ErrorInfo | None = None  # of the end, or the last one met on the way
    leftovers: Leftovers = Leftovers.NONE
    cleanup_at: datetime | None = None  # a terminal process that still needs a step (undo, resolve)
    cleanup_attempts: int = 0
    damaged: str = ""  # not stored: what of its row cannot be read. Nobody works on it (T10)


@dataclass(frozen=True, kw_only=True)
class NewTask:
    number: int
    spec: str  # JSON of the kind
    adopted_receipt: str = ""  # a receipt that stands already makes it DONE at once
    rows: int = 0  # rows, files and bytes are the adopted receipt's
    files: int = 0
    bytes: int = 0
    attempts_before: int = 0  # under another plan, which the store forgot: their numbers never come again


@dataclass(frozen=True, kw_only=True)
class Task:
    process_id: ProcessId
    number: int
    state: TaskState
    attempt: int  # of the try that runs or ran; 0 before the first
    free_attempts: int = 0  # those among them that used no budget (`TaskChange.free`)
    spec: str
    fence: int = 0  # the fence under which it was started
    started_at: datetime | None = None
    finished_at: datetime | None = None
    not_before: datetime | None = None
    receipt: str = ""
    error: ErrorInfo | None = None


@dataclass(frozen=True, kw_only=True)
class Pin:
    """A journal entry: what holds, or may hold, source data for a process."""

    name: str  # unique; also the name at the source
    process_id: ProcessId
    source: str
    detail: str  # JSON of the kind: all that a release needs, also when the table is gone
    state: PinState = PinState.JOURNALED
    created_at: datetime | None = None
    not_before: datetime | None = None
    release_attempts: int = 0
    error: ErrorInfo | None = None


@dataclass(frozen=True, kw_only=True)
class Lease:
    """The right to write for a process, until another worker raises the fence."""

    process_id: ProcessId
    worker: WorkerId
    fence: int


@dataclass(frozen=True, kw_only=True)
class Granted:
    """What a cluster gives to a worker's Spark at a moment."""

    executors: int
    at_once: int  # tasks that run there beside each other

    def __str__(self) -> str:
        if not self.executors:
            return "no executor"
        executors = "1 executor" if self.executors == 1 else f"{self.executors} executors"
        return f"{executors} for {self.at_once} task{'' if self.at_once == 1 else 's'} at a time"


@dataclass(frozen=True, kw_only=True)
class Worker:
    id: WorkerId
    host: str
    reach: tuple[str, ...]
    slots: int
    started_at: datetime
    heartbeat_at: datetime
    draining: bool = False
    error: ErrorInfo | None = None
    version: str = ""  # "": 0.1.0, which did not say
    granted: Granted | None = None  # None: its Spark is local, or has not started


@dataclass(frozen=True, kw_only=True)
class Start:
    """That a policy began something with a partition. The same content is begun again only as the next attempt."""

    policy: str
    hash: str  # of the policy
    action: str
    identity: str  # of the source's table
    partition: str
    destination: str
    content: str  # a digest of what the partition held
    attempt: int  # from 1
    bytes: int
    day: str  # in the policy's zone: 2026-11-16
    process_id: ProcessId
    made_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Starts:
    """What one submission of a policy starts, and the limits that must hold when it is accepted."""

    items: tuple[Start, ...]
    at_once: int  # partitions of the policy that may be under way
    bytes_a_day: int = 0  # 0 means no limit


@dataclass(frozen=True, kw_only=True)
class GuardedTable:
    """A table by each of its names. Holds and intents of any of them meet at its guard."""

    identity: str
    uuid: str
    name: str  # as processes name it

    @property
    def subjects(self) -> tuple[str, ...]:
        """Rows that are locked, in an order that everybody keeps."""
        named = (("identity", self.identity), ("name", self.name), ("uuid", self.uuid))
        return tuple(f"{kind}:{name}" for kind, name in named if name)


@dataclass(frozen=True, kw_only=True)
class Breaker:
    """A service that is down: a lane or a source. Closed breakers have no row."""

    service: str
    reason: str
    opened_at: datetime
    probe_at: datetime
    probes: int = 0


@dataclass(frozen=True, kw_only=True)
class Event:
    """What happened, written in the transaction that made it so. For people; never read to decide."""

    process_id: ProcessId
    at: datetime
    name: str
    message: str
    number: int = 0
    position: int = 0  # in the feed of all events; 0: not numbered yet, or from before there was a feed


@dataclass(frozen=True, kw_only=True)
class ProcessQuery:
    """Which processes a person wants to see, newest first."""

    states: frozenset[ProcessState] = frozenset()
    kind: str = ""
    batch: BatchId | None = None
    source: str = ""
    destination: str = ""
    table: str = ""  # the source or the destination
    retry_of: ProcessId | None = None
    created_since: datetime | None = None
    created_before: datetime | None = None
    before: ProcessId | None = None  # the last one of the page before this one
    limit: int = 200
