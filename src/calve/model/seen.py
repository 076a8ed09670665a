"""What is kept so that people can see: how attempts spent their time, when services were down, what was last
found outside, and who is signed in. Values without methods; nothing is decided by them.

Times are the store's; where a value is given to a store that sets the time itself, it may be None.
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from calve.model.access import Role
from calve.model.process import ProcessId
from calve.model.states import ProcessState

RELEASED = "released"  # what a sighting is of: released rows of a lake table, counted again
PHASES = ("read", "write", "upload")  # of an attempt; the rest of its time it waited


class Ending(StrEnum):
    DONE = "done"
    AGAIN = "again"  # it failed and used budget; the task is tried again
    FREE = "free"  # the same, without using budget
    FAILED = "failed"  # and the task with it
    ENDED = "ended"  # the process ended while it ran


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One try at a task, once it has ended. The milliseconds are the executor's and do not overlap; None: not
    measured, because it failed, or was run by a version that did not measure."""

    process_id: ProcessId
    number: int
    attempt: int
    started_at: datetime
    ended_at: datetime
    ending: Ending
    code: str = ""  # of its error
    worker: str = ""  # "": not the one that recorded its end
    rows: int = 0
    bytes: int = 0
    read_ms: int | None = None
    write_ms: int | None = None
    upload_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class ProcessEnd:
    """How a process ended: the part of it that is read of many."""

    process_id: ProcessId
    kind: str
    source: str
    destination: str
    partitions: tuple[str, ...]
    state: ProcessState
    finished_at: datetime
    code: str = ""  # of its error


@dataclass(frozen=True, kw_only=True)
class Outage:
    """A service was down. One that comes back for less than a minute is one outage."""

    service: str
    reason: str
    opened_at: datetime
    closed_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """What was last found outside about a subject. A failed look keeps what the last good one found."""

    subject: str
    what: str
    summary: str = ""  # JSON, small
    seen_by: str = ""
    seen_at: datetime | None = None  # None: no look has succeeded
    tried_at: datetime | None = None
    looked_until: datetime | None = None  # somebody is looking
    error: str = ""  # of the last look
    pieces: int = 0  # of the body


@dataclass(frozen=True, kw_only=True)
class WebSession:
    """Someone signed in with a token. `hash` is that of the cookie's secret; `token_hash` is the token's at the
    time: a session ends with its token."""

    hash: str = field(repr=False)
    token_id: str
    token_hash: str = field(repr=False)
    role: Role  # at most the token's
    made_at: datetime | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class AttemptCounts:
    """Of one process."""

    count: int = 0
    failed: int = 0
    first_at: datetime | None = None
    last_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class WorkDone:
    """Processes of a kind between two places that ended within one piece of time, added up."""

    kind: str
    source: str
    destination: str
    piece: int  # how many of them since 1970
    completed: int
    failed: int
    rows: int  # of those that completed, as `bytes`
    bytes: int
