"""Event rows, written in the transaction that made them true."""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, insert

from calve.model.change import NewEvent
from calve.model.process import ProcessId
from calve.store.rows import plain
from calve.store.tables import events

Entry = tuple[ProcessId, NewEvent]


def record(connection: Connection, clock: ColumnElement[int], entries: Sequence[Entry]) -> None:
    if not entries:
        return
    connection.execute(
        insert(events).values(at=clock),
        [
            {"process_id": process_id, "name": event.name, "message": plain(event.message)}
            for process_id, event in entries
        ],
    )
