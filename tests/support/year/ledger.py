"""What must hold at every moment, by value: of what the services have, of rows that people put in and did not destroy themselves.

A row is somewhere: in its table, in quarantine, or in the lake's newest head. The view shows it at most once, and shows it wherever
it is promised. What leaves a table, and what is deleted from quarantine, is looked at before it happens, by `rules`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from calve.iceberg.publish import marks
from calve.model.record import fields_of
from support.simulator.catalog import Name
from support.year import rules
from support.year.clickhouse import YearTable

if TYPE_CHECKING:
    from support.year.world import YearWorld

_SHOWING = frozenset(
    {"move", "drop", "drop_part", "pin", "flip", "view", "drop_view", "fill"}
)  # what may show, hide or lose a row
LATE_SECONDS = 900.0  # a row that came so shortly before its partition became cold may have missed it


@dataclass(eq=False)
class YearLedger:
    world: "YearWorld"
    alive: dict[str, str] = field(default_factory=dict)  # rows that nobody destroyed, and their table
    born: dict[str, float] = field(default_factory=dict)
    erased: dict[str, float] = field(default_factory=dict)  # deleted by people while a copy was in quarantine
    lake_lost: set[str] = field(default_factory=set)  # that people took out of the lake
    lake_changed: dict[str, float] = field(default_factory=dict)  # by people, by table
    dropped: set[str] = field(default_factory=set)  # partitions, by hand
    checks: int = 0
    _theirs: bool = False
    _heads: dict[str, frozenset[str]] = field(default_factory=dict)  # rows of the lake, by table

    # -- what happens -------------------------------------------------------------------------------

    def inserted(self, table: YearTable, rows: Iterable[str]) -> None:
        for row in rows:
            self.alive[row] = table.name
            self.born[row] = self.world.schedule.now

    def given_up(self, rows: Iterable[str]) -> None:
        """Destroyed by people, or by a TTL that they made."""
        for row in rows:
            self.alive.pop(row, None)

    @contextmanager
    def theirs(self) -> Iterator[None]:
        """What people do themselves: what is nowhere after it is theirs."""
        before = dict(self._heads)
        with self.world.schedule.aside():
            self._theirs = True
            try:
                yield
            finally:
                self._theirs = False
        for table, rows in before.items():
            gone = rows - self._heads.get(table, frozenset())
            self.lake_lost |= gone
            if rows != self._heads.get(table):
                self.lake_changed[table] = self.world.schedule.now
        self.given_up(self._nowhere())
        self.check("what people did")

    def before(self, kind: str, names: Mapping[str, str], query: str) -> None:
        if kind in ("move", "drop"):
            with self.world.schedule.aside():
                self._tell(rules.broken(self.world, kind, names, query))

    def after(self, kind: str) -> None:
        if kind in _SHOWING:
            self.check(f"a statement to {kind}")

    def before_delete(self, uri: str) -> None:
        with self.world.schedule.aside():
            if uri in self.world.catalog.referenced():
                self._tell([f"{uri} was deleted, and a snapshot refers to it"])

    def committed(self, name: Name, before: TableMetadata, after: TableMetadata) -> None:
        catalog, known = self.world.catalog, self.world.known
        table = name[-1]
        was = self.lake(table)
        now = frozenset(row for uri in catalog.head_files(after) for row in known.files[uri])
        self._heads[table] = now
        if self._theirs:
            return
        released = set(released_partitions(before))
        where = self.world.server.year_tables.get(("db", table))
        gone = [row for row in was - now if where and where.partition_of(known.day(row)) in released]
        head = (
            after.snapshot_by_id(after.refs[MAIN_BRANCH].snapshot_id) if MAIN_BRANCH in after.refs else None
        )
        if gone and head is not None:
            self._tell(
                [
                    f"a released key was replaced: {len(gone)} rows, {min(gone)} among them, are no longer in main"
                ]
            )
        files = Counter(row for uri in catalog.head_files(after) for row in known.files[uri])
        if twice := [row for row, count in files.items() if count > 1]:
            self._tell([f"table {table} of the lake shows row {min(twice)} twice"])
        self.check("a commit")

    # -- what holds ---------------------------------------------------------------------------------

    def lake(self, table: str) -> frozenset[str]:
        return self._heads.get(table, frozenset())

    def _nowhere(self) -> set[str]:
        somewhere: set[str] = set()
        for (database, _), table in self.world.server.year_tables.items():
            if database in ("db", "calve_released"):
                for part in table.parts.values():
                    somewhere.update(part.rows)
        return self.alive.keys() - somewhere.union(*self._heads.values())

    def check(self, after: str) -> None:
        if self._theirs:
            return
        self.checks += 1
        if lost := self._nowhere():
            self._tell([f"after {after}: {len(lost)} rows are nowhere, {min(lost)} among them"])
        for table in list(self.world.server.year_tables.values()):
            if table.database == "db":
                self._check_table(table, after)

    def _check_table(self, table: YearTable, after: str) -> None:
        rows = Counter(_id(row) for row in table.rows)
        if len(rows) != len(table.rows):
            twice = min(row for row, count in rows.items() if count > 1)
            self._tell([f"after {after}: row {twice} is twice in table {table.name}"])
        if table.uuid not in self.world.server.views.values():
            return
        shown = self.shown(table)
        count = Counter(_id(row) for row in shown)
        if len(count) != len(shown):
            twice = min(row for row, n in count.items() if n > 1)
            self._tell([f"after {after}: the view over {table.name} shows row {twice} twice"])
        seen, here = set(shown), set(table.rows)
        for row, of in self.alive.items():
            if of == table.name and row not in seen and row not in self.lake_lost:
                self._check_hidden(table, row, row in here, after)

    def _check_hidden(self, table: YearTable, row: str, here: bool, after: str) -> None:
        """A row that came late to a partition that is read from the lake is not promised; any other is."""
        partition = table.partition_of(self.world.known.day(row))
        flips = self.world.server.residencies["calve_views", f"{table.uuid}_residency"].newest()
        turned = flips[partition].at if partition in flips else 0.0
        proven = any(
            one.partition == partition and one.state == "QUARANTINED"
            for each in self.world.installations
            for one in each.store.releases(table.identity)
        )
        taken = any(row in one.rows for one in self.world.server.quarantined(table.uuid))
        if taken and not proven and self.born[row] >= turned - LATE_SECONDS:
            return  # a MOVE took it along, and it goes back with the others: what is in quarantine is not proven yet
        if not here:
            self._tell(
                [f"after {after}: the view over {table.name} does not show row {row}, which left the table"]
            )
            return
        if self.born[row] < turned - LATE_SECONDS:
            self._tell(
                [
                    f"after {after}: the view over {table.name} hides row {row}, which was there before it turned"
                ]
            )

    def shown(self, table: YearTable) -> list[str]:
        """The view's answer, by the definition that the product gave it."""
        server = self.world.server
        cold = server.cold_ids(table.uuid)
        pinned = server.relations["calve_views", f"{table.uuid}_cold"]
        lake = server.lake_rows(pinned.location, pinned.metadata)
        hot = [
            row for part in table.parts.values() if part.facts.partition_id not in cold for row in part.rows
        ]
        return [*hot, *(row for id in cold for row in lake.get(id, ()))]

    def check_turned_back(self) -> None:
        """At the end: what came back is read from its table."""
        for one in self.world.installations:
            for table in [each for each in self.world.server.year_tables.values() if each.database == "db"]:
                last = {each.partition: each.state for each in one.store.releases(table.identity)}
                marked = set(released_partitions(self.world.catalog.tables["ns", table.name])) if last else ()
                for id in self.world.server.cold_ids(table.uuid):
                    back = last.get(id) == "RETURNED" and id not in marked and id not in self.dropped
                    if back and table.rows_of(id):
                        self._tell(
                            [f"the view over {table.name} still reads {id} from the lake, and it came back"]
                        )

    def _tell(self, problems: Iterable[str]) -> None:
        self.world.problems += problems


def released_partitions(metadata: TableMetadata) -> Iterator[str]:
    """Of which the lake says that they left their table."""
    for name, text in metadata.properties.items():
        if name.startswith(marks.RELEASED_PROPERTY):
            found = fields_of(text).get("input")
            if isinstance(found, list):
                yield str(found[1])


def _id(row: str) -> str:
    """A row, whatever its version."""
    return row.partition(":")[0]
