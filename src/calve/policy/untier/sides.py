"""Both sides of a return from the lake as they are: see `untier_plan.UntierSides`."""

from collections.abc import Callable
from dataclasses import dataclass

from pyiceberg.schema import Schema

from calve.clickhouse.source import LiveSource, Session
from calve.clickhouse.sql.tokens import TableName, name
from calve.clickhouse.tables import TableInfo
from calve.clickhouse.tier import view
from calve.clickhouse.tier.arrival import Arrival, partitions, scratch_table
from calve.clickhouse.tier.residency import DATABASE as VIEWS
from calve.clickhouse.tier.residency import EARLIEST, LATEST, Resident
from calve.destination.proof import Scan
from calve.iceberg.released import ReleasedTable
from calve.model.errors import PermanentError, RefusedError
from calve.policy.bounds import TimeKey, time_key
from calve.policy.proof.source import parts_sums
from calve.policy.row_hash import RowHash, RowSums
from calve.policy.untier.plan import UntierPlan


@dataclass(frozen=True, kw_only=True)
class Sides:
    """`pinned` is how the source's server reads the lake table as it is now: an engine, and a metadata file."""

    source: LiveSource
    plan: UntierPlan
    process: str
    lake: ReleasedTable
    scanned: Callable[[], Scan]
    pinned: Callable[[], tuple[str, str]]
    added: Callable[[], None]  # the hold
    lifted: Callable[[], None]
    turned: Callable[[], None]  # the view
    seconds: float

    def refuse(self) -> None:
        with self.source.visit() as session:
            arrival = self._arrival(session)
            rows = sum(part.rows for part in arrival.live())
        if rows:
            raise RefusedError(
                f"{self.plan.request.name} has {rows} rows of partition {self.plan.request.partition} by now",
                code="not_empty",
                hint="rows arrived in the meantime: export them with --new-parts, or move them away",
            )
        scan, read = self.scanned(), self.plan.proof.scan
        if (set(scan.files), scan.whole) != (set(read.files), read.whole):
            raise RefusedError(
                f"{self.plan.request.destination} has other files of partition {self.plan.request.partition} than were read",
                code="lake_changed",
                hint="others wrote to it in the meantime; run the command again",
            )

    def hold(self) -> None:
        self.added()

    def unhold(self) -> None:
        self.lifted()

    def scratches(self) -> list[str]:
        with self.source.visit() as session:
            return self._arrival(session).scratches()

    def fill(self, scratch: str) -> None:
        engine, metadata = self.pinned()
        request = self.plan.request
        with self.source.visit() as session:
            arrival = self._arrival(session)
            relation = TableName(source=None, database=VIEWS, table=f"{self.plan.uuid}_untier_{self.process}")
            view.pin(session, arrival.table, relation, engine, metadata)
            try:
                key = _time_key(arrival.table)
                text = view.compose(
                    session,
                    arrival.table,
                    relation,
                    view.columns_of(session, relation),
                    time_column=key.column if key else "",
                )
                bounds = key.bounds(self.plan.value) if key else None
                wanted = Resident(
                    id=request.partition,
                    cold=True,
                    lower=bounds.lower if bounds else EARLIEST,
                    upper=bounds.upper if bounds else LATEST,
                )
                arrival.fill(
                    scratch,
                    text.cold_rows(wanted, relation),
                    query_id=self._query(scratch, "fill"),
                    seconds=self.seconds,
                )
            finally:
                # If we die here, a table that nobody reads is left: it has no rows of its own, and the next try replaces it.
                session.execute(f"DROP TABLE IF EXISTS {relation.sql}", what=f"{name(relation.table)}")
            strangers = partitions(session, scratch) - {request.partition}
        if strangers:
            raise PermanentError(
                f"the source files rows of partition {request.partition} under {sorted(strangers)[0]}",
                code="view_key",
                hint="the server's time zone, or the table's key, may have changed since they were exported",
            )

    def sums(self, scratch: str) -> RowSums:
        assert self.plan.proof.rows is not None
        with self.source.visit() as session:
            made = scratch_table(scratch, session)
            found = session.parts(made, [self.plan.request.partition])
        row_hash = RowHash(self.plan.proof.columns, Schema.model_validate_json(self.plan.proof.schema))
        return parts_sums(self.source, made, found, row_hash, self.plan.proof.rows.settings)

    def hashes(self, scratch: str) -> frozenset[str]:
        with self.source.visit() as session:
            return frozenset(part.hash for part in self._arrival(session).held(scratch))

    def move(self, scratch: str) -> None:
        with self.source.visit() as session:
            self._arrival(session).move(scratch, self._query(scratch, "move"))

    def close(self, scratch: str) -> None:
        with self.source.visit() as session:
            self._arrival(session).close(scratch, self._query(scratch, "move"))

    def has_arrived(self, scratch: str) -> bool:
        with self.source.visit() as session:
            arrival = self._arrival(session)
            held = arrival.held(scratch)
            live = {part.hash for part in arrival.live()}
        # The server may have died inside of the move: then the same parts are at both places.
        return not held or {part.hash for part in held} <= live - {""}

    def settle(self, hashes: frozenset[str]) -> None:
        """Of parts that are those that came back and no others, by their hashes; after a merge or with rows that came since
        nobody can tell, and the lake remembers no content: the partition is then exported again by a person's --force."""
        with self.source.visit() as session:
            arrival = self._arrival(session)
            same = {part.hash for part in arrival.live()} == hashes and "" not in hashes
            listed = {one.id: one for one in session.partitions(arrival.table)}
        now = listed.get(self.plan.request.partition)
        content, top = (now.content, now.max_block) if same and now is not None else ("", 0)
        self.lake.settle(self.process, self.plan.key_hash, content, top)

    def turn(self) -> None:
        self.turned()

    def drop(self, scratch: str) -> None:
        with self.source.visit() as session:
            self._arrival(session).drop(scratch)

    def _arrival(self, session: Session) -> Arrival:
        request = self.plan.request
        table = session.describe(request.database, request.table)
        if (table.uuid, table.create_query) != (self.plan.uuid, self.plan.create_query):
            raise PermanentError(
                f"table {request.name} was replaced or altered after its columns were compared",
                code="table_changed",
                hint="run the command again",
            )
        return Arrival(session=session, table=table, partition=request.partition, process=self.process)

    def _query(self, scratch: str, step: str) -> str:
        return f"calve-{scratch}-{step}"


def _time_key(table: TableInfo) -> TimeKey | None:
    key = time_key(table.partition_key, {one.name: one.type for one in table.columns}, table.timezone)
    return key if isinstance(key, TimeKey) else None
