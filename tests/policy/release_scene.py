"""A release over a world in memory: a table, quarantines, a lake's marks and a view, with a worker that is ticked by hand.

The world checks after every call what must hold at every moment, by value: each row is shown once by the view, no row
is lost, and nothing is out of the table that the lake would let somebody replace."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from random import Random
from typing import Any, cast

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField

from calve.clickhouse.sql.create_table import EngineClause
from calve.clickhouse.tables import TableInfo
from calve.clickhouse.tier.obstacles import Obstacle
from calve.clickhouse.tier.quarantine import HeldPart, QuarantineAttempt, QuarantinePlace, twins
from calve.control.background import inline
from calve.control.ports import TaskOrder, TaskResult
from calve.control.worker import WorkerLoop
from calve.destination.names import DestinationAddress
from calve.destination.proof import Scan, ScanFile
from calve.iceberg.released import ReleaseMark
from calve.model.access import Asked
from calve.model.change import Change, Item
from calve.model.errors import NotFoundError, PermanentError, RefusedError, TemporaryError
from calve.model.limits import Limits
from calve.model.process import GuardedTable, Lease, Process, ProcessId, WorkerId
from calve.model.reach import Service
from calve.model.states import PROCESS_TERMINAL
from calve.model.tier import Announced, Approval, Intent, Release
from calve.policy.proof.plan import Depth, ProofPlan, ProofReceipt, SourceRows
from calve.policy.release.drop import DropKind, DropRequest
from calve.policy.release.kind import ReleaseKind
from calve.policy.release.plan import ReleasePlan, ReleaseRequest
from calve.policy.release.ports import SeenPartition
from calve.policy.release.undo import ReturnKind, ReturnRequest
from calve.policy.row_hash import HashedColumn, RowSums
from calve.testing.clock import FakeClock
from calve.testing.faults import Faults, crashing_kind, crashing_runner, crashing_store
from calve.testing.memory_store import MemoryStore

IDENTITY, UUID, PARTITION, TO = "server/table", "u1", "202401", "lake.ns.events"
SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))
METADATA = new_table_metadata(
    SCHEMA, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///lake/ns/events"
)
SCAN = replace(
    Scan.of(METADATA, [], "100", current=True),
    files=(ScanFile(path="file-1", bytes=10, rows=6, spec_id=0),),
)
REQUEST = ReleaseRequest(
    policy="events", hash="h1", export="export-1", source="main", database="db", table="events", identity=IDENTITY,
    partition=PARTITION, destination=TO, catalog="lake", identifier=("ns", "events"),
)  # fmt: skip
TABLE = TableInfo(
    source="main", database="db", name="events", uuid=UUID, identity=IDENTITY, engine="MergeTree",
    clause=EngineClause(name="MergeTree", arguments=(), settings={}), columns=(), partition_key="toYYYYMM(day)",
    sorting_key="id", primary_key="id", sampling_key="", create_query="", storage_policy="", data_paths=(),
    timezone="UTC", version="26.9",
)  # fmt: skip
ROWS = (frozenset({1, 2, 3}), frozenset({4, 5, 6}))
ALL = sorted(ROWS[0] | ROWS[1])


def sums(rows: Sequence[int]) -> RowSums:
    return RowSums(rows=len(rows), first=sum(rows), second=sum(one * one for one in rows))


@dataclass(frozen=True)
class Part:
    rows: frozenset[int]
    block: int

    @property
    def hash(self) -> str:
        return f"h{sorted(self.rows)}"

    @property
    def listed(self) -> HeldPart:
        return HeldPart(
            name=f"p{self.block}", rows=len(self.rows), bytes=1, hash=self.hash, min_block=self.block
        )


@dataclass
class World:
    """The table and the lake. `before` is done once, before the next call of that name."""

    faults: Faults
    table: list[Part] = field(default_factory=lambda: [Part(rows, at) for at, rows in enumerate(ROWS, 1)])
    places: dict[str, list[Part]] = field(default_factory=dict)  # by name, open or closed
    lake: list[int] = field(default_factory=lambda: list(ALL))
    marks: dict[str, str] = field(
        default_factory=dict
    )  # the content that came back, by process; "" while it is out
    head: int = 100
    files: tuple[str, ...] = ("file-1",)
    content: str = "content-1"
    mutations: tuple[str, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()
    cold: bool = False  # the view reads the lake
    blocks: int = 10
    allowed_to_lose: bool = False
    dropped: list[int] = field(default_factory=list)
    before: dict[str, Callable[[], None]] = field(default_factory=dict)
    moves: int = 0
    came_back_after: set[str] = field(default_factory=set)  # mutations that rows came back under
    problems: list[str] = field(default_factory=list)

    def do(self, name: str, work: Callable[[], Any]) -> Any:
        if hook := self.before.pop(name, None):
            hook()
        try:
            return self.faults.call(name, TemporaryError, work)
        finally:
            self.check(name)

    @property
    def hot(self) -> list[int]:
        return sorted(row for part in self.table for row in part.rows)

    @property
    def held(self) -> list[int]:
        return sorted(row for some in self.places.values() for part in some for row in part.rows)

    @property
    def shown(self) -> list[int]:
        return sorted(self.lake) if self.cold else self.hot

    def check(self, after: str) -> None:
        kept = sorted([*self.hot, *self.held, *self.dropped])
        if not self.allowed_to_lose and kept != sorted(self.everything):
            self.problems.append(f"after {after}: {self.hot} in the table and {self.held} in quarantine")
        if set(self.dropped) - set(self.lake):
            self.problems.append(f"after {after}: rows are dropped that the lake does not have")
        if (self.held or self.dropped) and "" not in self.marks.values():
            self.problems.append(f"after {after}: rows are out of the table, and the lake has no mark")
        if sorted(self.lake) == ALL and not (set(ALL) <= set(self.shown)):
            self.problems.append(f"after {after}: the view shows {self.shown}")

    everything: list[int] = field(default_factory=lambda: list(ALL))

    def insert(self, row: int) -> None:
        self.blocks += 1
        self.table.append(Part(frozenset({row}), self.blocks))
        self.everything.append(row)
        self.content = "content-2"


@dataclass
class FakeHot:
    world: World

    def look(self) -> SeenPartition:
        world = self.world
        return SeenPartition(
            table=TABLE,
            content=world.content if world.table else "",
            top=max((part.block for part in world.table), default=0),
            hashes=frozenset(part.hash for part in world.table),
            twins=twins(part.hash for part in world.table),
            mutations=world.mutations,
            obstacles=world.obstacles,
        )

    def _name(self, attempt: QuarantineAttempt, stage: str) -> str:
        return f"{UUID}_{attempt.number}{stage}"

    def _found(self, attempt: QuarantineAttempt) -> list[str]:
        return [
            name
            for name in (self._name(attempt, stage) for stage in ("_open", "", "_back"))
            if name in self.world.places
        ]

    def prepare(self, attempt: QuarantineAttempt) -> None:
        def work() -> None:
            if not self._found(attempt):
                self.world.places[self._name(attempt, "_open")] = []

        self.world.do("prepare", work)

    def take_out(self, attempt: QuarantineAttempt, query_id: str) -> None:
        def work() -> None:
            place = self.world.places.get(self._name(attempt, "_open"))
            if place is None:
                raise NotFoundError("no such table", code="no_table")
            self.world.moves += 1
            place += self.world.table
            self.world.table = []

        self.world.do("take_out", work)

    def close(self, attempt: QuarantineAttempt, query_ids: Sequence[str]) -> None:
        def work() -> None:
            for stage in ("_open", "_back"):
                place = self.world.places.pop(self._name(attempt, stage), None)
                if place is not None:
                    self.world.places[self._name(attempt, "")] = place

        self.world.do("close", work)

    def put_back(self, attempt: QuarantineAttempt, query_id: str) -> None:
        def work() -> None:
            assert self._name(attempt, "_open") not in self.world.places
            for stage in ("", "_back"):
                place = self.world.places.pop(self._name(attempt, stage), [])
                for part in place:
                    self.world.blocks += 1
                    self.world.table.append(Part(part.rows, self.world.blocks))
                    self.world.came_back_after |= set(self.world.mutations)
            self.world.places[self._name(attempt, "_back")] = []

        self.world.do("put_back", work)

    def thin(self, attempt: QuarantineAttempt, query_id: str) -> None:
        def work() -> None:
            there = {part.rows for part in self.world.table}
            for name in self._found(attempt):
                self.world.places[name] = [one for one in self.world.places[name] if one.rows not in there]

        self.world.do("thin", work)

    def _doomed(self, attempt: QuarantineAttempt, process_id: str) -> str:
        return self._name(attempt, f"_drop_{process_id}")

    def remove(self, attempt: QuarantineAttempt, process_id: str, query_id: str) -> None:
        def work() -> None:
            closed = self.world.places.pop(self._name(attempt, ""), None)
            if closed is not None:
                self.world.places[self._doomed(attempt, process_id)] = closed
            self.drop_statement(attempt, process_id)

        self.world.do("remove", work)

    def drop_statement(self, attempt: QuarantineAttempt, process_id: str) -> None:
        for part in self.world.places.pop(self._doomed(attempt, process_id), []):
            self.world.dropped += part.rows

    def spare(self, attempt: QuarantineAttempt, process_id: str, query_ids: Sequence[str]) -> None:
        def work() -> None:
            doomed = self.world.places.pop(self._doomed(attempt, process_id), None)
            if doomed is not None:
                self.world.places[self._name(attempt, "")] = doomed

        self.world.do("spare", work)

    def is_gone(self, attempt: QuarantineAttempt, process_id: str) -> bool:
        return not self._found(attempt) and self._doomed(attempt, process_id) not in self.world.places

    def misfits(self, attempt: QuarantineAttempt) -> tuple[str, ...]:
        return ()

    def placements(self, attempt: QuarantineAttempt) -> list[QuarantinePlace]:
        found = self._found(attempt)
        return [
            QuarantinePlace(
                live=tuple(part.listed for part in self.world.table),
                held=tuple(part.listed for name in found for part in self.world.places[name]),
                closed=self._name(attempt, "_open") not in found,
                top=attempt.top,
                known=attempt.hashes,
            )
        ]

    def held(self, attempt: QuarantineAttempt) -> RowSums:
        return sums(
            [row for name in self._found(attempt) for part in self.world.places[name] for row in part.rows]
        )

    def live(self, attempt: QuarantineAttempt) -> RowSums:
        late = {part.name for part in self.placements(attempt)[0].late}
        return sums([row for part in self.world.table if part.listed.name not in late for row in part.rows])

    def content(self, attempt: QuarantineAttempt) -> str:
        return "content-back"


@dataclass
class FakeCold:
    world: World

    def scan(self) -> Scan:
        files = tuple(ScanFile(path=path, bytes=10, rows=6, spec_id=0) for path in self.world.files)
        return replace(SCAN, files=files, snapshot_id=str(self.world.head))

    def is_marked(self, process_id: str) -> bool:
        return self.world.marks.get(process_id) == ""

    def mark(self, process_id: str, mark: ReleaseMark, head: str) -> None:
        def work() -> None:
            if self.world.marks.get(process_id):
                raise PermanentError("it was taken back", code="publish_fenced")
            if not self.is_marked(process_id):
                if head != str(self.world.head):
                    raise TemporaryError("the head moved", code="head_moved")
                self.world.head += 1
                self.world.marks[process_id] = ""

        self.world.do("mark", work)

    def unmark(self, process_id: str, content: str) -> None:
        def work() -> None:
            self.world.head += 1
            self.world.marks[process_id] = content or "-"
            if content and len(self.world.table) == len(ROWS):
                self.world.content = "content-1"

        self.world.do("unmark", work)


@dataclass
class FakeView:
    world: World
    older_queries: list[str] = field(default_factory=list)

    def turn(self, *, cold: bool) -> None:
        self.world.do("turn", lambda: setattr(self.world, "cold", cold))

    def older(self) -> str:
        return self.older_queries.pop(0) if self.older_queries else ""

    def differs(self, attempt: QuarantineAttempt) -> str:
        return "" if sums(self.world.lake) == FakeHot(self.world).held(attempt) else "other rows"


class ReleaseScene:
    """Everything that releases one partition."""

    limits = Limits(slots=2)

    def __init__(self, faults: Faults | None = None, *, view: bool = True) -> None:
        self.faults = faults or Faults()
        self.world = World(self.faults)
        self.view: FakeView | None = FakeView(self.world) if view else None
        self.clock = FakeClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.memory = MemoryStore(self.clock)
        self.backup = "nightly"  # that has what is in quarantine
        self.hash = "h1"  # of the policy in this program's configuration
        self.appeared = False  # somebody made a view that the plan does not know
        self._store = crashing_store(self.memory, self.faults)
        self._workers = 0
        approved = Approval(
            what="release", policy="events", hash="h1", identity=IDENTITY, destination=TO, who="anne"
        )
        self.memory.approve(approved, Asked(who="anne", verb="policy_approve"))

    # -- what the kinds reach -----------------------------------------------------------------------

    def survey(self, request: ReleaseRequest, process_id: ProcessId) -> ReleasePlan:
        proof = ProofPlan(
            process_id=process_id, export=request.export, depth=Depth.ROWS, scan=SCAN, tasks=((0,),),
            schema=SCHEMA.model_dump_json(), columns=(HashedColumn(field_id=1, expression="id", type="Int64"),),
            rows=SourceRows(identity=IDENTITY, contents={PARTITION: "content-1"}),
        )  # fmt: skip
        return ReleasePlan(
            process_id=process_id, request=request, uuid=UUID, lake_uuid="lake-1", key_hash="key-1",
            input=(IDENTITY, PARTITION, ""), content="content-1", view="db.all" if self.view else "", proof=proof,
        )  # fmt: skip

    def hot(self, plan: ReleasePlan) -> FakeHot:
        return FakeHot(self.world)

    def cold(self, plan: ReleasePlan) -> FakeCold:
        return FakeCold(self.world)

    def shown(self, plan: ReleasePlan) -> FakeView | None:
        return self.view

    def check_view(self, plan: ReleasePlan) -> None:
        if self.view is None and self.appeared:
            raise RefusedError("a view was made meanwhile", code="view_appeared")

    def keys(self, address: DestinationAddress) -> Mapping[str, str]:
        return {}

    def announce(self) -> None:
        if self.hash:
            self.memory.announce("worker", [Announced(program="worker", name="events", hash=self.hash)])

    def guard(self, table: GuardedTable) -> int:
        return self.memory.guard(table)

    def releases(self, identity: str, destination: str) -> list[Release]:
        return self.memory.releases(identity, destination)

    def intents(self, process_id: ProcessId) -> list[Intent]:
        return self.memory.intents(process_id)

    def store_id(self) -> str:
        return "store-1"

    def journal(self, process: Process, *items: Item) -> None:
        assert process.owner is not None
        self._store.apply(
            Lease(process_id=process.id, worker=process.owner, fence=process.fence), Change(*items)
        )

    def now(self) -> datetime:
        return self.memory.now()

    def check_backup(self, plan: ReleasePlan, release: Release, backup: str, *, read: bool) -> None:
        if backup not in ("", self.backup):
            raise RefusedError("no such backup", code="no_backup")

    def plan_of(self, process_id: ProcessId) -> ReleasePlan:
        text = self.memory.plan(process_id)
        assert text is not None
        return ReleasePlan.from_json(text)

    def probe(self, service: Service, address: DestinationAddress) -> None: ...

    # -- what a test does ---------------------------------------------------------------------------

    def submit(self) -> ProcessId:
        new = REQUEST.process("release", needs=["source:main"], locks=["lock"], deadline_seconds=86_400.0)
        return self.memory.submit([new])[0].id

    def submit_undo(self, release: ProcessId, *, insist: bool = False) -> ProcessId:
        request = ReturnRequest(release=release, of=REQUEST, insist=insist)
        new = request.process(needs=["source:main"], locks=["lock"], deadline_seconds=86_400.0)
        return self.memory.submit([new])[0].id

    def submit_drop(self, release: ProcessId, *, approved: bool = True, backup: str = "nightly") -> ProcessId:
        request = DropRequest(
            release=release, of=REQUEST, hash="plan-1", grace_seconds=86_400.0, backup=backup
        )
        if approved:
            allowed = Approval(what="drop", hash="plan-1", identity=IDENTITY, destination=TO, who="anne")
            self.memory.approve(allowed, Asked(who="anne", verb="policy_drop"))
        new = request.process(needs=["source:main"], locks=["lock"], deadline_seconds=86_400.0)
        return self.memory.submit([new])[0].id

    # The runner of the worker: every order is answered with what the lake had when it was run.
    slots = 2

    def run(self, group: str, orders: Sequence[TaskOrder], on_result: Any) -> None:
        for order in orders:
            receipt = ProofReceipt(
                rows=len(self.world.lake), bytes=10, sums=str(sums(self.world.lake)), others=str(RowSums())
            )
            on_result(
                TaskResult(
                    number=order.number,
                    attempt=order.attempt,
                    receipt=receipt.to_json(),
                    rows=receipt.rows,
                    files=1,
                    bytes=10,
                )
            )

    def cancel(self, group: str) -> None: ...

    def close(self) -> None: ...

    def worker(self) -> WorkerLoop:
        self._workers += 1
        kinds = {
            "release": ReleaseKind(cast(Any, self)),
            "return": ReturnKind(cast(Any, self)),
            "drop": DropKind(cast(Any, self)),
        }
        return WorkerLoop(
            store=self._store,
            kinds={name: crashing_kind(kind, self.faults) for name, kind in kinds.items()},
            runner=crashing_runner(cast(Any, self), self.faults),
            limits=self.limits,
            reach=frozenset({"catalog:lake", "source:main"}),
            worker_id=WorkerId(f"worker-{self._workers}"),
            spawn=inline,
            monotonic=self.clock.offset_seconds,
            random=Random(0).random,
        )

    def settle(self, id: ProcessId, worker: WorkerLoop | None = None, ticks: int = 400) -> Process:
        worker = worker or self.worker()
        for _ in range(ticks):
            worker.tick()
            if self.memory.process(id).state in PROCESS_TERMINAL:
                break
            self.clock.advance(5.0)
        return self.memory.process(id)

    @property
    def release(self) -> Release:
        [found] = self.memory.releases(IDENTITY)
        return found
