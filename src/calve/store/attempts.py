"""Attempts, outages and ended work, read in bounded pieces: a page costs the same whatever a process's size.

`changes` writes the attempts and `leases` the outages, each in the transaction that made them true.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Connection, Select, case, func, literal, select

from calve.model.errors import Outcome
from calve.model.process import Event, Pin, Process, ProcessId, Task
from calve.model.refusals import no_such_task
from calve.model.seen import Attempt, AttemptCounts, Ending, Outage, ProcessEnd, WorkDone
from calve.model.states import PinState, ProcessState, TaskState
from calve.store import rows
from calve.store.database import from_us, time_from_us, to_us
from calve.store.reader import SqlReader
from calve.store.rows import chunks
from calve.store.tables import attempts, breakers, events, outages, pins, plans, processes, tasks

_HEAVY = ("spec", "receipt")
_LIGHT = [literal("").label(column.name) if column.name in _HEAVY else column for column in tasks.c]
_DAY_US = 86_400_000_000
_HELD = rows.names(state for state in PinState if state is not PinState.RELEASED)


class Attempts(SqlReader):
    def attempt_counts(self, process_id: ProcessId) -> AttemptCounts:
        c = attempts.c
        failed = func.sum(case((c.code != "", 1), else_=0))
        statement = select(func.count(), failed, func.min(c.started_at), func.max(c.ended_at))
        statement = statement.where(c.process_id == process_id)
        count, bad, first, last = self._database.read(lambda connection: connection.execute(statement).one())
        return AttemptCounts(
            count=count, failed=int(bad or 0), first_at=from_us(first), last_at=from_us(last)
        )

    def attempts(
        self, process_id: ProcessId, *, every: int = 1, after: int = -1, limit: int = 1000
    ) -> list[Attempt]:
        if every == 1:
            return self._attempts(attempts_statement(process_id, after=after, limit=limit))
        # By their numbers: 1,000 seeks, where a condition on the number would read every attempt.
        last = select(func.max(attempts.c.number)).where(attempts.c.process_id == process_id)
        until = self._database.read(lambda connection: connection.execute(last).scalar())
        first = -(-(after + 1) // every) * every
        numbers = range(first, until + 1 if until is not None else 0, every)[:limit]
        found: list[Attempt] = []
        for some in chunks(numbers):
            found += self._attempts(sample_statement(process_id, some, limit - len(found)))
        return found

    def slowest_attempts(self, process_id: ProcessId, limit: int) -> list[Attempt]:
        return self._attempts(slowest_statement(process_id, limit))

    def _attempts(self, statement: Select[Any]) -> list[Attempt]:
        return self._database.read(
            lambda connection: [_attempt(row) for row in connection.execute(statement)]
        )

    def failed_attempts(self, since: datetime, limit: int) -> list[tuple[int, str, int]]:
        statement = failed_attempts_statement(since, limit)
        found = self._database.read(lambda connection: connection.execute(statement).all())
        return [(int(day), code, count) for day, code, count in found]

    def task_page(
        self,
        process_id: ProcessId,
        *,
        states: frozenset[TaskState] = frozenset(),
        after: int = -1,
        limit: int = 100,
    ) -> list[Task]:
        statement = task_page_statement(process_id, states, after, limit)
        return self._database.read(
            lambda connection: [rows.task(row) for row in connection.execute(statement).mappings()]
        )

    def task(self, process_id: ProcessId, number: int) -> Task:
        statement = select(tasks).where(tasks.c.process_id == process_id, tasks.c.number == number)
        found = self._database.read(lambda connection: connection.execute(statement).mappings().one_or_none())
        if found is None:
            raise no_such_task(process_id, number)
        return rows.task(found)

    def newest_events(
        self, process_id: ProcessId, *, before: int | None = None, limit: int = 50
    ) -> list[Event]:
        statement = newest_events_statement(process_id, before, limit)
        return self._database.read(
            lambda connection: [rows.event(row) for row in connection.execute(statement).mappings()]
        )

    def plan_size(self, process_id: ProcessId) -> int | None:
        statement = select(func.length(plans.c.plan)).where(plans.c.process_id == process_id)
        return self._database.read(lambda connection: connection.execute(statement).scalar_one_or_none())

    def outages(self, since: datetime, limit: int = 1000) -> list[Outage]:
        c = outages.c
        # An older worker closes a breaker and not its outage: its end is not known.
        down = select(breakers.c.lane).where(breakers.c.lane == c.service).exists()
        statement = (
            select(outages)
            .where((c.closed_at >= to_us(since)) | (c.closed_at.is_(None) & down))
            .order_by(c.opened_at.desc(), c.seq.desc())
            .limit(limit)
        )
        return self._database.read(
            lambda connection: [rows.value(Outage, row) for row in connection.execute(statement).mappings()]
        )

    def ended(self, since: datetime, *, failed: bool = False, limit: int = 200) -> list[Process]:
        return self._processes(ended_statement(since, failed=failed, limit=limit))

    def ends(
        self,
        since: datetime,
        *,
        state: ProcessState | None = None,
        kind: str = "",
        source: str = "",
        limit: int = 1000,
    ) -> list[ProcessEnd]:
        statement = ends_statement(since, state, limit, kind, source)
        return self._database.read(
            lambda connection: [rows.end(*row) for row in connection.execute(statement)]
        )

    def work_done(self, since: datetime, *, piece_seconds: int) -> list[WorkDone]:
        statement = work_done_statement(since, piece_seconds)
        found = self._database.read(lambda connection: connection.execute(statement).all())
        return [
            WorkDone(
                kind=kind,
                source=source,
                destination=destination,
                piece=int(piece),
                completed=int(completed),
                failed=int(failed),
                rows=int(total_rows),
                bytes=int(total_bytes),
            )
            for kind, source, destination, piece, completed, failed, total_rows, total_bytes in found
        ]

    def needed(self) -> frozenset[frozenset[str]]:
        found = self._database.read(lambda connection: connection.execute(needed_statement()).scalars().all())
        return frozenset(frozenset(rows.load_needs(text) or ()) for text in found)

    def unknown_outcomes(self, limit: int) -> list[Process]:
        c = processes.c
        unknown = c.error.contains(f'"outcome": "{Outcome.UNKNOWN.value}"')
        waiting = select(processes).where(c.cleanup_at.is_not(None), unknown)
        return self._processes(waiting.order_by(c.cleanup_at).limit(limit))

    def retried(self, ids: Sequence[ProcessId]) -> dict[ProcessId, ProcessId]:
        c = processes.c

        def work(connection: Connection) -> dict[ProcessId, ProcessId]:
            return {
                ProcessId(old): ProcessId(new)
                for some in chunks(ids)
                for old, new in connection.execute(
                    select(c.retry_of, c.id).where(c.retry_of.in_(some)).order_by(c.seq)
                )
            }

        return self._database.read(work)

    def old_pins(self, before: datetime, limit: int) -> list[Pin]:
        c = pins.c
        held = select(pins).where(c.state.in_(_HELD), c.created_at < to_us(before))
        statement = held.order_by(c.seq).limit(limit)
        return self._database.read(
            lambda connection: [rows.pin(row) for row in connection.execute(statement).mappings()]
        )

    def ids_from(self, prefix: str, limit: int) -> list[Process]:
        c = processes.c
        first = rows.plain(prefix)
        within = (c.id >= first) & (c.id < first[:-1] + chr(ord(first[-1]) + 1)) if first else c.id >= ""
        return self._processes(select(processes).where(within).order_by(c.id).limit(limit))

    def with_partition(self, text: str, *, among: int, limit: int) -> list[Process]:
        """The text is looked for as JSON has it; what only looks like it is sorted out afterwards."""
        newest = select(processes).order_by(processes.c.seq.desc()).limit(among).subquery()
        named = newest.c.partitions.contains(json.dumps(text), autoescape=True)
        found = self._processes(select(newest).where(named).order_by(newest.c.seq.desc()).limit(limit))
        return [one for one in found if text in one.partitions]

    def _processes(self, statement: Select[Any]) -> list[Process]:
        return self._database.read(
            lambda connection: [rows.process(row) for row in connection.execute(statement).mappings()]
        )


_ENDINGS = {one.value: one for one in Ending}  # one of another version is no reason to show no attempts (T10)


def _attempt(row: Sequence[Any]) -> Attempt:
    """By hand: a page has thousands."""
    process_id, number, attempt, started_at, ended_at, ending, *rest = row
    code, worker, written, size, read_ms, write_ms, upload_ms = rest
    return Attempt(
        process_id=process_id,
        number=number,
        attempt=attempt,
        started_at=time_from_us(started_at),
        ended_at=time_from_us(ended_at),
        ending=_ENDINGS.get(ending, Ending.ENDED),
        code=code,
        worker=worker,
        rows=written,
        bytes=size,
        read_ms=read_ms,
        write_ms=write_ms,
        upload_ms=upload_ms,
    )


def attempts_statement(process_id: ProcessId, *, after: int, limit: int) -> Select[Any]:
    c = attempts.c
    statement = select(attempts).where(c.process_id == process_id)
    if after >= 0:
        statement = statement.where(c.number > after)
    return statement.order_by(c.number, c.attempt).limit(limit)


def sample_statement(process_id: ProcessId, numbers: Sequence[int], limit: int) -> Select[Any]:
    c = attempts.c
    chosen = select(attempts).where(c.process_id == process_id, c.number.in_(numbers))
    return chosen.order_by(c.number, c.attempt).limit(limit)


def slowest_statement(process_id: ProcessId, limit: int) -> Select[Any]:
    c = attempts.c
    took = (c.ended_at - c.started_at).desc()
    return select(attempts).where(c.process_id == process_id).order_by(took, c.number).limit(limit)


def failed_attempts_statement(since: datetime, limit: int) -> Select[Any]:
    c = attempts.c
    failed = (c.ended_at >= to_us(since)) & (c.code != literal("", literal_execute=True))
    day = (c.ended_at // literal(_DAY_US, BigInteger)).label("day")
    newest = select(day, c.code).where(failed).order_by(c.ended_at.desc()).limit(limit).subquery()
    counted = select(newest.c.day, newest.c.code, func.count())
    return counted.group_by(newest.c.day, newest.c.code).order_by(newest.c.day, newest.c.code)


def task_page_statement(
    process_id: ProcessId, states: frozenset[TaskState], after: int, limit: int
) -> Select[Any]:
    statement = select(*_LIGHT).where(tasks.c.process_id == process_id, tasks.c.number > after)
    if states:
        statement = statement.where(tasks.c.state.in_(rows.names(states)))
    return statement.order_by(tasks.c.number).limit(limit)


def newest_events_statement(process_id: ProcessId, before: int | None, limit: int) -> Select[Any]:
    c = events.c
    statement = select(events).where(c.process_id == process_id)
    if before is not None:
        statement = statement.where(c.number < before)
    return statement.order_by(c.number.desc()).limit(limit)


def ended_statement(since: datetime, *, failed: bool, limit: int) -> Select[Any]:
    c = processes.c
    statement = select(processes).where(c.finished_at >= to_us(since))
    if failed:
        # In the words of the partial index, so that it is used.
        statement = statement.where(c.state == literal(ProcessState.FAILED.value, literal_execute=True))
    else:
        statement = statement.where(c.finished_at.is_not(None))
    return statement.order_by(c.finished_at.desc()).limit(limit)


def ends_statement(
    since: datetime, state: ProcessState | None, limit: int, kind: str = "", source: str = ""
) -> Select[Any]:
    c = processes.c
    narrow = select(
        c.id, c.kind, c.source, c.destination, c.partitions, c.state, c.finished_at, c.error
    ).where(c.finished_at >= to_us(since), c.finished_at.is_not(None))
    if state is ProcessState.FAILED:  # in the words of the partial index, so that it is used
        narrow = narrow.where(c.state == literal(state.value, literal_execute=True))
    elif state is not None:  # by its end: nearly all are COMPLETED
        narrow = narrow.where(c.state.concat("") == state.value)
    if kind:
        narrow = narrow.where(c.kind.concat("") == kind)
    if source:
        narrow = narrow.where(c.source == source)
    return narrow.order_by(c.finished_at.desc()).limit(limit)


def needed_statement() -> Select[Any]:
    return select(processes.c.needs).where(processes.c.finished_at.is_(None)).distinct()


def work_done_statement(since: datetime, piece_seconds: int) -> Select[Any]:
    c = processes.c
    pair = (c.kind, c.source, c.destination)
    piece = c.finished_at // literal(piece_seconds * 1_000_000, BigInteger)
    completed = c.state == ProcessState.COMPLETED.value

    def total(condition: Any, of: Any) -> Any:
        return func.sum(case((condition, of), else_=0))

    return (
        select(
            *pair,
            piece.label("piece"),
            total(completed, 1),
            total(c.state == ProcessState.FAILED.value, 1),
            total(completed, c.rows),
            total(completed, c.bytes),
        )
        .where(c.finished_at >= to_us(since), c.finished_at.is_not(None))  # that is, ended: the index's words
        .group_by(*pair, piece)
    )
