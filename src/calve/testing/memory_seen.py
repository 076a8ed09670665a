"""Attempts, outages, sightings and sessions in memory: the obligations of `control.seen`."""

import threading
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from calve.model.errors import Outcome
from calve.model.process import Breaker, Event, Pin, Process, ProcessId, Task
from calve.model.refusals import no_such_task
from calve.model.seen import Attempt, AttemptCounts, Outage, ProcessEnd, Sighting, WebSession, WorkDone
from calve.model.states import PROCESS_LIVE, PinState, ProcessState, TaskState

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SAME_OUTAGE = timedelta(minutes=1)


@dataclass
class KeptSeen:
    attempts: dict[ProcessId, list[Attempt]] = field(default_factory=dict)
    outages: list[Outage] = field(default_factory=list)
    sightings: dict[tuple[str, str], Sighting] = field(default_factory=dict)
    bodies: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    sessions: dict[str, WebSession] = field(default_factory=dict)


class MemorySeen:
    """Mixed into `MemoryStore`, which has the processes, the tasks, the events and the lock."""

    _transaction: threading.RLock
    _seen: KeptSeen

    @abstractmethod
    def now(self) -> datetime: ...

    @abstractmethod
    def _all_processes(self) -> Iterable[Process]: ...

    @abstractmethod
    def plan(self, process_id: ProcessId) -> str | None: ...

    @abstractmethod
    def tasks(
        self, process_id: ProcessId, states: frozenset[TaskState] = frozenset(), limit: int | None = None
    ) -> list[Task]: ...

    @abstractmethod
    def events(self, process_id: ProcessId, after: int = 0, limit: int = 1000) -> list[Event]: ...

    @abstractmethod
    def pins(
        self, process_id: ProcessId | None = None, states: frozenset[PinState] = frozenset()
    ) -> list[Pin]: ...

    @abstractmethod
    def breakers(self) -> list[Breaker]: ...

    # -- attempts, tasks, events --------------------------------------------------------------------

    def _add_attempts(self, attempts: Sequence[Attempt]) -> None:
        for one in attempts:
            self._seen.attempts.setdefault(one.process_id, []).append(one)

    def attempt_counts(self, process_id: ProcessId) -> AttemptCounts:
        found = self.attempts(process_id, limit=1_000_000)
        return AttemptCounts(
            count=len(found),
            failed=sum(bool(one.code) for one in found),
            first_at=min((one.started_at for one in found), default=None),
            last_at=max((one.ended_at for one in found), default=None),
        )

    def attempts(
        self, process_id: ProcessId, *, every: int = 1, after: int = -1, limit: int = 1000
    ) -> list[Attempt]:
        with self._transaction:
            found = [
                one
                for one in self._seen.attempts.get(process_id, [])
                if one.number % every == 0 and one.number > after
            ]
        return sorted(found, key=lambda one: (one.number, one.attempt))[:limit]

    def slowest_attempts(self, process_id: ProcessId, limit: int) -> list[Attempt]:
        found = self.attempts(process_id, limit=1_000_000)
        return sorted(found, key=lambda one: (one.started_at - one.ended_at, one.number))[:limit]

    def failed_attempts(self, since: datetime, limit: int) -> list[tuple[int, str, int]]:
        with self._transaction:
            found = [
                (one.ended_at, one.code)
                for of in self._seen.attempts.values()
                for one in of
                if one.code and one.ended_at >= since
            ]
        newest = sorted(found, key=lambda one: one[0], reverse=True)[:limit]
        counts = Counter(((at - _EPOCH).days, code) for at, code in newest)
        return [(day, code, count) for (day, code), count in sorted(counts.items())]

    def task_page(
        self,
        process_id: ProcessId,
        *,
        states: frozenset[TaskState] = frozenset(),
        after: int = -1,
        limit: int = 100,
    ) -> list[Task]:
        found = [task for task in self.tasks(process_id, states) if task.number > after]
        return [replace(task, spec="", receipt="") for task in found[:limit]]

    def task(self, process_id: ProcessId, number: int) -> Task:
        for task in self.tasks(process_id):
            if task.number == number:
                return task
        raise no_such_task(process_id, number)

    def newest_events(
        self, process_id: ProcessId, *, before: int | None = None, limit: int = 50
    ) -> list[Event]:
        found = self.events(process_id, limit=1_000_000)
        return [one for one in reversed(found) if before is None or one.number < before][:limit]

    def plan_size(self, process_id: ProcessId) -> int | None:
        plan = self.plan(process_id)
        return None if plan is None else len(plan)

    # -- outages and ended work ---------------------------------------------------------------------

    def _open_outage(self, service: str, reason: str) -> None:
        kept = self._seen.outages
        last = next((one for one in reversed(kept) if one.service == service), None)
        if last is not None and last.closed_at is None:
            return
        if last is not None and last.closed_at is not None and last.closed_at > self.now() - _SAME_OUTAGE:
            kept[kept.index(last)] = replace(last, closed_at=None)
        else:
            kept.append(Outage(service=service, reason=reason, opened_at=self.now()))

    def _close_outage(self, service: str) -> None:
        self._seen.outages = [
            replace(one, closed_at=self.now()) if one.service == service and one.closed_at is None else one
            for one in self._seen.outages
        ]

    def outages(self, since: datetime, limit: int = 1000) -> list[Outage]:
        with self._transaction:
            found = [one for one in self._seen.outages if one.closed_at is None or one.closed_at >= since]
        return sorted(found, key=lambda one: one.opened_at, reverse=True)[:limit]

    def ended(self, since: datetime, *, failed: bool = False, limit: int = 200) -> list[Process]:
        with self._transaction:
            found = [
                (row.finished_at, row)
                for row in self._all_processes()
                if row.finished_at is not None
                and row.finished_at >= since
                and (not failed or row.state is ProcessState.FAILED)
            ]
        return [row for _, row in sorted(found, key=lambda one: one[0], reverse=True)][:limit]

    def ends(
        self,
        since: datetime,
        *,
        state: ProcessState | None = None,
        kind: str = "",
        source: str = "",
        limit: int = 1000,
    ) -> list[ProcessEnd]:
        return [
            ProcessEnd(
                process_id=row.id,
                kind=row.kind,
                source=row.source,
                destination=row.destination,
                partitions=row.partitions,
                state=row.state,
                finished_at=row.finished_at,
                code=row.error.code if row.error else "",
            )
            for row in self.ended(since, limit=1_000_000)
            if row.finished_at
            and state in (None, row.state)
            and kind in ("", row.kind)
            and source in ("", row.source)
        ][:limit]

    def work_done(self, since: datetime, *, piece_seconds: int) -> list[WorkDone]:
        by: dict[tuple[str, str, str, int], list[Process]] = {}
        for row in self.ended(since, limit=1_000_000):
            assert row.finished_at is not None
            piece = (row.finished_at - _EPOCH) // timedelta(seconds=piece_seconds)
            by.setdefault((row.kind, row.source, row.destination, piece), []).append(row)
        found = []
        for (kind, source, destination, piece), rows in by.items():
            completed = [row for row in rows if row.state is ProcessState.COMPLETED]
            found.append(
                WorkDone(
                    kind=kind,
                    source=source,
                    destination=destination,
                    piece=piece,
                    completed=len(completed),
                    failed=sum(row.state is ProcessState.FAILED for row in rows),
                    rows=sum(row.rows for row in completed),
                    bytes=sum(row.bytes for row in completed),
                )
            )
        return found

    def needed(self) -> frozenset[frozenset[str]]:
        with self._transaction:
            live = [row for row in self._all_processes() if row.state in PROCESS_LIVE]
        return frozenset(frozenset(row.needs) for row in live)

    def unknown_outcomes(self, limit: int) -> list[Process]:
        with self._transaction:
            found = [
                (row.cleanup_at, row)
                for row in self._all_processes()
                if row.cleanup_at is not None and row.error and row.error.outcome is Outcome.UNKNOWN
            ]
        return [row for _, row in sorted(found, key=lambda one: one[0])][:limit]

    def retried(self, ids: Sequence[ProcessId]) -> dict[ProcessId, ProcessId]:
        with self._transaction:
            return {row.retry_of: row.id for row in self._all_processes() if row.retry_of in ids}  # type: ignore[misc]

    def old_pins(self, before: datetime, limit: int) -> list[Pin]:
        held = self.pins(states=frozenset(PinState) - {PinState.RELEASED})
        return [pin for pin in held if pin.created_at and pin.created_at < before][:limit]

    def ids_from(self, prefix: str, limit: int) -> list[Process]:
        with self._transaction:
            found = [row for row in self._all_processes() if row.id.startswith(prefix)]
        return sorted(found, key=lambda row: row.id)[:limit]

    def with_partition(self, text: str, *, among: int, limit: int) -> list[Process]:
        with self._transaction:
            newest = list(self._all_processes())[-among:]
        return [row for row in reversed(newest) if text in row.partitions][:limit]

    # -- sightings ----------------------------------------------------------------------------------

    def claim_look(self, subject: str, what: str, *, again_seconds: float, lease_seconds: float) -> bool:
        with self._transaction:
            now = self.now()
            known = self._seen.sightings.get((subject, what), Sighting(subject=subject, what=what))
            early = known.tried_at is not None and known.tried_at > now - timedelta(seconds=again_seconds)
            if early or (known.looked_until is not None and known.looked_until > now):
                return False
            until = now + timedelta(seconds=lease_seconds)
            self._seen.sightings[subject, what] = replace(known, looked_until=until)
            return True

    def put_sighting(self, sighting: Sighting, body: Sequence[str] = ()) -> None:
        with self._transaction:
            key, now = (sighting.subject, sighting.what), self.now()
            self._seen.bodies[key] = list(body)
            self._seen.sightings[key] = replace(
                sighting, seen_at=now, tried_at=now, looked_until=None, error="", pieces=len(body)
            )

    def fail_look(self, subject: str, what: str, error: str) -> None:
        with self._transaction:
            known = self._seen.sightings.get((subject, what))
            if known is not None:
                self._seen.sightings[subject, what] = replace(
                    known, tried_at=self.now(), looked_until=None, error=error
                )

    def sighting(self, subject: str, what: str) -> Sighting | None:
        with self._transaction:
            return self._seen.sightings.get((subject, what))

    def sightings(self, what: str, *, after: datetime | None = None, limit: int = 1000) -> list[Sighting]:
        with self._transaction:
            found = [
                (one.tried_at or _EPOCH, one.subject, one)
                for one in self._seen.sightings.values()
                if what in ("", one.what)
                and (after is None or (one.tried_at is not None and one.tried_at > after))
            ]
        return [one for _, _, one in sorted(found, key=lambda one: one[:2])][:limit]

    def sightings_of(self, what: str, subjects: Sequence[str]) -> list[Sighting]:
        return [one for one in self.sightings(what, limit=1_000_000) if one.subject in subjects]

    def sighting_body(self, subject: str, what: str, *, first: int = 0, limit: int = 1) -> list[str]:
        with self._transaction:
            return self._seen.bodies.get((subject, what), [])[first : first + limit]

    # -- sessions -----------------------------------------------------------------------------------

    def put_session(self, session: WebSession, *, seconds: float) -> None:
        with self._transaction:
            now = self.now()
            self._seen.sessions[session.hash] = replace(
                session, made_at=now, expires_at=now + timedelta(seconds=seconds)
            )

    def session(self, hash: str) -> WebSession | None:
        return next((one for one in self.sessions() if one.hash == hash), None)

    def sessions(self) -> list[WebSession]:
        with self._transaction:
            now = self.now()
            found = [one for one in self._seen.sessions.values() if one.expires_at and one.expires_at > now]
        return sorted(found, key=lambda one: one.made_at or _EPOCH, reverse=True)

    def forget_session(self, hash: str) -> None:
        with self._transaction:
            self._seen.sessions.pop(hash, None)

    def _forget_seen(self, limit: int) -> int:
        """The most that was deleted of one kind."""
        kept, now = self._seen, self.now()
        sessions = [key for key, one in kept.sessions.items() if one.expires_at and one.expires_at < now]
        long_ago, month = now - timedelta(days=90), now - timedelta(days=30)
        over = [one for one in kept.outages if one.closed_at is not None and one.closed_at < long_ago]
        unseen = [key for key, one in kept.sightings.items() if one.tried_at and one.tried_at < month]
        for key in sessions[:limit]:
            del kept.sessions[key]
        for pair in unseen[:limit]:
            del kept.sightings[pair]
            kept.bodies.pop(pair, None)
        kept.outages = [one for one in kept.outages if one not in over[:limit]]
        return max(len(some[:limit]) for some in (sessions, over, unseen))
