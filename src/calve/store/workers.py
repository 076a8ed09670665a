"""Workers' heartbeats and the breakers of services: small rows, for people and for waiting."""

import json

from sqlalchemy import Connection, Delete, Table, Update, delete, update
from sqlalchemy.dialects import postgresql, sqlite

from calve.model.ids import WorkerId
from calve.model.process import Worker
from calve.store import rows
from calve.store.clock import seconds_to_us
from calve.store.reader import SqlReader
from calve.store.tables import breakers, workers


class Workers(SqlReader):
    def _upsert(self, table: Table, key: str, values: dict[str, object], only_new: dict[str, object]) -> None:
        """`only_new` is written when the row is made, and never again."""

        def work(connection: Connection) -> None:
            insert = sqlite.insert if self._database.dialect == "sqlite" else postgresql.insert
            statement = insert(table).values(values | only_new)
            refreshed = {name: statement.excluded[name] for name in values if name != key}
            connection.execute(statement.on_conflict_do_update(index_elements=[key], set_=refreshed))

        self._database.write(work)

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
        self._upsert(breakers, "lane", values, {"opened_at": clock, "probes": 0})

    def claim_probe(self, service: str, probe_seconds: float) -> bool:
        clock = self._database.clock
        move_on = (
            update(breakers)
            .where(breakers.c.lane == service, breakers.c.probe_at <= clock)
            .values(probe_at=clock + seconds_to_us(probe_seconds), probes=breakers.c.probes + 1)
        )
        return self._run(move_on) == 1

    def close_breaker(self, service: str) -> None:
        self._run(delete(breakers).where(breakers.c.lane == service))
