"""What every source must do. Inherit `SourceContract` and give `source`, which holds what `FILL` makes.

Inherit `LiveSourceContract` for a source that takes statements. Rows are read as executors read them,
by the reader that the source names, in a process of its own.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pytest

from calve.clickhouse.parts.partitions import Selection, select
from calve.clickhouse.pins.pin import Pinned, PinRequest
from calve.clickhouse.reader import Reader
from calve.clickhouse.source import LiveSource, Source
from calve.destination.content import unchanged
from calve.destination.plan import PartPlan, Relation
from calve.model.errors import CalveError, NotFoundError, PermanentError
from calve.model.process import new_process_id

DATABASE, TABLE = "contract", "events"
FILL = (
    f"CREATE DATABASE {DATABASE}",
    f"CREATE TABLE {DATABASE}.{TABLE} (id UInt64, day Date, note String) ENGINE = MergeTree"
    " PARTITION BY toYYYYMM(day) ORDER BY id",
    f"INSERT INTO {DATABASE}.{TABLE} SELECT number, toDate('2024-01-05'), toString(number) FROM numbers(10)",
    f"INSERT INTO {DATABASE}.{TABLE} SELECT number + 10, toDate('2024-01-06'), '' FROM numbers(10)",
    f"INSERT INTO {DATABASE}.{TABLE} SELECT number + 20, toDate('2024-02-01'), '?' FROM numbers(5)",
)
JANUARY, FEBRUARY = range(20), range(20, 25)


def wanted(*partitions: str, **changes: Any) -> PinRequest:
    given = {"database": DATABASE, "table": TABLE, "partitions": partitions or ("202401",)}
    return PinRequest(**given | changes)


def pin_name() -> str:
    return f"calve-{new_process_id()}-1"


class SourceContract:
    @pytest.fixture
    def source(self) -> Source:
        raise NotImplementedError("the class that inherits the contract gives the source")

    # -- looking ------------------------------------------------------------------------------------

    def test_a_table_is_described(self, source: Source) -> None:
        with source.visit() as view:
            table = view.describe(DATABASE, TABLE)
        assert [(one.name, one.type) for one in table.columns] == [
            ("id", "UInt64"),
            ("day", "Date"),
            ("note", "String"),
        ]
        assert (table.partition_key, table.engine) == ("toYYYYMM(day)", "MergeTree")
        assert table.identity

    @pytest.mark.parametrize(("database", "table"), [(DATABASE, "nothing"), ("nowhere", TABLE)])
    def test_an_unknown_table_is_not_found(self, source: Source, database: str, table: str) -> None:
        with source.visit() as view, pytest.raises(NotFoundError):
            view.describe(database, table)
        with pytest.raises(NotFoundError):
            source.pin(wanted(database=database, table=table), pin_name())

    def test_partitions_have_rows_and_content_ids_that_stay_while_they_do(self, source: Source) -> None:
        seen = []
        for _ in range(2):
            with source.visit() as view:
                seen.append(view.partitions(view.describe(DATABASE, TABLE)))
        assert [(one.id, one.rows) for one in seen[0]] == [("202401", 20), ("202402", 5)]
        assert all(unchanged(one.content, again.content) for one, again in zip(*seen, strict=True))
        assert seen[0][0].content != seen[0][1].content

    def test_parts_are_listed_by_partition_and_by_name(self, source: Source) -> None:
        with source.visit() as view:
            table = view.describe(DATABASE, TABLE)
            every = view.parts(table)
            january = view.parts(table, ["202401"])
            named = view.parts(table, names=[january[0].name])
        assert sum(part.rows for part in every) == 25
        assert {part.partition_id for part in january} == {"202401"}
        assert [part.name for part in named] == [january[0].name]

    def test_a_selection_names_what_is_not_there(self, source: Source) -> None:
        with source.visit() as view:
            table = view.describe(DATABASE, TABLE)
            assert [one.id for one in select(view, table, Selection(all=True))] == ["202401", "202402"]
            assert [one.id for one in select(view, table, Selection(partitions=("202402",)))] == ["202402"]
            for unknown in (Selection(partitions=("209901",)), Selection(parts=("all_9_9_9",))):
                with pytest.raises(NotFoundError, match=r"209901|all_9_9_9"):
                    select(view, table, unknown)

    # -- pins ---------------------------------------------------------------------------------------

    def test_the_parts_of_a_pin_read_as_the_rows_of_its_table(self, source: Source) -> None:
        name = pin_name()
        pinned = source.pin(wanted("202401", "202402"), name)
        try:
            assert ids_of(source, pinned) == [*JANUARY, *FEBRUARY]
            assert {one.id: one.rows for one in pinned.partitions} == {"202401": 20, "202402": 5}
            with source.visit() as view:
                now = {one.id: one.content for one in view.partitions(view.describe(DATABASE, TABLE))}
            assert all(unchanged(one.content, now[one.id]) for one in pinned.partitions)
        finally:
            source.release(name, pinned.to_json())

    def test_only_the_parts_that_were_named_are_pinned(self, source: Source) -> None:
        with source.visit() as view:
            [part, *_] = view.parts(view.describe(DATABASE, TABLE), ["202401"])
        name = pin_name()
        pinned = source.pin(wanted(parts=(part.name,)), name)
        try:
            assert [one.name for one in pinned.parts] == [part.name]
            assert len(ids_of(source, pinned)) == part.rows
        finally:
            source.release(name, pinned.to_json())

    def test_a_pin_comes_back_from_its_journal_entry(self, source: Source) -> None:
        name = pin_name()
        pinned = source.pin(wanted(), name)
        source.release(name, pinned.to_json())
        assert Pinned.from_json(pinned.to_json()) == pinned

    def test_a_release_is_harmless_twice_and_for_a_pin_that_never_was(self, source: Source) -> None:
        name = pin_name()
        source.release(name, "")
        detail = source.pin(wanted(), name).to_json()
        for _ in range(2):
            source.release(name, detail)

    # -- reading ------------------------------------------------------------------------------------

    def test_a_mode_that_it_does_not_have_is_refused(self, source: Source) -> None:
        with pytest.raises(PermanentError) as refused:
            source.reader(Relation(mode="by pigeon", create=""))
        assert refused.value.code == "relation_mode"

    def test_what_a_reader_needs_is_not_printed(self, source: Source) -> None:
        name = pin_name()
        pinned = source.pin(wanted(), name)
        source.release(name, pinned.to_json())
        reader = source.reader(pinned.relation)
        assert "access" not in repr(reader)
        assert not any(value in pinned.to_json() for value in reader.access.values() if len(value) > 7)


class LiveSourceContract(SourceContract):
    """For sources that take statements and hold rows still."""

    @pytest.fixture
    def source(self) -> LiveSource:
        raise NotImplementedError("the class that inherits the contract gives the source")

    def test_a_pin_holds_rows_still(self, source: LiveSource) -> None:
        name = pin_name()
        pinned = source.pin(wanted(), name)
        try:
            run(source, f"INSERT INTO {DATABASE}.{TABLE} VALUES (100, '2024-01-07', '')")
            run(source, f"ALTER TABLE {DATABASE}.{TABLE} DROP PARTITION 202401")
            assert ids_of(source, pinned) == [*JANUARY]
        finally:
            source.release(name, pinned.to_json())

    def test_a_pin_outlives_its_table_and_is_released_after_it(self, source: LiveSource) -> None:
        name = pin_name()
        pinned = source.pin(wanted(), name)
        run(source, f"DROP TABLE {DATABASE}.{TABLE} SYNC")
        assert ids_of(source, pinned) == [*JANUARY]
        for _ in range(2):
            source.release(name, pinned.to_json())
        with source.visit() as session:
            assert name not in session.pin_names()

    def test_looking_and_releasing_leave_nothing_behind(self, source: LiveSource) -> None:
        with source.visit() as session:
            before = session.pin_names()
            table = session.describe(DATABASE, TABLE)
            session.partitions(table)
            session.parts(table)
        name = pin_name()
        source.release(name, source.pin(wanted(), name).to_json())
        with source.visit() as session:
            assert session.pin_names() == before

    def test_a_partition_that_is_not_there_is_not_pinned(self, source: LiveSource) -> None:
        name = pin_name()
        with pytest.raises(CalveError):
            source.pin(wanted("209901"), name)
        source.release(name, "")
        with source.visit() as session:
            assert name not in session.pin_names()


def run(source: LiveSource, *statements: str) -> None:
    with source.visit() as session:
        for statement in statements:
            session.execute(statement)


def ids_of(source: Source, pinned: Pinned) -> list[int]:
    """Every `id` of the pinned parts, as an executor reads them."""
    return read(source.reader(pinned.relation), pinned.relation, pinned.parts, pinned.settings)


def read(reader: Reader, relation: Relation, parts: Sequence[PartPlan], settings: Any) -> list[int]:
    order = {
        "function": reader.function,
        "relation": asdict(relation),
        "parts": [asdict(part) for part in parts],
        "access": dict(reader.access),
        "settings": dict(settings),
    }
    child = subprocess.run(
        [sys.executable, "-P", "-m", "calve.testing.contracts.executor"],
        input=json.dumps(order),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert child.returncode == 0, child.stderr[-2000:]
    found: list[int] = json.loads(child.stdout)
    return found
