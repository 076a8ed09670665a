"""What people and programs say about rows that may leave a table: holds, approvals, announcements; and reading what
became of them. What processes announce is written with their changes (`guards`)."""

from collections.abc import Sequence

from sqlalchemy import Connection, delete, insert, or_, select, update

from calve.model.access import Asked
from calve.model.process import GuardedTable, ProcessId
from calve.model.states import ReleaseState
from calve.model.tier import Announced, Approval, Hold, HoldAdded, Intent, Release, no_such_hold
from calve.store import rows
from calve.store.database import seconds_to_us
from calve.store.guards import guard_version, of_table, raise_guard, release_of, standing
from calve.store.registry import SqlRegistry
from calve.store.rows import columns, note, plain
from calve.store.tables import approvals, holds, intents, policies, releases

_FORGOTTEN_SECONDS = 86_400.0  # a program that announced nothing for so long


class SqlTiers(SqlRegistry):
    def guard(self, table: GuardedTable) -> int:
        return self._database.read(lambda connection: guard_version(connection, table))

    def add_hold(self, hold: Hold, asked: Asked) -> HoldAdded:
        clock, this = self._database.clock, holds.c.id == plain(hold.id)
        open_ = select(intents).where(intents.c.done_at.is_(None), of_table(intents, hold.table))
        if hold.partition:
            open_ = open_.where(intents.c.partition == plain(hold.partition))

        def work(connection: Connection) -> HoldAdded:
            raise_guard(connection, hold.table)
            if connection.execute(select(holds.c.id).where(this)).first() is None:
                values = columns(hold) | {"made_at": clock, "released_at": None, "released_by": ""}
                connection.execute(insert(holds).values(values))
                note(connection, clock, asked)
            row = connection.execute(select(holds).where(this)).mappings().one()
            found = connection.execute(open_.order_by(intents.c.seq)).mappings()
            return HoldAdded(hold=rows.value(Hold, row), open=tuple(rows.value(Intent, one) for one in found))

        # If we die here, the hold is there or not; adding it again, by its id, finds out.
        return self._database.write(work)

    def holds(self, *, every: bool = False) -> list[Hold]:
        wanted = select(holds).order_by(holds.c.made_at, holds.c.id)
        return self._values(Hold, wanted if every else wanted.where(standing(self._database.clock)))

    def release_hold(self, id: str, asked: Asked) -> Hold:
        clock, this = self._database.clock, holds.c.id == plain(id)

        def work(connection: Connection) -> Hold:
            ends = update(holds).where(this, holds.c.released_at.is_(None))
            if connection.execute(ends.values(released_at=clock, released_by=plain(asked.who))).rowcount == 1:
                note(connection, clock, asked)
            row = connection.execute(select(holds).where(this)).mappings().one_or_none()
            if row is None:
                raise no_such_hold(id)
            return rows.value(Hold, row)

        return self._database.write(work)

    def intents(self, process_id: ProcessId) -> list[Intent]:
        return self._values(
            Intent, select(intents).where(intents.c.process_id == process_id).order_by(intents.c.seq)
        )

    def releases(self, identity: str, destination: str = "") -> list[Release]:
        c = releases.c
        wanted = select(releases).where(c.identity == plain(identity)).order_by(c.attempt)
        if destination:
            wanted = wanted.where(c.destination == plain(destination))
        return self._database.read(
            lambda connection: [release_of(row) for row in connection.execute(wanted).mappings()]
        )

    def releases_in(self, states: frozenset[ReleaseState]) -> list[Release]:
        c = releases.c
        wanted = select(releases).where(c.state.in_(rows.names(states))).order_by(c.made_at, c.process_id)
        return self._database.read(
            lambda connection: [release_of(row) for row in connection.execute(wanted).mappings()]
        )

    def approve(self, approval: Approval, asked: Asked) -> Approval:
        c, clock = approvals.c, self._database.clock
        same = (
            c.revoked_at.is_(None) & (c.what == plain(approval.what)) & (c.hash == plain(approval.hash))
            & (c.identity == plain(approval.identity)) & (c.destination == plain(approval.destination))
        )  # fmt: skip

        def work(connection: Connection) -> Approval:
            row = connection.execute(select(approvals).where(same)).mappings().one_or_none()
            if row is None:
                values = columns(approval, "seq") | {"made_at": clock, "revoked_at": None, "revoked_by": ""}
                connection.execute(insert(approvals).values(values))
                note(connection, clock, asked)
                row = connection.execute(select(approvals).where(same)).mappings().one()
            return rows.value(Approval, row)

        return self._database.write(work)

    def approvals(self, *, every: bool = False) -> list[Approval]:
        wanted = select(approvals).order_by(approvals.c.seq)
        return self._values(Approval, wanted if every else wanted.where(approvals.c.revoked_at.is_(None)))

    def revoke_approval(self, seq: int, asked: Asked) -> bool:
        ends = update(approvals).where(approvals.c.seq == seq, approvals.c.revoked_at.is_(None))
        clock = self._database.clock

        def work(connection: Connection) -> bool:
            ended = (
                connection.execute(ends.values(revoked_at=clock, revoked_by=plain(asked.who))).rowcount == 1
            )
            if ended:
                note(connection, clock, asked)
            return ended

        return self._database.write(work)

    def announce(self, program: str, said: Sequence[Announced]) -> None:
        clock = self._database.clock
        old = or_(
            policies.c.program == plain(program),
            policies.c.seen_at < clock - seconds_to_us(_FORGOTTEN_SECONDS),
        )
        values = [columns(one) | {"program": plain(program), "seen_at": clock} for one in said]

        def work(connection: Connection) -> None:
            connection.execute(delete(policies).where(old))
            for one in values:
                connection.execute(insert(policies).values(one))

        # If we die here, the program says what it said before, until that is too old.
        self._database.write(work)

    def announced(self, *, live_seconds: float) -> list[Announced]:
        c = policies.c
        lately = c.seen_at > self._database.clock - seconds_to_us(live_seconds)
        return self._values(Announced, select(policies).where(lately).order_by(c.program, c.name))
