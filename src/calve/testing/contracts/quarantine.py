"""What every way of taking a partition out of its table must do. Inherit `QuarantineContract`, and give `source`, which
takes statements, and `way`, which makes the quarantine of a visit. Rows are compared by value, parts by the hash of their files."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import cast

import pytest

from calve.clickhouse.source import LiveSource, Session
from calve.clickhouse.tables import TableInfo
from calve.clickhouse.tier.quarantine import (
    MovingQuarantine,
    Quarantine,
    QuarantineAttempt,
    Where,
    back_table,
    closed_table,
    doomed_table,
    parts,
)
from calve.model.errors import CalveError, RefusedError

_NUMBERS = itertools.count(1)
Way = Callable[[Session], Quarantine]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One table with rows in two partitions, one attempt at the first, and a visit."""

    session: Session
    quarantine: Quarantine
    attempt: QuarantineAttempt

    @property
    def table(self) -> TableInfo:
        return self.attempt.table

    @property
    def where(self) -> Where:
        return self.quarantine.placement(self.attempt).where

    def ids(self, table: str = "") -> list[int]:
        found = self.session.rows(f"SELECT id FROM {table or self.table.sql} ORDER BY id")
        return [int(row["id"]) for row in found]

    def hashes(self, partition: str = "202401") -> set[str]:
        return {part.hash for part in parts(self.session, self.table.full_name, partition)}

    def insert(self, id: int) -> None:
        self.session.execute(f"INSERT INTO {self.table.sql} (id, day) VALUES ({id}, '2024-01-20')")

    def described(self) -> "Trial":
        """With the table as it is now."""
        table = self.session.describe(self.table.database, self.table.name)
        return replace(self, attempt=replace(self.attempt, table=table))

    def take_out(self) -> None:
        self.quarantine.prepare(self.attempt)
        self.quarantine.take_out(self.attempt, "calve-contract-out")
        self.quarantine.close(self.attempt, ["calve-contract-out"])

    def put_back(self) -> None:
        self.quarantine.put_back(self.attempt, "calve-contract-back")


@contextmanager
def trial(source: LiveSource, way: Way, columns: str = "note String", more: str = "") -> Iterator[Trial]:
    """A database of its own, dropped at the end with the quarantine."""
    database = f"quarantined{next(_NUMBERS)}"
    with source.visit() as session:
        for statement in (
            f"CREATE DATABASE {database}",
            f"CREATE TABLE {database}.t (id UInt64, day Date, {columns}) ENGINE = MergeTree PARTITION BY toYYYYMM(day) "
            f"ORDER BY id{more}",
            f"SYSTEM STOP MERGES {database}.t",
            f"INSERT INTO {database}.t (id, day) SELECT number, '2024-01-05' FROM numbers(3)",
            f"INSERT INTO {database}.t (id, day) SELECT 10 + number, '2024-01-06' FROM numbers(3)",
            f"INSERT INTO {database}.t (id, day) SELECT 20 + number, '2024-02-01' FROM numbers(3)",
        ):
            session.execute(statement)
        table = session.describe(database, "t")
        top = max(part.max_block for part in session.partitions(table) if part.id == "202401")
        hashes = frozenset(part.hash for part in parts(session, table.full_name, "202401"))
        attempt = QuarantineAttempt(
            table=table, partition="202401", number=1, process="p1", top=top, hashes=hashes
        )
        quarantine = way(session)
        try:
            yield Trial(session=session, quarantine=quarantine, attempt=attempt)
        finally:
            session.execute(f"DROP DATABASE {database} SYNC")
            left = session.rows(
                f"SELECT name FROM system.tables WHERE database = 'calve_released' AND startsWith(name, '{table.uuid}')"
            )
            for row in left:
                session.execute(f"DROP TABLE calve_released.`{row['name']}` SYNC")


JANUARY, FEBRUARY = [0, 1, 2, 10, 11, 12], [20, 21, 22]


class QuarantineContract:
    """Give `source` and `way` as fixtures."""

    def test_rows_leave_the_table_and_come_back_as_the_same_files(self, source: LiveSource, way: Way) -> None:
        with trial(source, way) as one:
            before = one.hashes()
            assert one.where is Where.TABLE
            one.take_out()
            assert (one.where, one.ids()) == (Where.QUARANTINE, FEBRUARY)
            one.put_back()
            assert (one.where, one.ids(), one.hashes()) == (Where.TABLE, JANUARY + FEBRUARY, before)

    def test_rows_come_back_to_a_table_that_got_columns_since(self, source: LiveSource, way: Way) -> None:
        with trial(source, way, "word Enum8('' = 0, 'a' = 1)") as one:
            one.take_out()
            alter = f"ALTER TABLE {one.table.sql}"
            one.session.execute(
                f"{alter} ADD COLUMN `it's` Nullable(Int32) FIRST, ADD COLUMN twice UInt64 ALIAS id"
            )
            changed = one.described()
            assert changed.quarantine.misfits(changed.attempt) == ()
            changed.put_back()
            assert (changed.where, changed.ids()) == (Where.TABLE, JANUARY + FEBRUARY)
            one.session.execute(f"{alter} MODIFY COLUMN word Enum8('' = 0, 'a' = 1, 'b' = 2)")
            changed = one.described()
            assert changed.quarantine.misfits(changed.attempt) == ("`word` Enum8('' = 0, 'a' = 1)",)

    def test_every_call_may_be_repeated(self, source: LiveSource, way: Way) -> None:
        with trial(source, way) as one:
            one.quarantine.prepare(one.attempt)
            one.quarantine.prepare(one.attempt)
            assert (one.where, one.ids()) == (Where.TABLE, JANUARY + FEBRUARY)
            one.take_out()
            one.quarantine.close(one.attempt, ["calve-contract-out"])
            assert (one.where, one.ids()) == (Where.QUARANTINE, FEBRUARY)
            one.put_back()
            one.put_back()
            assert (one.where, one.ids()) == (Where.TABLE, JANUARY + FEBRUARY)

    def test_rows_that_come_late_are_told_apart_and_stay(self, source: LiveSource, way: Way) -> None:
        with trial(source, way) as one:
            one.take_out()
            one.insert(99)
            seen = one.quarantine.placement(one.attempt)
            assert (seen.where, [part.rows for part in seen.late]) == (Where.QUARANTINE, [1])
            one.put_back()
            assert one.ids() == sorted([*JANUARY, 99, *FEBRUARY])

    def test_rows_that_came_back_are_told_from_late_ones(self, source: LiveSource, way: Way) -> None:
        """Though all of them have new block numbers."""
        with trial(source, way) as one:
            one.take_out()
            one.put_back()
            one.insert(99)
            seen = one.quarantine.placement(one.attempt)
            assert (seen.where, [part.rows for part in seen.late]) == (Where.TABLE, [1])

    def test_rows_that_are_at_no_place_are_said_to_be(self, source: LiveSource, way: Way) -> None:
        with trial(source, way) as one:
            one.session.execute(f"ALTER TABLE {one.table.sql} DROP PARTITION ID '202401'")
            assert one.where is Where.NOWHERE


class MovingContract(QuarantineContract):
    """What only a place with a name of its own can promise."""

    def test_what_left_can_be_read(self, source: LiveSource, way: Way) -> None:
        with trial(source, way) as one:
            one.take_out()
            assert one.ids(closed_table(one.attempt).sql) == JANUARY

    def test_a_statement_that_wakes_up_after_the_close_moves_nothing(
        self, source: LiveSource, way: Way
    ) -> None:
        with trial(source, way) as one:
            one.take_out()
            one.insert(99)
            with pytest.raises(CalveError):
                one.quarantine.take_out(one.attempt, "calve-contract-late")
            assert one.ids() == sorted([*FEBRUARY, 99])
            one.put_back()
            with pytest.raises(CalveError):
                one.quarantine.take_out(one.attempt, "calve-contract-late")
            assert one.ids() == sorted([*JANUARY, 99, *FEBRUARY])

    def test_a_return_that_wakes_up_after_the_close_moves_nothing(self, source: LiveSource, way: Way) -> None:
        with trial(source, way) as one:
            one.take_out()
            table, back = one.table.sql, back_table(one.attempt).sql
            one.session.execute(f"RENAME TABLE {closed_table(one.attempt).sql} TO {back}")
            one.quarantine.close(one.attempt, [])
            with pytest.raises(CalveError):
                one.session.execute(f"ALTER TABLE {back} MOVE PARTITION ID '202401' TO TABLE {table}")
            assert one.where is Where.QUARANTINE
            one.put_back()
            assert one.ids() == sorted([*JANUARY, *FEBRUARY])

    def test_an_attempt_that_never_moved_is_closed_for_good(self, source: LiveSource, way: Way) -> None:
        with trial(source, way) as one:
            one.quarantine.prepare(one.attempt)
            one.quarantine.close(one.attempt, [])
            with pytest.raises(CalveError):
                one.quarantine.take_out(one.attempt, "calve-contract-late")
            assert (one.where, one.ids()) == (Where.TABLE, JANUARY + FEBRUARY)

    def test_parts_that_were_merged_before_they_left_are_noted_and_known_again(
        self, source: LiveSource, way: Way
    ) -> None:
        with trial(source, way) as one:
            one.quarantine.prepare(one.attempt)
            one.session.execute(f"SYSTEM START MERGES {one.table.sql}")
            one.session.execute(f"OPTIMIZE TABLE {one.table.sql} PARTITION ID '202401' FINAL")
            one.take_out()
            noted = one.attempt.noted(one.quarantine.placement(one.attempt))
            assert len(noted.hashes - one.attempt.hashes) == 1
            one.put_back()
            assert one.quarantine.placement(noted).where is Where.TABLE

    def test_what_is_open_is_not_put_back(self, source: LiveSource, way: Way) -> None:
        """A statement that is still under way would take it out again."""
        with trial(source, way) as one:
            one.quarantine.prepare(one.attempt)
            one.quarantine.take_out(one.attempt, "calve-contract-out")
            with pytest.raises(CalveError) as refused:
                one.put_back()
            assert (refused.value.code, one.where) == ("not_closed", Where.QUARANTINE)

    def test_parts_at_both_places_are_said_to_be(self, source: LiveSource, way: Way) -> None:
        with trial(source, way) as one:
            one.take_out()
            one.session.execute(
                f"ALTER TABLE {one.table.sql} ATTACH PARTITION ID '202401' FROM {closed_table(one.attempt).sql}"
            )
            assert self._where(one) == "both"
            one.session.execute(f"ALTER TABLE {one.table.sql} DROP PART '{self._part(one)}'")
            assert self._where(one) == "divided"

    def test_copies_are_removed_from_quarantine_and_the_rest_comes_back(
        self, source: LiveSource, way: Way
    ) -> None:
        with trial(source, way) as one:
            one.take_out()
            quarantine, closed = cast(MovingQuarantine, one.quarantine), closed_table(one.attempt)
            one.session.execute(f"ALTER TABLE {one.table.sql} ATTACH PARTITION ID '202401' FROM {closed.sql}")
            one.session.execute(f"ALTER TABLE {one.table.sql} DROP PART '{self._part(one)}'")
            one.insert(99)
            for _ in range(2):
                quarantine.thin(one.attempt, "calve-contract-thin")
            assert len(one.ids(closed.sql)) == 3
            one.put_back()
            assert (one.where, one.ids()) == (Where.TABLE, sorted([*JANUARY, 99, *FEBRUARY]))

    def test_what_is_removed_is_gone_and_what_is_spared_stays(self, source: LiveSource, way: Way) -> None:
        with trial(source, way) as one:
            one.take_out()
            quarantine = cast(MovingQuarantine, one.quarantine)
            doomed = doomed_table(one.attempt, "drop1")
            one.session.execute(f"RENAME TABLE {closed_table(one.attempt).sql} TO {doomed.sql}")
            for _ in range(2):
                quarantine.spare(one.attempt, "drop1", ["calve-contract-drop"])
            one.session.execute(f"DROP TABLE IF EXISTS {doomed.sql} SYNC")  # that wakes up late
            assert (one.where, quarantine.is_gone(one.attempt, "drop1")) == (Where.QUARANTINE, False)
            for _ in range(2):
                quarantine.remove(one.attempt, "drop2", "calve-contract-drop")
            quarantine.spare(one.attempt, "drop2", [])
            assert (one.where, quarantine.is_gone(one.attempt, "drop2")) == (Where.NOWHERE, True)
            assert one.ids() == FEBRUARY

    def _where(self, one: Trial) -> str:
        return one.where.value

    def _part(self, one: Trial) -> str:
        return parts(one.session, one.table.full_name, "202401")[0].name

    def test_no_TTL_goes_along_and_nothing_is_merged(self, source: LiveSource, way: Way) -> None:
        """Both TTLs would have removed every value and row long ago."""
        columns = "note String DEFAULT 'x' TTL day + INTERVAL 1 DAY"
        more = " TTL day + INTERVAL 2 DAY SETTINGS merge_with_ttl_timeout = 1000000"
        with trial(source, way, columns, more) as one:
            one.take_out()
            closed = closed_table(one.attempt)
            held = one.quarantine.placement(one.attempt).held
            one.session.execute(f"SYSTEM START MERGES {closed.sql}")
            one.session.execute(f"OPTIMIZE TABLE {closed.sql}")
            assert one.quarantine.placement(one.attempt).held == held
            rows = one.session.rows(f"SELECT count() AS n, countIf(note = 'x') AS notes FROM {closed.sql}")
            assert [(int(row["n"]), int(row["notes"])) for row in rows] == [(6, 6)]

    def test_a_place_of_another_process_is_not_used(self, source: LiveSource, way: Way) -> None:
        with trial(source, way) as one:
            one.quarantine.prepare(one.attempt)
            with pytest.raises(RefusedError) as refused:
                one.quarantine.prepare(replace(one.attempt, process="p2"))
            assert refused.value.code == "quarantine_taken"
            one.quarantine.prepare(replace(one.attempt, process="p2", number=2))
