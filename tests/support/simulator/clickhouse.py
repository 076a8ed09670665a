"""A modelled ClickHouse: tables of parts of rows, which are inserted, merged, mutated and dropped while pins hold what
they held.

A row is a text that no other row ever has; a mutation makes a new version of it. A second FREEZE under one name adds
what there is now to what the first one held, as the real one does (D5).
"""

import hashlib
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar, cast

from calve.clickhouse.errors import NoTableError
from calve.clickhouse.parts.content import PartFacts, content_id, file_hash, parts_content
from calve.clickhouse.parts.partitions import PartitionInfo
from calve.clickhouse.pins.pin import Pinned, PinRequest, SeenPart, pinned_partitions, refuse_gone
from calve.clickhouse.reader import Reader
from calve.clickhouse.source import Disk, LiveSource, Session
from calve.clickhouse.sql import create_table
from calve.clickhouse.tables import Column, Mutation, TableInfo
from calve.destination.plan import PartPlan, Relation
from calve.model.errors import TemporaryError, UnavailableError
from support.simulator.schedule import Program
from support.simulator.statements import Statements, write_part
from support.simulator.weather import Weather

T = TypeVar("T")
SERVICE = "clickhouse"
MODE = "modelled"
_FREEZE = re.compile(r"ALTER TABLE `?(\w+)`?\.`?(\w+)`? FREEZE PARTITION ID '([^']+)' WITH NAME '([^']+)'")


@dataclass(frozen=True, kw_only=True)
class Part:
    facts: PartFacts
    rows: tuple[str, ...]
    content: str = ""  # of its files, where it was attached from somewhere

    @property
    def hash(self) -> str:
        return self.content or hashlib.sha256("\n".join((self.facts.name, *self.rows)).encode()).hexdigest()

    def seen(self) -> SeenPart:
        mark = self.facts.mark_with(file_hash(self.hash))
        return SeenPart(self.facts.partition_id, self.facts.extent_with(len(self.rows)), mark)


@dataclass
class ModelledTable:
    database: str
    name: str
    uuid: str
    parts: dict[str, Part] = field(default_factory=dict)
    next_block: int = 1
    inserted: int = 0
    folder: Path | None = None  # of one whose parts lie on the disk: a restored one
    data_path: str = ""
    still: bool = False  # merges nothing

    def insert(self, partition: str, count: int) -> None:
        rows = tuple(f"{self.database}.{self.name}/{self.inserted + number}:0" for number in range(count))
        self.inserted += count
        block = self.next_block
        self.next_block += 1
        self._put(partition, rows, block, block, 0, 0)

    def attach(self, partition: str, rows: tuple[str, ...], content: str) -> None:
        """A part of somewhere else, renumbered."""
        block = self.next_block
        self.next_block += 1
        self._put(partition, rows, block, block, 0, 0, content)

    def merge(self, partition: str) -> None:
        """All parts of a partition into one."""
        old = self.of(partition)
        if len(old) < 2 or self.still:
            return
        facts = [part.facts for part in old]
        rows = tuple(row for part in old for row in part.rows)
        self._drop(old)
        level, mutation = max(one.level for one in facts) + 1, max(one.mutation for one in facts)
        self._put(
            partition,
            rows,
            min(one.min_block for one in facts),
            max(one.max_block for one in facts),
            level,
            mutation,
        )

    def mutate(self, partition: str) -> None:
        """ALTER TABLE … UPDATE: every row of a partition gets a new version."""
        number = self.next_block
        self.next_block += 1
        for part in self.of(partition):
            facts = part.facts
            self._drop([part])
            rows = tuple(f"{row.rpartition(':')[0]}:{number}" for row in part.rows)
            self._put(partition, rows, facts.min_block, facts.max_block, facts.level, number)

    def drop(self, partition: str) -> None:
        self._drop(self.of(partition))

    def of(self, partition: str) -> list[Part]:
        found = [part for part in self.parts.values() if part.facts.partition_id == partition]
        return sorted(found, key=lambda part: part.facts.min_block)

    @property
    def partition_ids(self) -> list[str]:
        return sorted({part.facts.partition_id for part in self.parts.values()})

    def _drop(self, parts: Sequence[Part]) -> None:
        for part in parts:
            del self.parts[part.facts.name]
            if self.folder is not None:
                shutil.rmtree(self.folder / part.facts.name)

    def _put(
        self, partition: str, rows: tuple[str, ...], low: int, high: int, level: int, mutation: int,
        content: str = "",
    ) -> None:  # fmt: skip
        name = f"{partition}_{low}_{high}_{level}" + (f"_{mutation}" if mutation else "")
        facts = PartFacts(
            name=name,
            partition_id=partition,
            rows=len(rows),
            bytes=100 * len(rows),
            min_block=low,
            max_block=high,
            level=level,
            mutation=mutation,
            data_version=mutation or low,
        )
        self.parts[name] = Part(facts=facts, rows=rows, content=content)
        if self.folder is not None:
            write_part(self.folder / name, self.parts[name])

    def info(self, source: str) -> TableInfo:
        engine = "MergeTree PARTITION BY p ORDER BY id"
        settings = " SETTINGS max_bytes_to_merge_at_max_space_in_pool = 1" if self.still else ""
        return TableInfo(
            source=source,
            database=self.database,
            name=self.name,
            uuid=self.uuid,
            identity=f"server:modelled/{self.uuid}",
            engine="MergeTree",
            clause=create_table.parse(engine + settings),
            columns=(Column(name="id", type="String"), Column(name="p", type="Int32")),
            partition_key="p",
            sorting_key="id",
            primary_key="id",
            sampling_key="",
            create_query=f"CREATE TABLE {self.database}.{self.name} (id String, p Int32) ENGINE = {engine}",
            storage_policy="default",
            data_paths=(self.data_path or f"/data/{self.uuid}/",),
            timezone="UTC",
            version="26.9.1.1",
        )


def _made(database: str, name: str, uuid: str, folder: Path) -> ModelledTable:
    return ModelledTable(database, name, uuid, folder=folder, data_path=f"{folder}/")


def _away() -> UnavailableError:
    return UnavailableError("ClickHouse does not answer", code="source_unreachable", service="source:main")


class ModelledSource:
    """`clickhouse.source.LiveSource` and its visits."""

    name = "main"
    immutable = False
    embedded = False
    source = "main"
    configured_id = None
    patience_seconds = 300.0
    unfreezes_tables = True
    unfreezes_all = True

    def __init__(self, weather: Weather, now: Callable[[], datetime], disk: Path | None = None) -> None:
        self._weather = weather
        self._now = now
        self.statements = Statements(disk or Path("/nowhere"), _made)
        self.tables = self.statements.tables
        self.frozen: dict[str, list[Part]] = {}  # what each pin holds now
        self.held: dict[str, list[Part]] = {}  # what each pin ever held
        self.late: dict[str, Program] = {}  # who took a pin after its release
        self._released: set[str] = set()

    def as_source(self) -> LiveSource:
        return cast(LiveSource, self)

    @property
    def need(self) -> str:
        return "source:main"

    def _call(self, kind: str, work: Callable[[], T], latency: float = 0.005) -> T:
        return self._weather.call(f"source.{kind}", work, failed=_away, latency=latency, service=SERVICE)

    # -- a source -----------------------------------------------------------------------------------

    def establish(self) -> None:
        """It is there."""

    @contextmanager
    def visit(self) -> Iterator[Session]:
        self._call("read", lambda: None)
        yield cast(Session, self)

    def visits(self) -> Sequence[AbstractContextManager[Session]]:
        return [self.visit()]

    def pin(self, request: PinRequest, name: str) -> Pinned:
        found = self._table(request.database, request.table)
        table = found.info(self.name)

        def freeze() -> None:
            if name in self.frozen:
                raise TemporaryError(f"the pin {name} exists already", code="pin_taken")
            now = [part for part in found.parts.values() if part.facts.partition_id in request.partitions]
            self._hold(name, now)
            if name in self._released and (taker := self._weather.schedule.last) is not None:
                self.late[name] = taker

        self._call("pin", freeze, 0.05)
        parts = self._call("read", lambda: list(self.frozen.get(name, [])))
        refuse_gone(table, request, (part.facts.name for part in parts))
        chosen = [part for part in parts if not request.parts or part.facts.name in request.parts]
        return Pinned(
            identity=table.identity,
            engine=table.engine,
            columns=table.columns,
            partition_key=table.partition_key,
            sorting_key=table.sorting_key,
            relation=Relation(mode=MODE),
            parts=tuple(
                part.facts.plan_with(path=f"{name}/{part.facts.name}", content=part.hash) for part in chosen
            ),
            partitions=pinned_partitions(
                (part.seen() for part in chosen), marked=True, named=bool(request.parts)
            ),
            roots=(),
        )

    def release(self, name: str, detail: str) -> None:
        def unfreeze() -> None:
            self.statements.unfreeze(name)
            self.frozen.pop(name, None)
            self._released.add(name)

        self._call("release", unfreeze, 0.05)

    def reader(self, relation: Relation) -> Reader:
        return Reader(function="calve.modelled:opened")

    def pinned_rows(self, part: PartPlan) -> tuple[str, ...]:
        """What an executor reads."""
        pin, _, name = part.path.partition("/")
        parts = self._call(
            "read", lambda: [one for one in self.frozen.get(pin, []) if one.facts.name == name]
        )
        if not parts:
            raise UnavailableError(f"part {name} is no longer pinned by {pin}", code="part_gone")
        return parts[0].rows

    # -- a visit ------------------------------------------------------------------------------------

    def describe(self, database: str, table: str) -> TableInfo:
        return self._table(database, table).info(self.name)

    def partitions(self, table: TableInfo) -> list[PartitionInfo]:
        found = self._table(table.database, table.name)
        return [self._partition(found, partition) for partition in found.partition_ids]

    def _partition(self, table: ModelledTable, partition: str) -> PartitionInfo:
        parts = table.of(partition)
        seen = [part.seen() for part in parts]
        return PartitionInfo(
            id=partition,
            value=partition,
            rows=sum(len(part.rows) for part in parts),
            bytes=sum(part.facts.bytes for part in parts),
            parts=len(parts),
            modified_at=self._now(),
            min_block=min(part.facts.min_block for part in parts),
            max_block=max(part.facts.max_block for part in parts),
            mutation=max(part.facts.mutation for part in parts),
            content=content_id((one.extent for one in seen), (one.mark for one in seen)),
            disks=("default",),
        )

    def parts(
        self, table: TableInfo, partition_ids: Sequence[str] = (), names: Sequence[str] = ()
    ) -> tuple[PartPlan, ...]:
        found = self._table(table.database, table.name)
        return tuple(
            part.facts.plan_with(content=part.hash)
            for partition in found.partition_ids
            for part in found.of(partition)
            if (not partition_ids or partition in partition_ids) and (not names or part.facts.name in names)
        )

    def named_content(self, table: TableInfo, partition_id: str, names: Sequence[str]) -> str:
        parts = self._table(table.database, table.name).of(partition_id)
        return parts_content(part.seen().mark.hash for part in parts if part.facts.name in names)

    def refuse_unfinished(
        self, table: TableInfo, partition_ids: Sequence[str] = (), *, ignore: bool
    ) -> tuple[str, ...]:
        return ()

    def unfinished_mutations(self, table: object) -> tuple[Mutation, ...]:
        return ()

    def check_where(self, table: TableInfo, where: str) -> None:
        """Nothing here is filtered."""

    def now(self) -> datetime:
        return self._now()

    def remarks(self) -> tuple[str, ...]:
        return ()

    def command_for(self, table: TableInfo) -> str:
        return f"calve partitions {table}"

    def cannot_recompute(self) -> str:
        return ""

    def pin_names(self) -> tuple[str, ...]:
        return tuple(self.frozen)

    def rows(
        self,
        sql: str,
        settings: Mapping[str, str] | None = None,
        what: str = "",
        seconds: float | None = None,
    ) -> list[dict[str, Any]]:
        return self._call("read", lambda: self.statements.rows(sql))

    def execute(
        self,
        sql: str,
        settings: Mapping[str, str] | None = None,
        what: str = "",
        seconds: float | None = None,
        query_id: str = "",
    ) -> None:
        if found := _FREEZE.match(sql):
            database, name, partition, pin = found.groups()
            self._call(
                "pin", lambda: self._freeze(pin, self.statements.table(database, name), partition), 0.05
            )
        else:
            self._call("execute", lambda: self.statements.effect(sql), 0.02)

    def disks(self) -> tuple[Disk, ...]:
        return (Disk(name="default", path=self.statements.disk),)

    def buckets(self) -> dict[str, str]:
        return {}

    def _freeze(self, pin: str, table: ModelledTable, partition: str) -> None:
        parts = table.of(partition)
        self._hold(pin, parts)
        self.statements.freeze(pin, table, parts)
        if pin in self._released and (taker := self._weather.schedule.last) is not None:
            self.late[pin] = taker

    def _hold(self, pin: str, parts: list[Part]) -> None:
        if pin not in self.frozen:
            self.held[pin] = []  # taken anew, by a store that does not know of the first time
        self.frozen.setdefault(pin, []).extend(parts)
        self.held[pin].extend(parts)

    def _table(self, database: str, name: str) -> ModelledTable:
        found = self._call("read", lambda: self.tables.get((database, name)))
        if found is None:
            raise NoTableError(f"table {database}.{name} does not exist", code="no_table")
        return found


def row_id(row: str) -> str:
    """A row, whatever its version."""
    return re.sub(r":\d+$", "", row)


def versioned(part: Part, rows: tuple[str, ...]) -> Part:
    return replace(part, rows=rows)
