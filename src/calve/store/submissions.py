"""Accepting processes, and asking them to stop.

The invariants that live here: all of a submission or none of it; no two holders of locks that
meet (`model.locks`); one submission a key; a policy starts nothing twice and passes no limit; adopting a process's files happens in the transaction that accepts the retry (D3).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    func,
    insert,
    select,
    text,
    update,
)

from calve.model.access import Asked, KeyedRequest, Replayed
from calve.model.change import ADOPTED, CANCEL_REQUESTED, SUBMITTED, NewEvent
from calve.model.process import NewProcess, Process, ProcessId, Start, Starts
from calve.model.reach import MARK, first_conflict, whole_of
from calve.model.refusals import already_started, key_reused, locked, no_such_process, not_ended, over_limit
from calve.model.states import PROCESS_TERMINAL, Leftovers, ProcessState
from calve.store import rows
from calve.store.database import seconds_to_us
from calve.store.reader import SqlReader, load_process
from calve.store.rows import chunks, note, record
from calve.store.tables import locks, processes, requests, starts

_SUBMITTERS = 0x63616C766501  # "calve" and a number: any constant that no other program is likely to take


class Submissions(SqlReader):
    def submit(
        self,
        new: Sequence[NewProcess],
        *,
        joined: Sequence[ProcessId] = (),
        asked: Asked | None = None,
        starts: Starts | None = None,
    ) -> list[Process]:
        if not new and (asked is None or not asked.key):
            return []
        # If we die here, all of it was accepted or none; submitting again finds out which.
        return self._database.write(lambda connection: self._submit(connection, new, joined, asked, starts))

    def _submit(
        self,
        connection: Connection,
        new: Sequence[NewProcess],
        joined: Sequence[ProcessId],
        asked: Asked | None,
        starts_of: Starts | None,
    ) -> list[Process]:
        if asked is not None and asked.key:
            self._take_key(connection, asked, [*joined, *(item.id for item in new)])
        known = _load(connection, [item.id for item in new])
        fresh = {item.id: item for item in new if item.id not in known}
        if fresh:
            _check_locks(connection, fresh)
            if starts_of is not None:
                self._start(connection, starts_of, fresh)
            adopted = self._adopt(connection, fresh.values())
            self._insert(connection, fresh.values(), adopted)
            known |= _load(connection, list(fresh))
            if asked is not None:
                note(connection, self._database.clock, asked, list(fresh))
        return [known[item.id] for item in new]

    def _take_key(self, connection: Connection, asked: Asked, ids: Sequence[ProcessId]) -> None:
        first = load_request(connection, asked.who, asked.key)
        if first is not None:
            raise Replayed.of(first) if first.hash == asked.hash else key_reused(asked.key)
        # First of all writes: a rival with the same key waits here until this transaction has ended; its
        # row is then refused, and it runs again and finds ours.
        connection.execute(
            insert(requests).values(
                who=rows.plain(asked.who),
                key=rows.plain(asked.key),
                verb=asked.verb,
                hash=asked.hash,
                processes=json.dumps(ids),
                made_at=self._database.clock,
            )
        )

    def _start(self, connection: Connection, given: Starts, fresh: Mapping[ProcessId, NewProcess]) -> None:
        """After the submitters' lock: nobody else counts or starts meanwhile."""
        items = [item for item in given.items if item.process_id in fresh]
        _take_turns(connection)
        for item in items:
            if connection.execute(select(starts.c.seq).where(_same_start(item))).first() is not None:
                raise already_started(item)
        for policy, day in {(item.policy, item.day) for item in items}:
            mine = [item for item in items if (item.policy, item.day) == (policy, day)]
            live, spent = _started(connection, policy, day)
            if live + len(mine) > given.at_once:
                raise over_limit(policy, "partitions_per_run")
            if given.bytes_a_day and spent + sum(item.bytes for item in mine) > given.bytes_a_day:
                raise over_limit(policy, "bytes_per_day")
        for item in items:
            connection.execute(insert(starts).values(rows.columns(item) | {"made_at": self._database.clock}))

    def starts(self, identity: str, destination: str, partitions: Sequence[str]) -> list[Start]:
        c = starts.c
        wanted = (c.identity == rows.plain(identity)) & (c.destination == rows.plain(destination))
        statements = [
            select(starts).where(wanted, c.partition.in_(list(map(rows.plain, some))))
            for some in chunks(partitions)
        ]

        def work(connection: Connection) -> list[Start]:
            found = [row for one in statements for row in connection.execute(one).mappings()]
            found.sort(key=lambda row: -int(row["seq"]))
            return [rows.value(Start, row) for row in found]

        return self._database.read(work)

    def started(self, policy: str, day: str) -> tuple[int, int]:
        return self._database.read(lambda connection: _started(connection, policy, day))

    def _adopt(self, connection: Connection, new: Iterable[NewProcess]) -> frozenset[ProcessId]:
        """Ids of the retries that won the files of what they retry."""
        winners: set[ProcessId] = set()
        for item in sorted((item for item in new if item.retry_of), key=lambda item: str(item.retry_of)):
            old = _load_locked(connection, item.retry_of)
            if old.state not in PROCESS_TERMINAL:
                raise not_ended(old)
            if old.leftovers is not Leftovers.KEPT:
                continue
            won = connection.execute(
                update(processes)
                .where(processes.c.id == old.id, processes.c.leftovers == Leftovers.KEPT.value)
                .values(version=old.version + 1, leftovers=Leftovers.ADOPTED.value, cleanup_at=None)
            )
            if won.rowcount == 1:
                winners.add(item.id)
                event = NewEvent(name=ADOPTED, message=f"by {item.id}")
                record(connection, self._database.clock, [(old.id, event)])
        return frozenset(winners)

    def _insert(
        self, connection: Connection, new: Iterable[NewProcess], adopted: frozenset[ProcessId]
    ) -> None:
        clock = self._database.clock
        connection.execute(
            insert(processes).values(
                created_at=clock, deadline_at=clock + bindparam("deadline_us", type_=BigInteger)
            ),
            [_values(item, item.id in adopted) for item in new],
        )
        # By name, so that two submitters of the same locks meet in one order and do not deadlock.
        wanted = sorted((lock.name, item.id) for item in new for lock in item.locks)
        if wanted:
            connection.execute(
                insert(locks), [{"name": name, "process_id": process_id} for name, process_id in wanted]
            )
        submitted = [(item.id, NewEvent(name=SUBMITTED, message=str(item))) for item in new]
        record(connection, clock, submitted)

    def request_cancel(self, process_id: ProcessId, *, asked: Asked | None = None) -> Process:
        return self._database.write(lambda connection: self._request_cancel(connection, process_id, asked))

    def _request_cancel(self, connection: Connection, process_id: ProcessId, asked: Asked | None) -> Process:
        requested = connection.execute(
            update(processes)
            .where(
                processes.c.id == process_id,
                processes.c.finished_at.is_(None),
                processes.c.cancel_requested.is_(False),
            )
            .values(cancel_requested=True, version=processes.c.version + 1)
        )
        row = load_process(connection, process_id)
        if requested.rowcount == 1:
            event = NewEvent(name=CANCEL_REQUESTED, message=f"while {row.state}")
            record(connection, self._database.clock, [(process_id, event)])
            if asked is not None:
                note(connection, self._database.clock, asked, [process_id])
        return row


def load_request(connection: Connection, who: str, key: str) -> KeyedRequest | None:
    statement = select(requests).where(requests.c.who == rows.plain(who), requests.c.key == rows.plain(key))
    row = connection.execute(statement).mappings().one_or_none()
    return None if row is None else rows.value(KeyedRequest, row)


def _load(connection: Connection, ids: Sequence[ProcessId]) -> dict[ProcessId, Process]:
    found: dict[ProcessId, Process] = {}
    for some in chunks(ids):
        statement = select(processes).where(processes.c.id.in_(some))
        for row in connection.execute(statement).mappings():
            found[ProcessId(row["id"])] = rows.process(row)
    return found


def _load_locked(connection: Connection, process_id: ProcessId | None) -> Process:
    statement = select(processes).where(processes.c.id == process_id).with_for_update()
    row = connection.execute(statement).mappings().one_or_none()
    if row is None:
        raise no_such_process(str(process_id))
    return rows.process(row)


def _check_locks(connection: Connection, new: Mapping[ProcessId, NewProcess]) -> None:
    """Pieces of one thing meet each other by their ranges, which no unique index can say: so submitters
    come one after another, and look before they insert. (SQLite's writers always do.)"""
    wanted = sorted((lock.name, item.id) for item in new.values() for lock in item.locks)
    if not wanted:
        return
    _take_turns(connection)
    held: set[tuple[str, ProcessId]] = set()
    for some in chunks(sorted({name for named, _ in wanted for name in (named, whole_of(named))})):
        # Read to the end before anything is raised: a half-read cursor would keep SQLite locked.
        held |= {
            (name, ProcessId(holder)) for name, holder in connection.execute(_held(locks.c.name.in_(some)))
        }
    # All live pieces, not only those of what is wanted: they are few, and one look finds them.
    held |= {
        (name, ProcessId(holder))
        for name, holder in connection.execute(_held(locks.c.name.contains(MARK, autoescape=True)))
    }
    # Held by the very id that is being inserted: the same submission, sent twice, was accepted since
    # `known` was read. That is no conflict; the insert meets its row, and the next run returns it.
    met = first_conflict(wanted, sorted(held))
    if met is not None:
        _, holder = met
        raise locked(new.get(holder) or load_process(connection, holder))


def _take_turns(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        # Until the transaction ends; each statement after it sees what those before it committed.
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _SUBMITTERS})


def _same_start(item: Start) -> ColumnElement[bool]:
    names = ("identity", "partition", "destination", "action", "content")
    same = [starts.c[name] == rows.plain(getattr(item, name)) for name in names]
    return and_(*same, starts.c.attempt == item.attempt)


def _started(connection: Connection, policy: str, day: str) -> tuple[int, int]:
    c = starts.c
    mine = c.policy == rows.plain(policy)
    under_way = (
        select(func.count())
        .select_from(starts.join(processes, processes.c.id == c.process_id))
        .where(mine, processes.c.finished_at.is_(None))
    )
    spent = select(func.coalesce(func.sum(c.bytes), 0)).where(mine, c.day == day)
    return int(connection.execute(under_way).scalar_one()), int(connection.execute(spent).scalar_one())


def _held(which: ColumnElement[bool]) -> Select[Any]:
    return select(locks.c.name, locks.c.process_id).where(which, locks.c.freed_at.is_(None))


def _values(new: NewProcess, adopted: bool) -> dict[str, object]:
    return {
        "id": new.id,
        "kind": new.kind,
        "state": ProcessState.PENDING.value,
        "version": 1,
        "source": rows.plain(new.source),
        "destination": rows.plain(new.destination),
        "lane": rows.plain(new.lane),
        "needs": rows.dump_needs(new.needs),
        "request": rows.plain(new.request),
        "partitions": json.dumps(new.partitions),
        "locks": rows.dump_locks(new.locks),
        "batch": new.batch,
        "priority": new.priority,
        "retry_of": new.retry_of,
        "adopted": adopted,
        "deadline_us": seconds_to_us(new.deadline_seconds),
    }
