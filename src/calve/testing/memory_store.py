"""The store in memory: the same obligations, no disk. For tests that run thousands of lives.

One lock around every call stands for the database's transaction; the rows themselves are
frozen, so a reader can never see half a change.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from calve.control.budget import halting
from calve.model.access import Asked, Halt
from calve.model.apply import Applied, apply_change, handed_back, handed_back_message, releasing
from calve.model.change import (
    ADOPTED,
    CANCEL_REQUESTED,
    HANDED_BACK,
    LEASED,
    PIN_NOT_RELEASED,
    PIN_RELEASED,
    SUBMITTED,
    TAKEN_OVER,
    Change,
    NewEvent,
    WritePlan,
)
from calve.model.errors import ErrorInfo
from calve.model.process import (
    Breaker,
    Event,
    Lease,
    NewProcess,
    Pin,
    Process,
    ProcessId,
    Start,
    Starts,
    Worker,
    WorkerId,
)
from calve.model.reach import first_conflict, kinds_in, reaches, sources_in
from calve.model.refusals import (
    already_started,
    conflict,
    illegal_transition,
    locked,
    no_such_pin,
    not_ended,
    over_limit,
)
from calve.model.seen import Attempt, Ending
from calve.model.states import (
    PIN_TRANSITIONS,
    PROCESS_LIVE,
    PROCESS_TERMINAL,
    TASK_LIVE,
    Leftovers,
    PinState,
    TaskState,
    may_move,
)
from calve.testing.memory_reader import MemoryReader, is_due


class MemoryStore(MemoryReader):
    def submit(
        self,
        new: Sequence[NewProcess],
        *,
        joined: Sequence[ProcessId] = (),
        asked: Asked | None = None,
        starts: Starts | None = None,
    ) -> list[Process]:
        with self._transaction:
            self._check_key(asked)
            fresh = {item.id: item for item in new if item.id not in self.rows.processes}
            self._check_locks(fresh)
            self._check_retries(fresh.values())
            if starts is not None:
                self._start(
                    replace(starts, items=tuple(one for one in starts.items if one.process_id in fresh))
                )
            for item in fresh.values():
                self._insert(item)
            if fresh:
                self._note(asked, list(fresh))
            self._take_key(asked, [*joined, *(item.id for item in new)])
            return [self.rows.processes[item.id] for item in new]

    def _start(self, given: Starts) -> None:
        for item in given.items:
            if any(_start_key(item) == _start_key(other) for other in self.rows.starts):
                raise already_started(item)
        for policy, day in {(item.policy, item.day) for item in given.items}:
            mine = [item for item in given.items if (item.policy, item.day) == (policy, day)]
            live, spent = self.started(policy, day)
            if live + len(mine) > given.at_once:
                raise over_limit(policy, "partitions_per_run")
            if given.bytes_a_day and spent + sum(item.bytes for item in mine) > given.bytes_a_day:
                raise over_limit(policy, "bytes_per_day")
        self.rows.starts += [replace(item, made_at=self.now()) for item in given.items]

    def _check_locks(self, new: Mapping[ProcessId, NewProcess]) -> None:
        wanted = [(lock.name, item.id) for item in new.values() for lock in item.locks]
        met = first_conflict(wanted, self.rows.locks.items())
        if met is not None:
            _, holder = met
            raise locked(new.get(holder) or self.rows.processes[holder])

    def _check_retries(self, new: Iterable[NewProcess]) -> None:
        for item in new:
            if item.retry_of is not None:
                old = self.process(item.retry_of)
                if old.state not in PROCESS_TERMINAL:
                    raise not_ended(old)

    def _insert(self, new: NewProcess) -> None:
        now = self.now()
        old = self.rows.processes[new.retry_of] if new.retry_of else None
        adopted = old is not None and old.leftovers is Leftovers.KEPT
        if old is not None and adopted:
            self.rows.processes[old.id] = replace(
                old, version=old.version + 1, leftovers=Leftovers.ADOPTED, cleanup_at=None
            )
            self._record(old.id, ADOPTED, f"by {new.id}")
        self.rows.processes[new.id] = new.accepted(adopted=adopted, now=now)
        self.rows.locks |= {lock.name: new.id for lock in new.locks}
        self._record(new.id, SUBMITTED, str(new))

    def _record(self, process_id: ProcessId, name: str, message: str) -> None:
        self.rows.last_event += 1
        event = Event(
            process_id=process_id, at=self.now(), name=name, message=message, number=self.rows.last_event
        )
        self.rows.events[process_id].append(event)

    def request_cancel(self, process_id: ProcessId, *, asked: Asked | None = None) -> Process:
        with self._transaction:
            row = self.process(process_id)
            if row.state in PROCESS_TERMINAL or row.cancel_requested:
                return row
            row = replace(row, version=row.version + 1, cancel_requested=True)
            self.rows.processes[row.id] = row
            self._record(row.id, CANCEL_REQUESTED, f"while {row.state}")
            self._note(asked, [row.id])
            return row

    def claim(
        self,
        worker: WorkerId,
        reach: frozenset[str],
        *,
        lease_seconds: float,
        limit: int,
        closed_lanes: frozenset[str] = frozenset(),
        only: frozenset[ProcessId] | None = None,
    ) -> list[Process]:
        with self._transaction:
            now = self.now()
            rows = self.rows.processes.values()
            held = [row for row in rows if row.owner == worker]
            halts = self.halts()
            free = [row for row in rows if _claimable(row, worker, reach, closed_lanes, halts, now)]
            working = [row for row in rows if row.state in PROCESS_LIVE and _leased(row, now)]
            chosen = [row for row in _in_turn(working, free) if only is None or row.id in only]
            taken = [self._take(row, worker, now, lease_seconds) for row in chosen[:limit]]
            return held + taken

    def _take(self, row: Process, worker: WorkerId, now: datetime, lease_seconds: float) -> Process:
        taken = replace(
            row, owner=worker, fence=row.fence + 1, lease_until=now + timedelta(seconds=lease_seconds)
        )
        self.rows.processes[row.id] = taken
        if row.owner is not None:
            message = f"by worker {worker}, fence {taken.fence}; the lease of {row.owner} ran out"
            self._record(row.id, TAKEN_OVER, message)
        elif taken.fence == 1:
            self._record(row.id, LEASED, f"by worker {worker}")
        return taken

    def renew(self, worker: WorkerId, *, lease_seconds: float) -> frozenset[ProcessId]:
        with self._transaction:
            until = self.now() + timedelta(seconds=lease_seconds)
            held = [row for row in self.rows.processes.values() if row.owner == worker]
            for row in held:
                self.rows.processes[row.id] = replace(row, lease_until=until)
            return frozenset(row.id for row in held)

    def yield_(self, lease: Lease) -> None:
        with self._transaction:
            row = self.rows.processes.get(lease.process_id)
            if row is not None and (row.owner, row.fence) == (lease.worker, lease.fence):
                self.rows.processes[row.id] = replace(row, owner=None, lease_until=None)

    def apply(self, lease: Lease, change: Change) -> Process:
        with self._transaction:
            row = self.process(lease.process_id)
            tasks = self.rows.tasks[row.id]
            applied = apply_change(row, lease, change, tasks=tasks, pins=self.rows.pins, now=self.now())
            for task in applied.new_tasks:
                if task.number in tasks:
                    raise conflict(row.id, f"it has a task {task.number} already")
            announced = self._apply_tier(row, change) if change.of_tier else []
            self._write(applied, change, lease)
            for event in announced:
                self._record_new(row.id, event)
            return applied.process

    def _write(self, applied: Applied, change: Change, lease: Lease) -> None:
        row = applied.process
        self.rows.processes[row.id] = row
        if plan := change.one(WritePlan):
            self.rows.plans[row.id] = plan.plan
        self.rows.tasks[row.id] |= {task.number: task for task in applied.new_tasks + applied.tasks}
        self.rows.pins |= {pin.name: pin for pin in applied.new_pins + applied.pins}
        self._add_attempts(applied.attempts)
        if applied.ends:
            self._end(row, lease)
        if applied.frees_locks:
            self.rows.locks = {name: held for name, held in self.rows.locks.items() if held != row.id}
        if applied.hands_back and row.retry_of is not None:
            self._hand_back(self.rows.processes[row.retry_of], row, change)
        for event in applied.events:
            self._record_new(row.id, event)

    def _record_new(self, process_id: ProcessId, event: NewEvent) -> None:
        self._record(process_id, event.name, event.message)

    def _end(self, row: Process, lease: Lease) -> None:
        tasks = self.rows.tasks[row.id]
        self._add_attempts(
            [
                Attempt(
                    process_id=row.id,
                    number=task.number,
                    attempt=task.attempt,
                    started_at=task.started_at,
                    ended_at=self.now(),
                    ending=Ending.ENDED,
                    worker=lease.worker if task.fence == lease.fence else "",
                )
                for task in tasks.values()
                if task.state is TaskState.RUNNING and task.started_at is not None
            ]
        )
        for task in list(tasks.values()):
            if task.state in TASK_LIVE:
                tasks[task.number] = replace(
                    task, state=TaskState.CANCELLED, finished_at=row.finished_at, not_before=None
                )
        for pin in list(self.rows.pins.values()):
            if pin.process_id == row.id and may_move(PIN_TRANSITIONS, pin.state, PinState.RELEASING):
                self.rows.pins[pin.name] = releasing(pin)

    def _hand_back(self, old: Process, retry: Process, change: Change) -> None:
        if old.leftovers is Leftovers.ADOPTED:
            self.rows.processes[old.id] = handed_back(old, change, self.now())
            self._record(old.id, HANDED_BACK, handed_back_message(retry, change))

    def claim_releases(
        self, worker: WorkerId, reach: frozenset[str], *, limit: int, lease_seconds: float
    ) -> list[Pin]:
        del worker  # hidden from everybody for a while, its claimer too: a release may be made twice
        with self._transaction:
            now = self.now()
            kinds = kinds_in(reach)
            due = [
                pin
                for pin in self.pins(states=frozenset({PinState.RELEASING}))
                if is_due(pin.not_before, now)
                and pin.source in sources_in(reach)
                and (kinds is None or self.rows.processes[pin.process_id].kind in kinds)
            ]
            hidden_until = now + timedelta(seconds=lease_seconds)
            claimed = [replace(pin, not_before=hidden_until) for pin in due[:limit]]
            self.rows.pins |= {pin.name: pin for pin in claimed}
            return claimed

    def renew_releases(self, names: Sequence[str], lease_seconds: float) -> None:
        with self._transaction:
            until = self.now() + timedelta(seconds=lease_seconds)
            for pin in [self.rows.pins[name] for name in names if name in self.rows.pins]:
                if pin.state is PinState.RELEASING and pin.not_before is not None and pin.not_before < until:
                    self.rows.pins[pin.name] = replace(pin, not_before=until)

    def record_release(self, name: str, error: ErrorInfo | None, retry_seconds: float = 0.0) -> None:
        with self._transaction:
            pin = self.rows.pins.get(name)
            if pin is None:
                raise no_such_pin(name)
            if pin.state is PinState.RELEASED:
                return
            if pin.state is not PinState.RELEASING:
                raise illegal_transition(pin.process_id, f"pin {name!r} is {pin.state}, not RELEASING")
            if error is None:
                self.rows.pins[name] = replace(pin, state=PinState.RELEASED, not_before=None, error=None)
                self._record(pin.process_id, PIN_RELEASED, name)
                return
            self.rows.pins[name] = replace(
                pin,
                release_attempts=pin.release_attempts + 1,
                not_before=self.now() + timedelta(seconds=retry_seconds),
                error=error,
            )
            self._record(pin.process_id, PIN_NOT_RELEASED, f"{name}: {error.message}")

    def heartbeat(self, worker: Worker) -> None:
        with self._transaction:
            now = self.now()
            known = self.rows.workers.get(worker.id)
            started_at = known.started_at if known else now
            self.rows.workers[worker.id] = replace(worker, started_at=started_at, heartbeat_at=now)

    def forget_worker(self, worker: WorkerId) -> None:
        with self._transaction:
            self.rows.workers.pop(worker, None)

    def trip(self, service: str, reason: str, probe_seconds: float) -> None:
        with self._transaction:
            now = self.now()
            known = self.rows.breakers.get(service)
            self.rows.breakers[service] = Breaker(
                service=service,
                reason=reason,
                opened_at=known.opened_at if known else now,
                probe_at=now + timedelta(seconds=probe_seconds),
                probes=known.probes if known else 0,
            )
            self._open_outage(service, reason)

    def claim_probe(self, service: str, probe_seconds: float) -> bool:
        with self._transaction:
            now = self.now()
            breaker = self.rows.breakers.get(service)
            if breaker is None or breaker.probe_at > now:
                return False
            self.rows.breakers[service] = replace(
                breaker, probe_at=now + timedelta(seconds=probe_seconds), probes=breaker.probes + 1
            )
            return True

    def close_breaker(self, service: str) -> None:
        with self._transaction:
            self.rows.breakers.pop(service, None)
            self._close_outage(service)

    def forget_history(self, *, days: float, after: int, limit: int) -> int:
        with self._transaction:
            before = self.now() - timedelta(days=days)
            events = [event for event in self._all_events() if event.number > after][:limit]
            old = [event for event in events if event.at < before]
            ended = {event.process_id for event in old if _is_history(self.process(event.process_id), before)}
            seen = old[-1].number if old else 0
            for process_id in ended:
                self._seen.attempts.pop(process_id, None)
                gone = [event for event in self.rows.events[process_id] if after < event.number <= seen]
                self.rows.events[process_id] = [
                    event for event in self.rows.events[process_id] if event not in gone
                ]
                self._forgotten(gone)
            self.rows.pins = {
                name: pin
                for name, pin in self.rows.pins.items()
                if pin.process_id not in ended or pin.state is not PinState.RELEASED
            }
            return seen if len(old) == limit else 0

    def close(self) -> None:
        """Nothing to give back; the SQL stores have connections."""


def _start_key(start: Start) -> tuple[object, ...]:
    return start.identity, start.destination, start.partition, start.action, start.content, start.attempt


def _is_history(row: Process, before: datetime) -> bool:
    return row.finished_at is not None and row.finished_at < before and row.cleanup_at is None


def _leased(row: Process, now: datetime) -> bool:
    return row.owner is not None and row.lease_until is not None and row.lease_until > now


def _claimable(
    row: Process,
    worker: WorkerId,
    reach: frozenset[str],
    closed_lanes: frozenset[str],
    halts: Sequence[Halt],
    now: datetime,
) -> bool:
    if row.owner == worker or _leased(row, now) or not reaches(reach, row):
        return False
    if row.state in PROCESS_TERMINAL:
        wanted = row.cleanup_at is not None and row.cleanup_at <= now
        urgent = False
    else:
        wanted = True
        urgent = row.cancel_requested or row.deadline_at <= now
    held = row.lane in closed_lanes or halting(row, halts) is not None
    return wanted and (urgent or (is_due(row.not_before, now) and not held))


def _in_turn(working: Iterable[Process], free: Iterable[Process]) -> list[Process]:
    """By priority; among equals, lanes in turn: a lane's first before any lane's second. What
    somebody is working on has had its turn, so a busy lane comes later."""
    turns = Counter((row.priority, row.lane) for row in working)
    ranked: list[tuple[int, int, Process]] = []
    for row in free:  # by age
        turns[row.priority, row.lane] += 1
        ranked.append((-row.priority, turns[row.priority, row.lane], row))
    return [row for _, _, row in sorted(ranked, key=lambda entry: entry[:2])]
