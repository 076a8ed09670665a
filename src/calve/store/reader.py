"""Reading processes and what hangs on them. Single statements over indexes; no locks."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, case, func, or_, select, union_all

from calve.model.access import Halt
from calve.model.process import (
    Breaker,
    Event,
    Pin,
    Process,
    ProcessId,
    ProcessQuery,
    Task,
    Worker,
    WorkerId,
)
from calve.model.refusals import ambiguous, no_such_process
from calve.model.states import PinState, ProcessState, TaskState
from calve.store import rows
from calve.store.database import Database, from_us, time_from_us, to_us
from calve.store.tables import breakers, events, halts, locks, pins, plans, processes, tasks, workers


def load_process(connection: Connection, process_id: ProcessId) -> Process:
    row = connection.execute(select(processes).where(processes.c.id == process_id)).mappings().one_or_none()
    if row is None:
        raise no_such_process(process_id)
    return rows.process(row)


class SqlReader:
    def __init__(self, database: Database) -> None:
        self._database = database

    def now(self) -> datetime:
        return time_from_us(self._database.read(self._database.now_us))

    def process(self, process_id: ProcessId) -> Process:
        return self._database.read(lambda connection: load_process(connection, process_id))

    def known(self, ids: Sequence[ProcessId]) -> list[Process]:
        statements = [
            select(processes).where(processes.c.id.in_(list(map(rows.plain, some))))
            for some in rows.chunks(ids)
        ]
        return self._database.read(
            lambda connection: [
                rows.process(row) for one in statements for row in connection.execute(one).mappings()
            ]
        )

    def find(self, text: str) -> tuple[ProcessId, ...]:
        if not text or not text.isascii():  # ids are
            raise no_such_process(text)
        return self._database.read(lambda connection: _find(connection, rows.plain(text)))

    def processes(self, query: ProcessQuery) -> list[Process]:
        statement = processes_statement(query)

        def work(connection: Connection) -> list[Process]:
            found = [rows.process(row) for row in connection.execute(statement).mappings()]
            if not found and query.before is not None:
                load_process(connection, query.before)  # one that is not there is no end of a list
            return found

        return self._database.read(work)

    def plan(self, process_id: ProcessId) -> str | None:
        statement = select(plans.c.plan).where(plans.c.process_id == process_id)
        return self._database.read(lambda connection: connection.execute(statement).scalar_one_or_none())

    def tasks(
        self,
        process_id: ProcessId,
        states: frozenset[TaskState] = frozenset(),
        limit: int | None = None,
        *,
        first: int = 0,
    ) -> list[Task]:
        statement = (
            select(tasks)
            .where(tasks.c.process_id == process_id, tasks.c.number >= first)
            .order_by(tasks.c.number)
        )
        if states:
            statement = statement.where(tasks.c.state.in_(rows.names(states)))
        if limit is not None:
            statement = statement.limit(limit)
        return self._tasks(statement)

    def ready_tasks(self, process_id: ProcessId, limit: int) -> list[Task]:
        return self._tasks(self.ready_tasks_statement(process_id, limit))

    def ready_tasks_statement(self, process_id: ProcessId, limit: int) -> Select[Any]:
        due = or_(tasks.c.not_before.is_(None), tasks.c.not_before <= self._database.clock)
        return (
            select(tasks)
            .where(tasks.c.process_id == process_id, tasks.c.state == TaskState.PENDING.value, due)
            .order_by(tasks.c.number)
            .limit(limit)
        )

    def _tasks(self, statement: Select[Any]) -> list[Task]:
        return self._database.read(
            lambda connection: [rows.task(row) for row in connection.execute(statement).mappings()]
        )

    def next_task_at(self, process_id: ProcessId) -> datetime | None:
        statement = select(func.min(tasks.c.not_before)).where(
            tasks.c.process_id == process_id,
            tasks.c.state == TaskState.PENDING.value,
            tasks.c.not_before > self._database.clock,
        )
        return from_us(self._database.read(lambda connection: connection.execute(statement).scalar_one()))

    def pins(
        self, process_id: ProcessId | None = None, states: frozenset[PinState] = frozenset()
    ) -> list[Pin]:
        statement = select(pins).order_by(pins.c.seq)
        if process_id is not None:
            statement = statement.where(pins.c.process_id == process_id)
        if states:
            statement = statement.where(pins.c.state.in_(rows.names(states)))
        return self._database.read(
            lambda connection: [rows.pin(row) for row in connection.execute(statement).mappings()]
        )

    def events(self, process_id: ProcessId, after: int = 0, limit: int = 1000) -> list[Event]:
        statement = (
            select(events)
            .where(events.c.process_id == process_id, events.c.number > after)
            .order_by(events.c.number)
            .limit(limit)
        )
        return self._database.read(
            lambda connection: [rows.event(row) for row in connection.execute(statement).mappings()]
        )

    def last_event(self) -> int:
        statement = select(func.max(events.c.number))
        return self._database.read(lambda connection: connection.execute(statement).scalar()) or 0

    def workers(self) -> list[Worker]:
        statement = select(workers).order_by(workers.c.id)
        return self._database.read(
            lambda connection: [rows.worker(row) for row in connection.execute(statement).mappings()]
        )

    def load(self) -> dict[WorkerId, int]:
        c = processes.c
        left = case(
            (c.state == ProcessState.PENDING.value, 1),
            (c.state == ProcessState.RUNNING.value, c.tasks_total - c.tasks_done - c.tasks_failed),
            else_=0,
        )
        statement = select(c.owner, func.sum(left)).where(c.owner.is_not(None)).group_by(c.owner)
        return self._database.read(
            lambda connection: {
                WorkerId(owner): int(tasks) for owner, tasks in connection.execute(statement) if tasks
            }
        )

    def breakers(self) -> list[Breaker]:
        statement = select(breakers).order_by(breakers.c.lane)
        return self._database.read(
            lambda connection: [rows.breaker(row) for row in connection.execute(statement).mappings()]
        )

    def halts(self) -> list[Halt]:
        statement = select(halts).order_by(halts.c.kind, halts.c.source)
        return self._database.read(
            lambda connection: [rows.value(Halt, row) for row in connection.execute(statement).mappings()]
        )

    def holder(self, lock: str) -> Process | None:
        statement = (
            select(processes)
            .join(locks, locks.c.process_id == processes.c.id)
            .where(locks.c.name == lock, locks.c.freed_at.is_(None))
        )

        def work(connection: Connection) -> Process | None:
            row = connection.execute(statement).mappings().one_or_none()
            return None if row is None else rows.process(row)

        return self._database.read(work)

    def live(self, limit: int = 1000) -> list[Process]:
        statement = live_statement(limit)
        return self._database.read(
            lambda connection: [rows.process(row) for row in connection.execute(statement).mappings()]
        )


def live_statement(limit: int) -> Select[Any]:
    return (
        select(processes)
        .where(processes.c.finished_at.is_(None))
        .order_by(processes.c.priority.desc(), processes.c.seq)
        .limit(limit)
    )


def processes_statement(query: ProcessQuery) -> Select[Any]:
    """One branch for each state and for each end of a table, each cut at the limit: an index gives every
    branch in order, where one `state IN (…)` would sort all that fit."""
    states = query.states if query.states != frozenset(ProcessState) else frozenset()
    ends: list[tuple[ColumnElement[bool], ...]] = [()]
    if query.table:
        at_source = processes.c.source == query.table
        ends = [(at_source,), (processes.c.destination == query.table, ~at_source)]
    each: list[ProcessState | None] = [*sorted(states)] or [None]
    branches = [(state, end) for state in each for end in ends]
    if len(branches) == 1:
        return _newest(select(processes), query, *branches[0])
    # Of their keys: SQLAlchemy would make every column of every branch anew for each statement.
    keys = [_newest(select(processes.c.seq), query, *branch).subquery() for branch in branches]
    together = union_all(*(select(branch.c.seq) for branch in keys)).subquery()
    newest = select(together.c.seq).order_by(together.c.seq.desc()).limit(query.limit)
    return select(processes).where(processes.c.seq.in_(newest)).order_by(processes.c.seq.desc())


def _newest(
    wanted: Select[Any], query: ProcessQuery, state: ProcessState | None, also: Sequence[ColumnElement[bool]]
) -> Select[Any]:
    wide = {processes.c.state: state and state.value, processes.c.kind: query.kind or None}
    narrow = {
        processes.c.batch: query.batch,
        processes.c.source: query.source or None,
        processes.c.destination: query.destination or None,
        processes.c.retry_of: query.retry_of,
    }
    conditions = [*also, *(column == value for column, value in narrow.items() if value is not None)]
    # SQLite has no statistics of a store and takes any index that fits: where a narrow one does, the wide
    # ones are hidden from it, each behind an expression of the same value. Of two wide ones, the wider: nearly
    # all processes are COMPLETED.
    wider = processes.c.state if state is ProcessState.COMPLETED and query.kind else processes.c.kind
    both = state is not None and query.kind
    conditions += [
        (column.concat("") if conditions or (both and column is wider) else column) == value
        for column, value in wide.items()
        if value is not None
    ]
    if query.created_since is not None:
        conditions.append(processes.c.created_at >= to_us(query.created_since))
    if query.created_before is not None:
        conditions.append(processes.c.created_at < to_us(query.created_before))
    if query.before is not None:
        last = processes.alias()
        conditions.append(
            processes.c.seq < select(last.c.seq).where(last.c.id == query.before).scalar_subquery()
        )
    return wanted.where(and_(True, *conditions)).order_by(processes.c.seq.desc()).limit(query.limit)


def _find(connection: Connection, text: str) -> tuple[ProcessId, ...]:
    ids = select(processes.c.id).order_by(processes.c.seq)
    for condition in (processes.c.id == text, processes.c.batch == text):
        found = connection.execute(ids.where(condition)).scalars().all()
        if found:
            return tuple(ProcessId(item) for item in found)
    after_prefix = text[:-1] + chr(ord(text[-1]) + 1)
    fitting = connection.execute(
        ids.where(processes.c.id >= text, processes.c.id < after_prefix).limit(20)
    ).scalars()
    found = [ProcessId(item) for item in fitting]
    if not found:
        raise no_such_process(text)
    if len(found) > 1:
        raise ambiguous(text, found)
    return tuple(found)
