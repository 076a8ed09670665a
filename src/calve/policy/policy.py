"""A policy as a value: which tables it is about, where they go, when, and how much at once.

The mapping from tables to destinations is injective: two tables never share a destination. The hash covers what a
person decides about rows, and none of the limits: a limit may change without asking again.
"""

import hashlib
import json
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from fnmatch import fnmatchcase

from calve.clickhouse.sql.tokens import TableName
from calve.model.errors import UsageError
from calve.model.reach import is_folder
from calve.policy.calendar import Window

_NO_VIEWS = ("system", "information_schema", "INFORMATION_SCHEMA", "calve_views", "calve_released")
_LEAST_LOOK = timedelta(seconds=1)


class LateRows(StrEnum):
    """What to do with rows that come after the export."""

    HOLD = "hold"
    APPEND = "append"
    REPLACE = "replace"


class ReleaseRule(StrEnum):
    """Whether partitions leave their table."""

    NEVER = "never"
    QUARANTINE = "quarantine"  # once they are proven; dropping them is a person's


class Verify(StrEnum):
    """How an export is proven."""

    FULL = "full"  # every row, with the source
    SAMPLE = "sample"  # some files, with what was exported


@dataclass(frozen=True, kw_only=True)
class Policy:
    name: str
    source: str  # in the configuration
    tables: str  # a pattern: db.events, db.*
    to: str  # {database} and {table} stand for the table's
    export_after: timedelta  # the end of what the partition covers
    quiet: timedelta  # since its last change
    on_late_rows: LateRows = LateRows.HOLD
    verify: Verify = Verify.FULL
    window: Window | None = None  # None: any time
    zone: str = "UTC"  # where the day of `bytes_per_day` begins
    partitions_per_run: int = 20
    bytes_per_day: int = 0  # 0 means no limit
    look_every: timedelta = timedelta(minutes=5)
    release: ReleaseRule = ReleaseRule.NEVER
    release_after: timedelta = timedelta(days=30)  # the proof; and so long again, until a person may drop it
    only_copy: bool = False  # it is accepted that the lake has it, and no backup
    view: str = ""  # over hot and cold; {database} and {table} stand for the table's. "": none is kept

    @property
    def releases(self) -> bool:
        return self.release is not ReleaseRule.NEVER

    @property
    def words(self) -> str:
        """What a person decided, as JSON."""
        return json.dumps(self._decided)

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.words.encode()).hexdigest()[:16]

    @property
    def _decided(self) -> list[str | float]:
        decided: list[str | float] = [
            self.name,
            self.source,
            self.tables,
            self.to,
            self.export_after.total_seconds(),
            self.quiet.total_seconds(),
            self.on_late_rows.value,
            self.verify.value,
        ]
        released = [self.release.value, self.release_after.total_seconds()]
        shown = ["view", self.view] if self.view else []
        return decided + (released if self.releases else []) + shown

    def names(self, database: str, table: str) -> bool:
        """Whether it is about this table of its source."""
        return fnmatchcase(f"{database}.{table}", self.tables)

    def destination(self, database: str, table: str) -> str:
        """UsageError for a table whose name would be read as more than a name: who names tables decides no place."""
        parted = "/" if is_folder(self.to) else "/."
        for place, given in (("{database}", database), ("{table}", table)):
            if place in self.to and set(given) & set(parted):
                raise UsageError(
                    f"the name {given!r} cannot be part of {self.to}",
                    code="destination_name",
                    hint="export it by hand, or by a policy that names its destination without {database} and {table}",
                )
        return _filled(self.to, database, table)

    def view_of(self, database: str, table: str) -> str:
        """The name of the view over a table, in backquotes where it needs them; "" for none."""
        if not self.view or "`" in self.view:
            return _filled(self.view, database, table)
        first, _, second = self.view.partition(".")
        filled = [_filled(part, database, table) for part in (first, second)]
        return str(TableName(source=None, database=filled[0], table=filled[1]))

    def check(self) -> None:
        """UsageError where two tables could share a destination, and for what makes no sense."""
        database, dot, table = self.tables.partition(".")
        if not dot or not database or not table:
            raise UsageError(
                f"invalid source {self.source}:{self.tables}",
                code="config_bad_value",
                hint="give source:database.table, or a pattern such as main:db.*",
            )
        if self.look_every < _LEAST_LOOK:
            raise UsageError(
                "look_every is too short", code="config_bad_value", hint="give 1s or more; 5m is usual"
            )
        if self.on_late_rows is LateRows.APPEND and is_folder(self.to):
            raise UsageError(
                "rows cannot be appended to an export in a folder of Parquet files",
                code="config_bad_value",
                hint='set on_late_rows to "hold" or "replace", or `to` to a table of a catalog',
            )
        if self.releases and (is_folder(self.to) or self.verify is not Verify.FULL):
            raise UsageError(
                "rows leave their table only once every row is proven in a table of a catalog",
                code="config_bad_value",
                hint='set verify to "full", and `to` to a table of a catalog; or release to "never"',
            )
        if self.view:
            self._check_view()
        for part, place in ((table, "{table}"), (database, "{database}")):
            if is_pattern(part) and place not in self.to:
                raise UsageError(
                    f"{self.tables} may match several tables, and all would go to {self.to}",
                    code="config_bad_value",
                    hint=f"put {place} into `to`",
                )
            if self.view and is_pattern(part) and place not in self.view:
                raise UsageError(
                    f"{self.tables} may match several tables, and all would have the view {self.view}",
                    code="config_bad_value",
                    hint=f"put {place} into `view`",
                )

    def _check_view(self) -> None:
        database, dot, view = self.view.partition(".")
        plain = database and dot and view and ("." not in view or "`" in self.view)
        if not plain or database in _NO_VIEWS or self.view in (self.tables, "{database}.{table}"):
            raise UsageError(
                f"{self.view!r} is not a valid view name",
                code="config_bad_value",
                hint="give database.name, and no table of the policy: db.events_all, or {database}.{table}_all",
            )
        if is_folder(self.to):
            raise UsageError(
                "a view reads a table of a catalog, not a folder",
                code="config_bad_value",
                hint="set `to` to a table of a catalog, or omit `view`",
            )


def _filled(template: str, database: str, table: str) -> str:
    return template.replace("{database}", database).replace("{table}", table)


def is_pattern(text: str) -> bool:
    return any(sign in text for sign in "*?[")
