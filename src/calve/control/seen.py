"""What pages need of a store beside the rest of `registry`: attempts and outages in bounded pieces, what was
last found outside, and sessions.

Docstrings are obligations, as in `registry`. No call reads more than it is asked for, however large a process is;
`tasks` is never scanned, because its rows hold receipts.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from calve.model.process import Event, Pin, Process, ProcessId, Task
from calve.model.seen import Attempt, AttemptCounts, Outage, ProcessEnd, Sighting, WebSession, WorkDone
from calve.model.states import ProcessState, TaskState


class Seen(Protocol):
    def attempt_counts(self, process_id: ProcessId) -> AttemptCounts: ...

    def attempts(
        self, process_id: ProcessId, *, every: int = 1, after: int = -1, limit: int = 1000
    ) -> list[Attempt]:
        """Of every so many-th task with a number above `after`, by number, then attempt."""

    def slowest_attempts(self, process_id: ProcessId, limit: int) -> list[Attempt]: ...  # slowest first

    def failed_attempts(self, since: datetime, limit: int) -> list[tuple[int, str, int]]:
        """How many attempts of any process failed, among so many newest of those: by day of UTC since 1970, and code."""

    def task_page(
        self,
        process_id: ProcessId,
        *,
        states: frozenset[TaskState] = frozenset(),
        after: int = -1,
        limit: int = 100,
    ) -> list[Task]:
        """By number, above `after`; without their specs and receipts."""

    def task(self, process_id: ProcessId, number: int) -> Task:
        """NotFoundError (code `task_not_found`)."""

    def newest_events(
        self, process_id: ProcessId, *, before: int | None = None, limit: int = 50
    ) -> list[Event]: ...  # newest first, with a number below `before`

    def plan_size(self, process_id: ProcessId) -> int | None:
        """Characters of the plan; None if there is none."""

    def outages(self, since: datetime, limit: int = 1000) -> list[Outage]:
        """Those that had not ended by then, newest first. One that nobody saw end is left out."""

    def ended(
        self, since: datetime, *, failed: bool = False, limit: int = 200
    ) -> list[Process]: ...  # newest end first

    def ends(
        self,
        since: datetime,
        *,
        state: ProcessState | None = None,
        kind: str = "",
        source: str = "",
        limit: int = 1000,
    ) -> list[ProcessEnd]: ...  # newest first

    def work_done(self, since: datetime, *, piece_seconds: int) -> list[WorkDone]:
        """What ended work added up to, by kind, source, destination and piece of time: 86,400 are days of UTC. Reads
        every process that ended since."""

    def needed(self) -> frozenset[frozenset[str]]:
        """What processes need that have not ended: each time the services that one needs together."""

    def unknown_outcomes(self, limit: int) -> list[Process]:
        """Ended processes that wait for a look at what they sent, the next look first."""

    def retried(self, ids: Sequence[ProcessId]) -> dict[ProcessId, ProcessId]:
        """Of those that were retried: by which process, the newest."""

    def old_pins(self, before: datetime, limit: int) -> list[Pin]:
        """Pins made before then that are not released, oldest first."""

    def ids_from(self, prefix: str, limit: int) -> list[Process]:
        """Processes whose id begins so, by id."""

    def with_partition(self, text: str, *, among: int, limit: int) -> list[Process]:
        """Of so many newest processes those that name exactly this partition, newest first."""

    # -- sightings ----------------------------------------------------------------------------------

    def claim_look(self, subject: str, what: str, *, again_seconds: float, lease_seconds: float) -> bool:
        """Whether the caller is the one to look now: nobody else is looking, and the last look, good or bad, is
        at least so old. Others are kept off for `lease_seconds`."""

    def put_sighting(self, sighting: Sighting, body: Sequence[str] = ()) -> None:
        """A look that succeeded, with its body in pieces: replaces what was there. Ends the claim."""

    def fail_look(self, subject: str, what: str, error: str) -> None:
        """A look that did not: what was found before stays. Ends the claim."""

    def sighting(self, subject: str, what: str) -> Sighting | None: ...

    def sightings(self, what: str, *, after: datetime | None = None, limit: int = 1000) -> list[Sighting]:
        """Tried after that time, oldest first; of all kinds if `what` is empty."""

    def sightings_of(self, what: str, subjects: Sequence[str]) -> list[Sighting]: ...  # in no order

    def sighting_body(self, subject: str, what: str, *, first: int = 0, limit: int = 1) -> list[str]: ...

    # -- sessions -----------------------------------------------------------------------------------

    def put_session(self, session: WebSession, *, seconds: float) -> None:
        """It ends so many seconds from now."""

    def session(self, hash: str) -> WebSession | None:
        """None if there is none, or it has ended."""

    def sessions(self) -> list[WebSession]: ...  # that have not ended, newest first

    def forget_session(self, hash: str) -> None: ...
