"""A modelled ClickHouse server as tiering meets it: tables whose partitions MOVE into others and back, TTL, mutations that are
pending, a clock of its own, and tables that read one metadata file of the lake.

Parts keep the hash of their files when they move, and get new block numbers. `statements` reads the SQL.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import Any

from calve.clickhouse.parts.content import PartFacts
from calve.clickhouse.parts.partitions import PartitionInfo
from calve.clickhouse.source import Session
from calve.clickhouse.sql import create_table
from calve.clickhouse.sql.tokens import TableName
from calve.clickhouse.tables import Column, Mutation, TableInfo
from calve.model.errors import CalveError, NotFoundError, PermanentError, RefusedError, UnavailableError
from support.simulator.clickhouse import SERVICE, ModelledSource, ModelledTable, Part
from support.simulator.weather import Weather
from support.year.rows import KnownRows

KEYS = {
    "month": "toYYYYMM(day)", "week": "toMonday(day)", "day": "toYYYYMMDD(day)", "cyclic": "toMonth(day)", "none": ""
}  # fmt: skip
UNKNOWN_TABLE, TABLE_EXISTS = 60, 57
Full = tuple[str, str]


class MovedPart(Part):
    """A part whose files say which rows it has, and not its name."""

    @property
    def hash(self) -> str:
        return hashlib.sha256("\n".join(self.rows).encode()).hexdigest()


@dataclass
class YearTable(ModelledTable):
    key: str = "month"
    engine: str = "MergeTree"
    ttl_days: int = 0
    policies: tuple[str, ...] = ()
    version: str = "26.9.1.1"
    comment: str = ""
    pending: list[str] = field(default_factory=list)  # mutations that some part has not seen
    mutations: list[str] = field(default_factory=list)
    changed: dict[str, datetime] = field(default_factory=dict)  # partitions

    @property
    def full(self) -> Full:
        return self.database, self.name

    @property
    def identity(self) -> str:
        return f"server:modelled/{self.uuid}"

    @property
    def rows(self) -> list[str]:
        return [row for part in self.parts.values() for row in part.rows]

    def rows_of(self, partition: str) -> list[str]:
        return [row for part in self.of(partition) for row in part.rows]

    def partition_of(self, day: date) -> str:
        match self.key:
            case "month":
                return f"{day.year}{day.month:02}"
            case "week":
                return f"{day - timedelta(days=day.weekday()):%Y%m%d}"
            case "day":
                return f"{day:%Y%m%d}"
            case "cyclic":
                return str(day.month)
            case _:
                return "all"

    def end_of(self, partition: str) -> date | None:
        """The first day after it; None where the partition says no time."""
        if self.key in ("week", "day"):
            return date.fromisoformat(partition) + timedelta(days=7 if self.key == "week" else 1)
        if self.key != "month":
            return None
        year, month = int(partition[:4]), int(partition[4:])
        return date(year + month // 12, month % 12 + 1, 1)

    def value_of(self, partition: str) -> str:
        match self.key:
            case "week":
                return date.fromisoformat(partition).isoformat()
            case "none":
                return "tuple()"
            case _:
                return partition

    def put(self, rows: Sequence[str], partition: str, now: datetime) -> None:
        block = self.next_block
        self.next_block += 1
        self._put(partition, tuple(rows), block, block, 0, 0)
        self.changed[partition] = now

    def _put(
        self, partition: str, rows: tuple[str, ...], low: int, high: int, level: int, mutation: int, content: str = ""
    ) -> None:  # fmt: skip
        super()._put(partition, rows, low, high, level, mutation, content)
        name, part = self.parts.popitem()
        self.parts[name] = MovedPart(facts=part.facts, rows=part.rows)

    def replace_rows(self, partition: str, change: Callable[[str], str | None], now: datetime) -> None:
        """A mutation that all parts have seen: rows become others, or go."""
        number = self.next_block
        self.next_block += 1
        self.mutations.append(f"mutation_{number}.txt")
        for part in self.of(partition):
            del self.parts[part.facts.name]
            kept = tuple(found for row in part.rows if (found := change(row)) is not None)
            if kept:
                facts = part.facts
                self._put(partition, kept, facts.min_block, facts.max_block, facts.level, number)
        self.changed[partition] = now

    def expire(self, partition: str, gone: set[str], now: datetime) -> None:
        """A TTL merge."""
        for part in self.of(partition):
            if gone & set(part.rows):
                facts = part.facts
                del self.parts[facts.name]
                if kept := tuple(row for row in part.rows if row not in gone):
                    self._put(
                        partition, kept, facts.min_block, facts.max_block, facts.level + 1, facts.mutation
                    )
                self.changed[partition] = now

    def move(self, partition: str, into: "YearTable", now: datetime, *, keep: bool = False) -> None:
        """With `keep` the server dies inside: the parts are at both places."""
        for part in self.of(partition):
            if not keep:
                del self.parts[part.facts.name]
            block = into.next_block
            into.next_block += 1
            into._put(partition, part.rows, block, block, part.facts.level, 0)
        into.changed[partition] = self.changed[partition] = now

    def info(self, source: str) -> TableInfo:
        key = KEYS[self.key]
        arguments = "('/tables/{uuid}', '{replica}')" if self.engine.startswith("Replicated") else ""
        engine = f"{self.engine}{arguments}" + (f" PARTITION BY {key}" if key else "") + " ORDER BY id"
        engine += f" TTL day + INTERVAL {self.ttl_days} DAY" if self.ttl_days else ""
        columns = (Column(name="id", type="String"), Column(name="day", type="Date"))
        return TableInfo(
            source=source,
            database=self.database,
            name=self.name,
            uuid=self.uuid,
            identity=self.identity,
            engine=self.engine,
            clause=create_table.parse(engine),
            columns=columns,
            partition_key=key,
            sorting_key="id",
            primary_key="id",
            sampling_key="",
            create_query=f"CREATE TABLE {self.database}.{self.name} (id String, day Date) ENGINE = {engine}",
            storage_policy="default",
            data_paths=(f"/data/{self.uuid}/",),
            timezone="UTC",
            version=self.version,
            row_policies=self.policies,
            mutations=self.unfinished,
        )

    @property
    def unfinished(self) -> tuple[Mutation, ...]:
        return tuple(Mutation(id=one, command="DELETE WHERE 0", parts_to_do=1) for one in self.pending)


@dataclass
class LakeRelation:
    """A table that reads one metadata file of the lake."""

    location: str  # of the lake's table
    metadata: str  # the file, below it


@dataclass
class Flip:
    """One row of a residency."""

    generation: int
    writer: str
    id: str
    cold: bool
    lower: str
    upper: str
    at: float


@dataclass
class ResidencyTable:
    comment: str
    rows: list[Flip] = field(default_factory=list)

    def newest(self) -> dict[str, Flip]:
        found: dict[str, Flip] = {}
        for one in self.rows:
            if one.id and (
                one.id not in found
                or (found[one.id].generation, found[one.id].writer) < (one.generation, one.writer)
            ):
                found[one.id] = one
        return found

    @property
    def cold(self) -> frozenset[str]:
        return frozenset(id for id, one in self.newest().items() if one.cold)


@dataclass(frozen=True, kw_only=True)
class OlderReader:
    """A query that began by the set as it was then."""

    id: str
    began: float
    until: float


def clickhouse_error(number: int, words: str) -> CalveError:
    kind = NotFoundError if number == UNKNOWN_TABLE else PermanentError
    return kind(words, code=f"clickhouse_{number}")


def away() -> UnavailableError:
    return UnavailableError("ClickHouse does not answer", code="source_unreachable", service="source:main")


class YearServer(ModelledSource):
    """`clickhouse.source.LiveSource` and its visits, by SQL too."""

    def __init__(self, weather: Weather, now: Callable[[], datetime], known: KnownRows) -> None:
        super().__init__(weather, now)
        self.weather = weather
        self.known = known
        self.year_tables: dict[Full, YearTable] = {}
        self.tables = self.year_tables  # type: ignore[assignment]
        self.relations: dict[Full, LakeRelation] = {}
        self.residencies: dict[Full, ResidencyTable] = {}
        self.views: dict[Full, str] = {}  # the uuid of the table that it is over
        self.readers: list[OlderReader] = []
        self.skew = timedelta()
        self.skewed_at = 0.0
        self.dying = False  # the next MOVE leaves its parts at both places
        self.meddlers: dict[
            str, Callable[[], None]
        ] = {}  # what somebody does right before the next statement of a kind
        self.lake_rows: Callable[[str, str], Mapping[str, list[str]]] = lambda _location, _metadata: {}
        self.before_effect: Callable[[str, Mapping[str, str], str], None] = lambda _kind, _names, _query: None
        self.after_effect: Callable[[str], None] = lambda _kind: None

    def table_at(self, full: Full) -> YearTable:
        found = self.year_tables.get(full)
        if found is None:
            raise clickhouse_error(UNKNOWN_TABLE, f"table {'.'.join(full)} does not exist")
        return found

    # -- a visit, beside what `ModelledSource` has --------------------------------------------------

    def now(self) -> datetime:
        return self._now() + self.skew

    def _partition(self, table: ModelledTable, partition: str) -> PartitionInfo:
        assert isinstance(table, YearTable)
        found = super()._partition(table, partition)
        return replace(
            found, value=table.value_of(partition), modified_at=table.changed.get(partition, self._now())
        )

    def unfinished_mutations(self, table: object) -> tuple[Mutation, ...]:
        assert isinstance(table, TableName)
        found = self.year_tables.get((table.database, table.table))
        return found.unfinished if found else ()

    def refuse_unfinished(
        self, table: TableInfo, partition_ids: Sequence[str] = (), *, ignore: bool
    ) -> tuple[str, ...]:
        if table.mutations and not ignore:
            raise RefusedError(f"mutation {table.mutations[0].id} of {table} has not ended", code="mutation")
        return ()

    def rows(
        self,
        sql: str,
        settings: Mapping[str, str] | None = None,
        what: str = "",
        seconds: float | None = None,
    ) -> list[dict[str, Any]]:
        from support.year.statements import answer

        return self._call("read", lambda: answer(self, sql), 0.002)

    def execute(
        self,
        sql: str,
        settings: Mapping[str, str] | None = None,
        what: str = "",
        seconds: float | None = None,
        query_id: str = "",
    ) -> None:
        from support.year.statements import carry_out, kind_of

        kind, names = kind_of(sql)

        def work() -> None:
            self.before_effect(kind, names, query_id)
            carry_out(self, kind, names)
            self.after_effect(kind)

        if meddler := self.meddlers.pop(kind, None):
            meddler()
        called = "source.move" if kind in ("move", "drop", "rename") else "source.write"
        self.weather.call(called, work, failed=away, latency=0.01, service=SERVICE)

    def cold_ids(self, uuid: str) -> frozenset[str]:
        found = self.residencies.get(("calve_views", f"{uuid}_residency"))
        return found.cold if found else frozenset()

    def drop_doubles(self) -> None:
        """As doctor tells a person, where a MOVE that a server died in was sent to it again."""
        for table in self.year_tables.values():
            seen: set[str] = set()
            for name, part in list(table.parts.items()) if table.database == "calve_released" else ():
                if part.hash in seen:
                    del table.parts[name]
                seen.add(part.hash)

    def quarantined(self, uuid: str, number: str = "") -> Iterable[YearTable]:
        prefix = f"{uuid}_{number}"
        return [
            one
            for (database, name), one in self.year_tables.items()
            if database == "calve_released" and name.startswith(prefix)
        ]


Visit = Session
Facts = PartFacts
