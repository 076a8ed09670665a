"""Making one change: the row is held still, `model.apply` decides, all of it is written.

Every update is guarded by what was read, so that a mistake in holding still would be a
conflict and not a lost update.
"""

from collections.abc import Sequence

from sqlalchemy import BigInteger, Connection, bindparam, case, insert, literal, select, update

from calve.model.apply import Applied, apply_change, handed_back, handed_back_message
from calve.model.change import HANDED_BACK, Change, NewEvent, NewPin, PinChange, TaskChange, WritePlan
from calve.model.process import Lease, Pin, Process, ProcessId, Task
from calve.model.refusals import conflict, no_such_process
from calve.model.seen import Attempt, Ending
from calve.model.states import (
    PIN_TRANSITIONS,
    PROCESS_TRANSITIONS,
    TASK_LIVE,
    Leftovers,
    PinState,
    TaskState,
    may_move,
)
from calve.store import rows
from calve.store.database import time_from_us, to_us
from calve.store.guards import apply_tier
from calve.store.reader import SqlReader
from calve.store.rows import chunks, record
from calve.store.tables import attempts, locks, pins, plans, processes, tasks

_RELEASABLE = rows.names(state for state in PinState if may_move(PIN_TRANSITIONS, state, PinState.RELEASING))

_TASK_COLUMNS = (
    "state",
    "attempt",
    "free_attempts",
    "fence",
    "started_at",
    "finished_at",
    "not_before",
    "receipt",
    "error",
)

_UPDATE_TASK = (
    update(tasks)
    .where(
        tasks.c.process_id == bindparam("at_process"),
        tasks.c.number == bindparam("at_number"),
        tasks.c.state == bindparam("at_state"),
    )
    .values({name: bindparam(name) for name in _TASK_COLUMNS})
)


class Changes(SqlReader):
    def apply(self, lease: Lease, change: Change) -> Process:
        # If we die here, all of the change was made or none of it; the row's version says which.
        return self._database.write(lambda connection: self._apply(connection, lease, change))

    def _apply(self, connection: Connection, lease: Lease, change: Change) -> Process:
        before, now_us = self._load_held(connection, lease.process_id)
        applied = apply_change(
            before,
            lease,
            change,
            tasks=_load_tasks(connection, before.id, [item.number for item in change.all(TaskChange)]),
            pins=_load_pins(connection, _pin_names(change)),
            now=time_from_us(now_us),
        )
        _update_process(connection, before, applied.process)
        if plan := change.one(WritePlan):
            connection.execute(insert(plans).values(process_id=before.id, plan=plan.plan))
        _insert_tasks(connection, before, applied.new_tasks)
        _update_tasks(connection, change, applied.tasks)
        _insert_attempts(connection, applied.attempts)
        _write_pins(connection, applied)
        if applied.ends:
            _end(connection, lease, now_us)
        if applied.frees_locks:
            held = (locks.c.process_id == before.id) & locks.c.freed_at.is_(None)
            connection.execute(update(locks).where(held).values(freed_at=now_us))
        if applied.hands_back and before.retry_of is not None:
            self._hand_back(connection, before.retry_of, before, change)
        events = list(applied.events)
        if change.of_tier:
            events += apply_tier(connection, before, change, now_us)
        record(connection, self._database.clock, [(before.id, event) for event in events])
        return applied.process

    def _load_held(self, connection: Connection, process_id: ProcessId) -> tuple[Process, int]:
        """The row, held until the transaction ends, and the database's clock."""
        statement = (
            select(processes, self._database.clock.label("now_us"))
            .where(processes.c.id == process_id)
            .with_for_update()
        )
        row = connection.execute(statement).mappings().one_or_none()
        if row is None:
            raise no_such_process(process_id)
        return rows.process(row), row["now_us"]

    def _hand_back(
        self, connection: Connection, process_id: ProcessId, retry: Process, change: Change
    ) -> None:
        old, now_us = self._load_held(connection, process_id)
        if old.leftovers is Leftovers.ADOPTED:
            _update_process(connection, old, handed_back(old, change, time_from_us(now_us)))
            event = NewEvent(name=HANDED_BACK, message=handed_back_message(retry, change))
            record(connection, self._database.clock, [(old.id, event)])


def _pin_names(change: Change) -> list[str]:
    return [item.name for item in change.all(PinChange) + change.all(NewPin)]


def _load_tasks(connection: Connection, process_id: ProcessId, numbers: Sequence[int]) -> dict[int, Task]:
    found: dict[int, Task] = {}
    for some in chunks(numbers):
        statement = select(tasks).where(
            tasks.c.process_id == process_id,
            tasks.c.number.in_(some),
            # Says nothing new, but PostgreSQL's planner reads every task of the process without it.
            tasks.c.number.between(min(some), max(some)),
        )
        for row in connection.execute(statement).mappings():
            found[row["number"]] = rows.task(row)
    return found


def _load_pins(connection: Connection, names: Sequence[str]) -> dict[str, Pin]:
    found: dict[str, Pin] = {}
    for some in chunks(names):
        for row in connection.execute(select(pins).where(pins.c.name.in_(some))).mappings():
            found[row["name"]] = rows.pin(row)
    return found


def _update_process(connection: Connection, before: Process, after: Process) -> None:
    c = processes.c
    guard = (c.id == before.id) & (c.version == before.version) & (c.fence == before.fence)
    if after.state is not before.state:
        leading = [state for state, following in PROCESS_TRANSITIONS.items() if after.state in following]
        guard &= c.state.in_(rows.names(leading))
    changed = connection.execute(update(processes).where(guard).values(rows.process_changes(before, after)))
    if changed.rowcount != 1:
        raise conflict(before.id, "it changed while this change was made")


def _insert_tasks(connection: Connection, before: Process, new: Sequence[Task]) -> None:
    if not new:
        return
    if before.tasks.total:
        taken = _load_tasks(connection, before.id, [task.number for task in new])
        if taken:
            raise conflict(before.id, f"it has a task {min(taken)} already")
    connection.execute(insert(tasks), [rows.task_values(task) for task in new])


def _update_tasks(connection: Connection, change: Change, changed: Sequence[Task]) -> None:
    if not changed:
        return
    done = connection.execute(
        _UPDATE_TASK,
        [
            {name: value for name, value in rows.task_values(task).items() if name in _TASK_COLUMNS}
            | {"at_process": task.process_id, "at_number": task.number, "at_state": item.before.value}
            for task, item in zip(changed, change.all(TaskChange), strict=True)
        ],
    )
    if done.rowcount != len(changed):
        raise conflict(changed[0].process_id, "a task changed while this change was made")


def _insert_attempts(connection: Connection, ended: Sequence[Attempt]) -> None:
    if ended:
        connection.execute(insert(attempts), [rows.columns(attempt) for attempt in ended])


def _write_pins(connection: Connection, applied: Applied) -> None:
    if applied.new_pins:
        connection.execute(insert(pins), [rows.pin_values(pin) for pin in applied.new_pins])
    for pin in applied.pins:
        connection.execute(
            update(pins)
            .where(pins.c.name == pin.name)
            .values(state=pin.state.value, detail=pin.detail, not_before=to_us(pin.not_before))
        )


def _end(connection: Connection, lease: Lease, now_us: int) -> None:
    """Tasks and process end together (L24), running attempts with them; what was pinned is handed to the drain."""
    process_id, c = lease.process_id, tasks.c
    worker = case((c.fence == lease.fence, literal(lease.worker)), else_="")
    running = select(
        c.process_id, c.number, c.attempt, c.started_at, literal(now_us, BigInteger), literal(Ending.ENDED.value), literal(""),
        worker, literal(0), literal(0),
    ).where(c.process_id == process_id, c.state == TaskState.RUNNING.value, c.started_at.is_not(None))  # fmt: skip
    columns = list(attempts.c)[:10]
    connection.execute(insert(attempts).from_select(columns, running, include_defaults=False))
    connection.execute(
        update(tasks)
        .where(tasks.c.process_id == process_id, tasks.c.state.in_(rows.names(TASK_LIVE)))
        .values(state=TaskState.CANCELLED.value, finished_at=now_us, not_before=None)
    )
    connection.execute(
        update(pins)
        .where(pins.c.process_id == process_id, pins.c.state.in_(_RELEASABLE))
        .values(state=PinState.RELEASING.value, not_before=None)
    )
