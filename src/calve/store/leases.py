"""Leases: taking, renewing, yielding. The fence rises with every take-over and never falls.

Choosing reads without a lock, so that idle workers never wait for each other; taking is one
guarded update that only finds what is still free. Expiry is compared by the database, in the
statement itself (D11).

Workers' heartbeats and the breakers of services: small rows, for people and for waiting.
"""

import json
import logging
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Delete,
    Integer,
    Select,
    Table,
    Update,
    and_,
    delete,
    func,
    insert,
    literal_column,
    or_,
    select,
    true,
    union_all,
    update,
)
from sqlalchemy.sql.selectable import CTE

from calve.model.change import LEASED, TAKEN_OVER, NewEvent
from calve.model.codec import encode
from calve.model.process import Lease, Process, ProcessId, Worker, WorkerId
from calve.model.reach import kinds_in
from calve.model.states import ProcessState
from calve.store import rows
from calve.store.database import inserting, seconds_to_us
from calve.store.reader import SqlReader
from calve.store.rows import Entry, record
from calve.store.tables import breakers, halts, outages, processes, workers

_SAME_OUTAGE_SECONDS = 60.0  # a service that comes back for less is still in the same one
_ROUNDS = 3  # of choosing again what a rival was quicker to take

_log = logging.getLogger("calve.store")
_p = processes.c


class SqlLeases(SqlReader):
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
        held = [process for process in self._held(worker) if not process.damaged]
        taken: list[Process] = []
        for _ in range(_ROUNDS):
            chosen = self._choose(worker, reach, closed_lanes, limit - len(taken), only)
            if not chosen:
                break
            got = self._take(worker, chosen, lease_seconds)
            for row in got:
                if chosen[row.id] is not None:
                    _log.info("process %s is taken over: the lease of %s ran out", row.id, chosen[row.id])
            taken += got
            if len(got) == len(chosen):
                break
        return held + taken

    def _held(self, worker: WorkerId) -> list[Process]:
        """Also what an earlier claim took and whose acknowledgement was lost (L22)."""
        statement = select(processes).where(_p.owner == worker).order_by(_p.seq)
        return self._database.read(
            lambda connection: [rows.process(row) for row in connection.execute(statement).mappings()]
        )

    def _choose(
        self,
        worker: WorkerId,
        reach: frozenset[str],
        closed_lanes: frozenset[str],
        limit: int,
        only: frozenset[ProcessId] | None,
    ) -> dict[ProcessId, str | None]:
        """Ids in the order they are to be taken, each with the owner whose lease ran out. Rows that cannot
        be read are passed over, and others have their turn (T10)."""
        if limit <= 0:
            return {}

        def work(connection: Connection) -> dict[ProcessId, str | None]:
            needs = [
                text
                for text in connection.execute(self.needs_statement()).scalars()
                if (read := rows.load_needs(text)) is not None and reach.issuperset(read)
            ]
            damaged: frozenset[str] = frozenset()
            while needs:
                statement = self.choose_statement(
                    worker, needs, closed_lanes, limit, kinds_in(reach), only, damaged
                )
                chosen = {ProcessId(row.id): row.owner for row in connection.execute(statement)}
                found = self._damaged(connection, chosen)
                if not found:
                    return chosen
                damaged |= found
            return {}

        return self._database.read(work)

    def _damaged(self, connection: Connection, ids: Collection[str]) -> frozenset[str]:
        if not ids:
            return frozenset()
        statement = select(_p.id, *(_p[name] for name in rows.PROCESS_JSON)).where(_p.id.in_(list(ids)))
        found = connection.execute(statement).mappings().all()
        return frozenset(row["id"] for row in found if rows.damage(row))

    def needs_statement(self) -> Select[str]:
        """The few different needs among what may want a step; whether they are within reach is
        decided once for each, not once for each process."""
        either = union_all(
            select(_p.needs).where(_p.finished_at.is_(None)),
            select(_p.needs).where(self._due()),
        ).subquery()
        return select(either.c.needs).distinct()

    def choose_statement(
        self,
        worker: WorkerId,
        needs: Sequence[str],
        closed_lanes: frozenset[str],
        limit: int,
        kinds: frozenset[str] | None = None,
        only: frozenset[ProcessId] | None = None,
        without: frozenset[str] = frozenset(),
    ) -> Select[str, str | None]:
        """By priority; among equals, lanes in turn: a lane's first before any lane's second. What
        somebody is working on has had its turn, so a busy lane comes later."""
        ranked = self._ranked(worker, needs, closed_lanes, kinds)
        return (
            select(ranked.c.id, ranked.c.owner)
            .where(ranked.c.working == 0, true() if only is None else ranked.c.id.in_(sorted(only)))
            .where(ranked.c.id.not_in(sorted(without)) if without else true())
            .order_by(ranked.c.priority.desc(), ranked.c.turn, ranked.c.seq)
            .limit(limit)
        )

    def _ranked(
        self,
        worker: WorkerId,
        needs: Sequence[str],
        closed_lanes: frozenset[str],
        kinds: frozenset[str] | None,
    ) -> CTE:
        clock = self._database.clock
        columns = (_p.seq, _p.id, _p.owner, _p.priority, _p.lane)
        open_lane = _p.lane.not_in(sorted(closed_lanes)) if closed_lanes else true()
        calm = and_(or_(_p.not_before.is_(None), _p.not_before <= clock), open_lane)
        known = _p.kind.in_(sorted(kinds)) if kinds is not None else true()
        free = and_(self._free(), or_(_p.owner.is_(None), _p.owner != worker), _p.needs.in_(needs), known)
        candidates = union_all(
            select(*columns, _one(1).label("working")).where(_p.finished_at.is_(None), ~self._free()),
            select(*columns, _one(0)).where(
                _p.finished_at.is_(None), free, or_(self._urgent(), and_(calm, ~_halted()))
            ),
            select(*columns, _one(0)).where(self._due(), free, calm),
        ).cte("candidates")
        c = candidates.c
        turn = func.row_number().over(partition_by=(c.priority, c.lane), order_by=(c.working.desc(), c.seq))
        return select(*c, turn.label("turn")).cte("ranked")

    def _free(self) -> ColumnElement[bool]:
        return or_(_p.owner.is_(None), _p.lease_until <= self._database.clock)

    def _urgent(self) -> ColumnElement[bool]:
        return or_(_p.cancel_requested.is_(True), _p.deadline_at <= self._database.clock)

    def _due(self) -> ColumnElement[bool]:
        """An ended process that still needs a step."""
        return and_(_p.cleanup_at <= self._database.clock, _p.finished_at.is_not(None))

    def _take(
        self, worker: WorkerId, chosen: dict[ProcessId, str | None], lease_seconds: float
    ) -> list[Process]:
        clock = self._database.clock
        # Rows that a rival is just taking are passed over, not waited for.
        wanted = or_(and_(_p.finished_at.is_(None), or_(self._urgent(), ~_halted())), self._due())
        still_free = (
            select(_p.seq)
            .where(_p.id.in_(list(chosen)), self._free(), wanted)
            .order_by(_p.seq)
            .with_for_update(skip_locked=True)
        )
        take = (
            update(processes)
            .where(_p.seq.in_(still_free))
            .values(owner=worker, fence=_p.fence + 1, lease_until=clock + seconds_to_us(lease_seconds))
            .returning(processes)
        )

        def work(connection: Connection) -> list[Process]:
            got = {row["id"]: rows.process(row) for row in connection.execute(take).mappings()}
            record(connection, clock, [entry for row in got.values() for entry in _entries(row, chosen)])
            return [got[process_id] for process_id in chosen if process_id in got]

        # If we die here, the leases run out; if only the answer is lost, `_held` finds them.
        return self._database.write(work)

    def renew(self, worker: WorkerId, *, lease_seconds: float) -> frozenset[ProcessId]:
        extend = (
            update(processes)
            .where(_p.owner == worker)
            .values(lease_until=self._database.clock + seconds_to_us(lease_seconds))
            .returning(_p.id)
        )
        return self._database.write(
            lambda connection: frozenset(ProcessId(item) for item in connection.execute(extend).scalars())
        )

    def yield_(self, lease: Lease) -> None:
        give_up = (
            update(processes)
            .where(_p.id == lease.process_id, _p.owner == lease.worker, _p.fence == lease.fence)
            .values(owner=None, lease_until=None)
        )
        self._database.write(lambda connection: connection.execute(give_up).rowcount)


def _halted() -> ColumnElement[bool]:
    """As `Halt.holds`."""
    held = _p.state.in_([ProcessState.PENDING.value, ProcessState.RUNNING.value])
    of_it = (halts.c.kind == _p.kind) & or_(halts.c.source == "", halts.c.source == _p.source)
    return and_(held, select(halts.c.kind).where(of_it).exists())


def _one(value: int) -> ColumnElement[int]:
    return literal_column(str(value), Integer)


def _entries(row: Process, chosen: dict[ProcessId, str | None]) -> list[Entry]:
    """First leases and take-overs are recorded; a worker that yields and claims again is not."""
    earlier = chosen[row.id]
    if earlier is not None:
        message = f"by worker {row.owner}, fence {row.fence}; the lease of {earlier} ran out"
        return [(row.id, NewEvent(name=TAKEN_OVER, message=message))]
    if row.fence == 1:
        return [(row.id, NewEvent(name=LEASED, message=f"by worker {row.owner}"))]
    return []


class Workers(SqlReader):
    def _upsert(self, table: Table, key: str, values: dict[str, object], only_new: dict[str, object]) -> None:
        statement = self._upserting(table, key, values, only_new)
        self._database.write(lambda connection: connection.execute(statement).rowcount)

    def _upserting(
        self, table: Table, key: str, values: dict[str, object], only_new: dict[str, object]
    ) -> Any:
        """`only_new` is written when the row is made, and never again."""
        statement = self._inserting(table).values(values | only_new)
        refreshed = {name: statement.excluded[name] for name in values if name != key}
        return statement.on_conflict_do_update(index_elements=[key], set_=refreshed)

    def _inserting(self, table: Table) -> Any:
        return inserting(self._database.dialect, table)

    def _run(self, statement: Delete | Update) -> int:
        return self._database.write(lambda connection: connection.execute(statement).rowcount)

    def heartbeat(self, worker: Worker) -> None:
        values: dict[str, object] = {
            "id": worker.id,
            "host": worker.host,
            "reach": json.dumps(worker.reach),
            "slots": worker.slots,
            "heartbeat_at": self._database.clock,
            "draining": worker.draining,
            "error": rows.dump_error(worker.error),
            "version": worker.version or None,
            "granted": json.dumps(encode(worker.granted)) if worker.granted else None,
        }
        self._upsert(workers, "id", values, {"started_at": self._database.clock})

    def forget_worker(self, worker: WorkerId) -> None:
        self._run(delete(workers).where(workers.c.id == worker))

    def trip(self, service: str, reason: str, probe_seconds: float) -> None:
        clock = self._database.clock
        values: dict[str, object] = {
            "lane": service,
            "reason": rows.plain(reason),
            "probe_at": clock + seconds_to_us(probe_seconds),
        }
        opens = self._upserting(breakers, "lane", values, {"opened_at": clock, "probes": 0})
        opens = opens.returning(breakers.c.opened_at, breakers.c.probe_at)

        def work(connection: Connection) -> None:
            # The breaker's row is held from here on, so that nobody else opens or closes this outage.
            opened_at, probe_at = connection.execute(opens).one()
            new = probe_at - opened_at == seconds_to_us(probe_seconds)
            self._note_outage(connection, service, rows.plain(reason), opened_at, new=new)

        # If we die here, both the breaker and its outage are noted or neither is.
        self._database.write(work)

    def _note_outage(
        self, connection: Connection, service: str, reason: str, opened_at: int, *, new: bool
    ) -> None:
        c = outages.c
        of_it, still = c.service == service, c.closed_at.is_(None)
        if new:  # an open one is of a breaker that an older program closed: when, nobody knows
            connection.execute(update(outages).where(of_it, still).values(closed_at=c.opened_at))
        elif connection.execute(select(c.seq).where(of_it, still)).first():
            return
        last = select(func.max(c.seq)).where(of_it).scalar_subquery()
        lately = c.closed_at > opened_at - seconds_to_us(_SAME_OUTAGE_SECONDS)
        again = update(outages).where(c.seq == last, lately).values(closed_at=None)
        if connection.execute(again).rowcount == 0:
            values = {"service": service, "reason": reason, "opened_at": opened_at}
            connection.execute(insert(outages).values(values))

    def claim_probe(self, service: str, probe_seconds: float) -> bool:
        clock = self._database.clock
        move_on = (
            update(breakers)
            .where(breakers.c.lane == service, breakers.c.probe_at <= clock)
            .values(probe_at=clock + seconds_to_us(probe_seconds), probes=breakers.c.probes + 1)
        )
        return self._run(move_on) == 1

    def close_breaker(self, service: str) -> None:
        of_it = (outages.c.service == service) & outages.c.closed_at.is_(None)

        def work(connection: Connection) -> None:
            connection.execute(delete(breakers).where(breakers.c.lane == service))
            connection.execute(update(outages).where(of_it).values(closed_at=self._database.clock))

        self._database.write(work)
