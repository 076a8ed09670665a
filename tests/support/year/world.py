"""One year: the services, the installations, the people, and a clock that jumps from one busy hour to the next."""

import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any
from unittest.mock import patch

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.utils.concurrent import ExecutorFactory

from calve.app.policies import residents, tier
from calve.export.kind import TASK_FUNCTION
from calve.model.errors import CalveError
from calve.model.tier import RELEASE_OPEN
from calve.policy.proof import task as proof_task
from support.simulator.catalog import Name
from support.simulator.chance import seeded
from support.simulator.objects import ModelledFileIO, ModelledObjects
from support.simulator.people import Action, Script
from support.simulator.schedule import Program, Schedule, Stuck
from support.simulator.spark import ModelledCluster
from support.simulator.weather import Fault, Weather
from support.year.catalog import VersionedCatalog
from support.year.clickhouse import YearServer, YearTable
from support.year.installation import Installation
from support.year.ledger import YearLedger
from support.year.quick_avro import quick_avro
from support.year.rows import KnownRows
from support.year.stores import RememberedStore
from support.year.tasks import ParquetTask

DAY = 86_400.0
DAYS = 365
CALM_DAYS = 4  # at the end nothing fails, and all must have ended within so many
ODD = (
    "cyclic",
    "combining",
    "hidden",
    "whole",
    "fading",
    "old",
    "lagging",
    "weekly",
    "daily",
    "ended",
    "brief",
)
VERBS = (
    "late", "late", "late", "merge", "mutate", "erase", "erase", "hold", "hold", "let_go", "pause", "resume", "edit", "undo", "undo",
    "undo_force", "drop", "drop", "drop", "drop", "force", "force", "new_parts", "cancel", "compact", "compact", "lake_delete", "expire",
    "rollback", "kill", "skew", "reader", "reader", "copy", "restore", "die_inside", "outage", "pending", "remove_policy", "future", "epoch",
    "meddle", "meddle", "meddle", "meddle", "revoke", "drop_partition", "untier", "untier",
)  # fmt: skip
_LAST_DAILY = date(2026, 1, 20)  # a year has many days
LIVELY_SECONDS = 900.0  # at most, in one busy hour


@dataclass(frozen=True)
class YearCase:
    """What a year is made from. `faults` and `actions`: only those, by name, where given. `tables` and `rule` decide what the seed
    would: which odd tables there are, and keys of the policy."""

    seed: int
    days: int = DAYS
    deeds: tuple[str, ...] = ()  # what people do, one every few days; else the seed chooses
    asked: bool = True  # what a policy asks for is approved from time to time
    tables: tuple[str, ...] = ()
    rule: tuple[tuple[str, str], ...] = ()
    faults: frozenset[str] | None = None
    actions: frozenset[str] | None = None
    log: Callable[[str], None] | None = None


class Broken(Exception):
    """Something that must hold does not: the rest of the year says nothing more."""


class _OneThread(Executor):
    """One thread is all there is."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> "Future[Any]":
        made: Future[Any] = Future()
        try:
            made.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - as any executor
            made.set_exception(error)
        return made


class _Counted:
    """`secrets` where the view's flips are signed."""

    def __init__(self, schedule: Schedule) -> None:
        self._random = schedule.random("writers")

    def token_hex(self, count: int) -> str:
        return f"{self._random.getrandbits(8 * count):0{2 * count}x}"


@dataclass(eq=False)
class YearWorld:
    case: YearCase
    installations: list[Installation] = field(default_factory=list)
    copies: dict[str, Any] = field(default_factory=dict)  # of stores

    def __post_init__(self) -> None:
        schedule = self.schedule = Schedule(seed=self.case.seed, log=self.case.log, most_steps=3_000_000)
        nature = self.nature = schedule.random("nature")
        kinds = [fault for fault in Fault if nature.random() < 0.7]
        self.rate = nature.choice((0.0, 0.003, 0.008))
        self.weather = Weather(schedule=schedule, rate=0.0, faults=frozenset(kinds), kept=self.case.faults)
        self.known = KnownRows()
        self.objects = ModelledObjects(self.weather)
        self.catalog = VersionedCatalog("lake", self.weather, self.objects, self._after_commit)
        self.server = YearServer(self.weather, schedule.clock, self.known)
        self.ledger = YearLedger(self)
        self.server.lake_rows = self._lake_rows
        self.server.before_effect = self.ledger.before
        self.server.after_effect = self.ledger.after
        self.objects.before_delete.append(self.ledger.before_delete)
        self.cluster = ModelledCluster(
            schedule=schedule,
            weather=self.weather,
            tasks={
                TASK_FUNCTION: ParquetTask(self.server, self.objects, self.known),
                proof_task.FUNCTION: proof_task.run,
            },
            rate=self.rate * 10,
        )
        many = nature.choice((25, 40, 60)) if self.case.days == DAYS else self.case.days // 3
        self.script = Script.of(
            nature, self.case.deeds or VERBS, many, self.case.days * DAY, self.case.actions
        )
        self._read: dict[str, Mapping[str, list[str]]] = {}  # by metadata file, which never changes
        self.problems: list[str] = []
        self.people = 0  # at work now
        self.planned: list[tuple[float, Callable[[], object]]] = []

    @property
    def now(self) -> datetime:
        return self.schedule.clock()

    @property
    def today(self) -> date:
        return self.now.date()

    def _lake_rows(self, location: str, metadata: str) -> Mapping[str, list[str]]:
        """By partition of the table that it is the lake of, as a server reads that metadata file."""
        where = f"s3://{location}/{metadata}"
        if where not in self._read:
            table = self.server.year_tables["db", location.rpartition("/")[2]]
            rows: dict[str, list[str]] = {}
            for uri in sorted(self.catalog.head_files(self.catalog.files_of[where])):
                for row in self.known.files[uri]:
                    rows.setdefault(table.partition_of(self.known.day(row)), []).append(row)
            self._read[where] = rows
        return self._read[where]

    def _after_commit(self, name: Name, before: TableMetadata, after: TableMetadata) -> None:
        self.ledger.committed(name, before, after)

    # -- a run --------------------------------------------------------------------------------------

    @contextmanager
    def opened(self) -> Iterator["YearWorld"]:
        log = logging.getLogger("calve")
        with ExitStack() as stack:
            stack.enter_context(seeded(self.schedule))
            stack.enter_context(
                patch.object(proof_task, "load_file_io", lambda *_: ModelledFileIO(self.objects))
            )
            stack.enter_context(patch.object(ExecutorFactory, "get_or_create", staticmethod(_OneThread)))
            for module in (tier, residents):
                stack.enter_context(patch.object(module, "secrets", _Counted(self.schedule)))
            stack.callback(log.setLevel, log.level)
            stack.enter_context(quick_avro())
            log.setLevel(logging.CRITICAL)
            self._begin_tables()
            sql = self.nature.random() < 0.1
            for name, rules in self._rules().items():
                remembered = stack.enter_context(RememberedStore.opened(self.schedule, sql=sql))
                self.installations.append(Installation(self, name, rules, remembered))
            stack.callback(self.schedule.close)
            yield self

    def live(self) -> None:
        for one in self.installations:
            for number in range(self.nature.choice((1, 1, 2))):
                one.start(after=5.0 * number)
        actions = list(self.script.to_do())
        traffic = self.schedule.random("traffic")
        while self.schedule.now < self.case.days * DAY:
            self._jump(traffic.uniform(4.0, 11.0) * DAY)
            self._traffic(traffic)
            due = [one for one in actions if one.at <= self.schedule.now]
            actions = [one for one in actions if one not in due]
            self._do_planned()
            if traffic.random() < 0.7 and self.case.asked:
                due.append(Action(name="routine", at=0.0, verb="approve", chance=traffic.getrandbits(32)))
            for place, action in enumerate(due):
                self._begin(action, 20.0 * place + action.random.uniform(1.0, 40.0))
            stormy = self.schedule.random(f"storm/{self.schedule.now}").random() < 0.5
            self.weather.rate, self.weather.stormy = (self.rate if stormy else 0.0), True
            self._be_busy()
        self._calm()

    def later(self, seconds: float, work: Callable[[], object]) -> None:
        """Somebody does it then."""
        self.planned.append((self.schedule.now + seconds, work))

    def _stop_if_broken(self) -> None:
        if self.problems or self.schedule.failures:
            raise Broken

    def _do_planned(self, *, everything: bool = False) -> None:
        due = [one for one in self.planned if everything or one[0] <= self.schedule.now]
        self.planned = [one for one in self.planned if one not in due]
        for _, work in due:
            with self.schedule.aside():
                work()

    def _begin(self, action: Action, after: float) -> None:
        from support.year.people import act

        def work() -> None:
            try:
                act(self, action)
            except CalveError as error:
                self.schedule.tell(f"{action.name} is answered {error.code}: {error.message[:160]}")
            finally:
                self.people -= 1

        self.people += 1
        self.schedule.spawn(Program(f"person {action.name}"), action.verb, work, after)

    def _jump(self, seconds: float) -> None:
        """Nothing runs meanwhile, as on a machine that sleeps; the world outside goes on."""
        at = self.schedule.now + seconds
        for one in self.installations:
            for member in one.members:
                member.program.stopped_until = at
        self.schedule.run(at)
        self.schedule.tell(f"it is {self.today}")

    def _be_busy(self) -> None:
        begin = self.schedule.now
        while self.schedule.now < begin + LIVELY_SECONDS:
            self.schedule.run(self.schedule.now + 5.0)
            self._stop_if_broken()
            self.weather.land()
            for one in self.installations:
                for member in [each for each in one.members if not each.program.alive]:
                    one.members.remove(member)
                    one.start(after=5.0)
            quiet = not any(one.open_processes() for one in self.installations)
            if quiet and not self.people and self.schedule.now >= begin + 65.0:
                break

    def _calm(self) -> None:
        """Nothing fails any more, holds are gone: everything ends."""
        self.schedule.tell("the year is over")
        self.weather.clear()
        self.weather.rate = 0.0
        self._do_planned(everything=True)
        self.server.skew = timedelta()
        self.server.readers.clear()
        self.server.meddlers.clear()
        for table in self.server.year_tables.values():
            table.pending.clear()
        for _ in range(CALM_DAYS):
            self._jump(DAY)
            for one in self.installations:
                one.bring_back_what_was_kept_out()
            self._be_busy()
        self.weather.land(all_of_them=True)
        for one in self.installations:
            rows = [row for row in one.processes() if row.state.value in ("PENDING", "RUNNING", "PUBLISHING")]
            if rows:
                raise Stuck(
                    f"{CALM_DAYS} days after the year: {rows[0].kind} {rows[0].id} is {rows[0].state} ({rows[0].error})"
                )
            if open_ := one.store.releases_in(RELEASE_OPEN):
                raise Stuck(
                    f"{CALM_DAYS} days after the year: partition {open_[0].partition} is {open_[0].state} for ever"
                )
        self.ledger.check("the end")
        self.ledger.check_turned_back()

    # -- tables -------------------------------------------------------------------------------------

    def _begin_tables(self) -> None:
        self.catalog.spaces |= {("ns",)}
        odd = self.nature.sample(ODD, k=self.nature.choice((0, 1, 1, 2)))
        odd = list(self.case.tables) or odd
        for name in ("events", *odd):
            table = YearTable(
                "db", name, f"0000000{len(self.server.year_tables)}-0000-4000-8000-000000000000"
            )
            match name:
                case "cyclic":
                    table.key = "cyclic"
                case "combining":
                    table.engine = "ReplacingMergeTree"
                case "hidden":
                    table.policies = ("p1",)
                case "whole":
                    table.key = "none"
                case "fading":
                    table.ttl_days = self.nature.choice((50, 70, 90, 200))
                case "brief":
                    table.ttl_days = 45
                case "old":
                    table.version = "23.1.1.1"
                case "lagging":
                    table.engine = "ReplicatedMergeTree"
                case "weekly":
                    table.key = "week"
                case "daily":
                    table.key = "day"
            self.server.year_tables[table.full] = table
            first = date(2025, 10, 15)
            for month in range(3):
                self.insert(table, first + timedelta(days=30 * month), 3)
        self.ledger.check("the beginning")

    def _rules(self) -> dict[str, dict[str, dict[str, str]]]:
        nature = self.nature
        rule = {
            "source": "main:db.*",
            "to": "lake.ns.{table}",
            "export_after": "2d",
            "quiet": "6h",
            "look_every": "1m",
            "on_late_rows": nature.choice(("hold", "append", "replace")),
            "release": "quarantine",
            "release_after": nature.choice(("3d", "3d", "10d", "25d")),
            "only_copy": nature.choice(("", "accepted", "accepted", "accepted")),
        }
        if nature.random() < 0.6:
            rule["view"] = "{database}.{table}_all"
        rule |= dict(self.case.rule)
        made = {"a": {"tier": rule}}
        if nature.random() < 0.4:
            made["b"] = {"tier": rule | {"release": nature.choice(("never", "quarantine"))}}
        return made

    def insert(self, table: YearTable, day: date, count: int) -> None:
        ids = [f"{table.name}/{table.inserted + number}" for number in range(count)]
        table.inserted += count
        rows = [f"{id}:0" for id in ids]
        for id in ids:
            self.known.days[id] = day
        table.put(rows, table.partition_of(day), self.now)
        self.ledger.inserted(table, rows)

    def _traffic(self, chance: Any) -> None:
        """What comes and goes by itself."""
        today = self.today
        for table in list(self.server.year_tables.values()):
            if table.database != "db":
                continue
            ended = table.name == "ended" or (table.name == "daily" and today >= _LAST_DAILY)
            for _ in range(0 if ended else 2):
                self.insert(table, today - timedelta(days=chance.randint(0, 4)), chance.randint(1, 3))
            if table.ttl_days:
                self._expire(table)
            if chance.random() < 0.3 and table.partition_ids:
                table.merge(chance.choice(table.partition_ids))
        self.ledger.check("the day's traffic")

    def _expire(self, table: YearTable) -> None:
        for partition in table.partition_ids:
            gone = {
                row
                for row in table.rows_of(partition)
                if self.known.day(row) + timedelta(days=table.ttl_days) < self.today
            }
            if gone:
                self.ledger.given_up(gone)
                table.expire(partition, gone, self.now)
