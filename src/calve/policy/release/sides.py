"""Both sides of a release as they are: a table at every server of its source, and a table of a catalog."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime

from pyiceberg.schema import Schema

from calve.clickhouse.parts.partitions import PartitionInfo
from calve.clickhouse.source import LiveSource, Session
from calve.clickhouse.sql.tokens import TableName, string
from calve.clickhouse.tables import TableInfo, name_of
from calve.clickhouse.tier import obstacles, replicas
from calve.clickhouse.tier.obstacles import Obstacle
from calve.clickhouse.tier.quarantine import (
    DATABASE,
    MovingQuarantine,
    QuarantineAttempt,
    QuarantinePlace,
    parts,
    twins,
)
from calve.destination.proof import Scan
from calve.iceberg.released import ReleasedTable, ReleaseMark
from calve.model.errors import RefusedError
from calve.policy.bounds import not_over, time_key
from calve.policy.proof.plan import ProofPlan
from calve.policy.proof.source import parts_sums
from calve.policy.release.plan import ReleasePlan
from calve.policy.release.ports import SeenPartition
from calve.policy.row_hash import RowHash, RowSums

_NUMBER = re.compile(r"[^_]+_(\d+)(?:_.*)?")


@dataclass(frozen=True, kw_only=True)
class TableSide:
    """See `release_ports.HotSide`. What changes something does so at every server, but for the moves, of which a replicated
    table needs one."""

    source: LiveSource
    name: TableName
    partition: str
    now: Callable[[], datetime]  # the store's
    proof: ProofPlan | None = None  # of which columns sums are made
    uuid: str = ""  # what left a table comes back to it, whatever it is called by now

    def look(self) -> SeenPartition:
        found: list[SeenPartition] = []
        seen_replicas: list[replicas.Replica] = []
        for visit in self.source.visits():
            with visit as session:
                seen = self._look(session)
                one = replicas.look(session, seen.table, self.partition)
                seen_replicas += [one] if one is not None else []
            found.append(seen)
        more = list(replicas.obstacles(seen_replicas)) if seen_replicas else []
        if not seen_replicas and len(found) > 1:
            words = "the source names several servers, and the table is not replicated"
            more.append(Obstacle(code="replicas", words=words))
        if len({(one.table.uuid, one.content) for one in found}) > 1:
            more.append(Obstacle(code="replicas", words="the servers do not have the same parts"))
        return SeenPartition(
            **{
                **vars(found[0]),
                "hashes": frozenset().union(*(one.hashes for one in found)),
                "twins": frozenset().union(*(one.twins for one in found)),
                "top": max(one.top for one in found),
                "number": max(one.number for one in found),
                "obstacles": (*dict.fromkeys(each for one in found for each in one.obstacles), *more),
            }
        )

    def _look(self, session: Session) -> SeenPartition:
        table = self._described(session)
        partitions = session.partitions(table)
        mine = next((one for one in partitions if one.id == self.partition), None)
        there = parts(session, table.full_name, self.partition)
        return SeenPartition(
            table=table,
            content=mine.content if mine else "",
            top=mine.max_block if mine else 0,
            hashes=frozenset(part.hash for part in there),
            twins=twins(part.hash for part in there),
            mutations=_mutations(session, table),
            number=_highest(session, table),
            obstacles=(
                *obstacles.find(session, table, self.partition),
                *self._of_time(session, table, partitions, mine),
            ),
        )

    def _described(self, session: Session) -> TableInfo:
        """RefusedError where the planned table is gone: another one of its name never gets its rows."""
        name = name_of(session, self.uuid) if self.uuid else self.name
        if name is None:
            raise RefusedError(
                f"table {self.name} of uuid {self.uuid} is gone",
                code="source_changed",
                hint=f"what left it may be in {DATABASE}, in tables whose names begin with that uuid",
            )
        return session.describe(name.database, name.table)

    def _of_time(
        self,
        session: Session,
        table: TableInfo,
        partitions: Sequence[PartitionInfo],
        mine: PartitionInfo | None,
    ) -> Iterator[Obstacle]:
        if mine is None:
            return
        key = time_key(table.partition_key, {one.name: one.type for one in table.columns}, table.timezone)
        here, there = self.now(), session.now()
        values = [one.value for one in partitions if one.rows]
        found = not_over(key, mine.value, values, min(here, there), there - here)
        if found is not None:
            yield Obstacle(code=found[0], words=found[1])

    # -- the quarantine -----------------------------------------------------------------------------

    def prepare(self, attempt: QuarantineAttempt) -> None:
        self._each(lambda quarantine: quarantine.prepare(attempt))

    def take_out(self, attempt: QuarantineAttempt, query_id: str) -> None:
        with self._first() as session:
            MovingQuarantine(session).take_out(attempt, query_id)

    def close(self, attempt: QuarantineAttempt, query_ids: Sequence[str]) -> None:
        self._each(lambda quarantine: quarantine.close(attempt, query_ids))

    def put_back(self, attempt: QuarantineAttempt, query_id: str) -> None:
        with self._first() as session:
            MovingQuarantine(session).put_back(attempt, query_id)

    def thin(self, attempt: QuarantineAttempt, query_id: str) -> None:
        with self._first() as session:
            MovingQuarantine(session).thin(attempt, query_id)

    def misfits(self, attempt: QuarantineAttempt) -> tuple[str, ...]:
        found: list[str] = []
        for visit in self.source.visits():
            with visit as session:
                found += MovingQuarantine(session).misfits(attempt)
        return tuple(dict.fromkeys(found))

    def placements(self, attempt: QuarantineAttempt) -> list[QuarantinePlace]:
        found = []
        for visit in self.source.visits():
            with visit as session:
                found.append(MovingQuarantine(session).placement(attempt))
        return found

    def remove(self, attempt: QuarantineAttempt, process_id: str, query_id: str) -> None:
        self._each(lambda quarantine: quarantine.remove(attempt, process_id, query_id))

    def spare(self, attempt: QuarantineAttempt, process_id: str, query_ids: Sequence[str]) -> None:
        self._each(lambda quarantine: quarantine.spare(attempt, process_id, query_ids))

    def is_gone(self, attempt: QuarantineAttempt, process_id: str) -> bool:
        found = []
        self._each(lambda quarantine: found.append(quarantine.is_gone(attempt, process_id)))
        return all(found)

    def _each(self, do: Callable[[MovingQuarantine], None]) -> None:
        for visit in self.source.visits():
            with visit as session:
                do(MovingQuarantine(session))

    def _first(self) -> AbstractContextManager[Session]:
        return self.source.visits()[0]

    # -- rows ---------------------------------------------------------------------------------------

    def held(self, attempt: QuarantineAttempt) -> RowSums:
        with self._first() as session:
            table = session.describe(DATABASE, MovingQuarantine(session).place(attempt))
            found = session.parts(table, [attempt.partition])
        return self._sums(table, found)

    def live(self, attempt: QuarantineAttempt) -> RowSums:
        with self._first() as session:
            late = {part.name for part in MovingQuarantine(session).placement(attempt).late}
            table = self._described(session)
            found = [part for part in session.parts(table, [attempt.partition]) if part.name not in late]
        return self._sums(table, found)

    def _sums(self, table: TableInfo, found: Sequence[object]) -> RowSums:
        assert self.proof is not None
        assert self.proof.rows is not None
        row_hash = RowHash(self.proof.columns, Schema.model_validate_json(self.proof.schema))
        return parts_sums(self.source, table, found, row_hash, self.proof.rows.settings)  # type: ignore[arg-type]

    def content(self, attempt: QuarantineAttempt) -> str:
        with self._first() as session:
            if MovingQuarantine(session).placement(attempt).late:
                return ""  # of rows that were never exported, too
            table = self._described(session)
            found = {one.id: one.content for one in session.partitions(table)}
            return found.get(attempt.partition, "")


def _mutations(session: Session, table: TableInfo) -> tuple[str, ...]:
    found = session.rows(
        f"SELECT mutation_id AS id FROM system.mutations WHERE database = {string(table.database)} "
        f"AND table = {string(table.name)} ORDER BY id",
        what=f"mutations of {table}",
    )
    return tuple(row["id"] for row in found)


def _highest(session: Session, table: TableInfo) -> int:
    """Number of the quarantines of the table: another store may have made some."""
    found = session.rows(
        f"SELECT name FROM system.tables WHERE database = {string(DATABASE)} AND startsWith(name, {string(table.uuid + '_')})",
        what=f"quarantines of {table}",
    )
    numbers = [_NUMBER.fullmatch(row["name"]) for row in found]
    return max((int(one[1]) for one in numbers if one), default=0)


@dataclass(frozen=True, kw_only=True)
class LakeSide:
    """See `release_ports.ColdSide`."""

    table: ReleasedTable
    plan: ReleasePlan
    scanned: Callable[[], Scan]

    def scan(self) -> Scan:
        return self.scanned()

    def is_marked(self, process_id: str) -> bool:
        return self.table.is_marked(process_id)

    def mark(self, process_id: str, mark: ReleaseMark, head: str) -> None:
        self.table.mark(process_id, {self.plan.key_hash: mark}, head)

    def unmark(self, process_id: str, content: str) -> None:
        self.table.unmark(process_id, {self.plan.key_hash: content} if content else {})
