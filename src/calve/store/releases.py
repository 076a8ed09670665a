"""The drain of pins: claimed for a while, released by a worker that reaches their source, recorded."""

from sqlalchemy import ColumnElement, Connection, or_, select, true, update

from calve.model import events
from calve.model.change import NewEvent
from calve.model.errors import ErrorInfo
from calve.model.process import Pin, ProcessId, WorkerId
from calve.model.reach import kinds_in, sources_in
from calve.model.refusals import illegal_transition, no_such_pin
from calve.model.states import PinState
from calve.store import rows
from calve.store.database import seconds_to_us
from calve.store.events import record
from calve.store.reader import SqlReader
from calve.store.tables import pins, processes


class Releases(SqlReader):
    def claim_releases(
        self, worker: WorkerId, reach: frozenset[str], *, limit: int, lease_seconds: float
    ) -> list[Pin]:
        del worker  # hidden from everybody for a while, its claimer too: a release may be made twice
        clock = self._database.clock
        sources = sorted(sources_in(reach))
        due = (
            select(pins.c.seq)
            .where(
                pins.c.state == PinState.RELEASING.value,
                or_(pins.c.not_before.is_(None), pins.c.not_before <= clock),
                pins.c.source.in_(sources),
                _of_known_kinds(reach),
            )
            .order_by(pins.c.seq)
            .limit(limit)
        )
        # Looked for without a lock first: most ticks find nothing, and then no worker waits.
        if not sources or not self._database.read(lambda connection: connection.execute(due).first()):
            return []
        hide = (
            update(pins)
            .where(pins.c.seq.in_(due.with_for_update(skip_locked=True)))
            .values(not_before=clock + seconds_to_us(lease_seconds))
            .returning(pins)
        )

        def work(connection: Connection) -> list[Pin]:
            claimed = sorted(connection.execute(hide).mappings(), key=lambda row: int(row["seq"]))
            return [rows.pin(row) for row in claimed]

        # If we die here, the pins show up again once they are no longer hidden.
        return self._database.write(work)

    def record_release(self, name: str, error: ErrorInfo | None, retry_seconds: float = 0.0) -> None:
        self._database.write(lambda connection: self._record(connection, name, error, retry_seconds))

    def _record(
        self, connection: Connection, name: str, error: ErrorInfo | None, retry_seconds: float
    ) -> None:
        row = connection.execute(select(pins).where(pins.c.name == name).with_for_update()).mappings().first()
        if row is None:
            raise no_such_pin(name)
        state = PinState(row["state"])
        if state is PinState.RELEASED:
            return
        process_id = ProcessId(row["process_id"])
        if state is not PinState.RELEASING:
            raise illegal_transition(process_id, f"pin {name!r} is {state}, not RELEASING")
        guarded = update(pins).where(pins.c.name == name, pins.c.state == PinState.RELEASING.value)
        if error is None:
            change = guarded.values(state=PinState.RELEASED.value, not_before=None, error=None)
            event = NewEvent(name=events.PIN_RELEASED, message=name)
        else:
            change = guarded.values(
                release_attempts=pins.c.release_attempts + 1,
                not_before=self._database.clock + seconds_to_us(retry_seconds),
                error=rows.dump_error(error),
            )
            event = NewEvent(name=events.PIN_NOT_RELEASED, message=f"{name}: {error.message}")
        connection.execute(change)
        record(connection, self._database.clock, [(process_id, event)])


def _of_known_kinds(reach: frozenset[str]) -> ColumnElement[bool]:
    """A program that does not know a kind cannot release its pins."""
    kinds = kinds_in(reach)
    if kinds is None:
        return true()
    known = select(processes.c.seq).where(
        processes.c.id == pins.c.process_id, processes.c.kind.in_(sorted(kinds))
    )
    return known.exists()
