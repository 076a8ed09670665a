"""A refreshable view does not run before its data is there, not even if the engine restarts meanwhile."""

from pathlib import Path

import pytest
from ticked import Ticked

from calve.clickhouse.embedded.source import EmbeddedSource
from calve.model.states import ProcessState
from calve.restore.schema import held_back

VIEWS = (
    "CREATE DATABASE db",
    "CREATE TABLE db.t (id UInt64) ENGINE = MergeTree ORDER BY id",
    "INSERT INTO db.t SELECT number FROM numbers(5)",
    "CREATE TABLE db.totals (n UInt64, at DateTime64(3)) ENGINE = MergeTree ORDER BY n",
    "INSERT INTO db.totals VALUES (41, '2024-01-01 00:00:00')",
    "CREATE MATERIALIZED VIEW db.to_v REFRESH EVERY 1 YEAR APPEND TO db.totals EMPTY"
    " AS SELECT count() AS n, now64(3) AS at FROM db.t",
    "CREATE MATERIALIZED VIEW db.own_v REFRESH EVERY 1 YEAR ENGINE = MergeTree ORDER BY id EMPTY"
    " AS SELECT id FROM db.t",
)
RUN = "SELECT view FROM system.view_refreshes WHERE last_refresh_time IS NOT NULL AND database = 'r' ORDER BY view"


class Counting(EmbeddedSource):
    """Opens the folder anew for every visit, as a server that restarts between any two."""

    ran_early: list[str]
    watched = False

    def visit(self):  # type: ignore[no-untyped-def]
        from contextlib import contextmanager

        @contextmanager
        def watching():  # type: ignore[no-untyped-def]
            with EmbeddedSource.visit(self) as session:
                if self.watched:
                    self.ran_early += [row["view"] for row in session.rows(RUN)]
                yield session

        return watching()


@pytest.fixture
def source(tmp_path: Path) -> Counting:
    source = Counting("main", tmp_path / "clickhouse", create=True)
    source.ran_early = []
    with source.visit() as session:
        for statement in VIEWS:
            session.execute(statement)
    return source


def test_views_run_only_once_their_data_is_there(source: Counting, tmp_path: Path) -> None:
    ticked = Ticked(tmp_path / "backups", source)
    row = ticked.settle(ticked.create("b"))
    assert row.state is ProcessState.COMPLETED, row.error
    source.watched = True
    restored = ticked.restore("b", into="r")
    worker = ticked.worker()
    while ticked.row(restored).state is not ProcessState.PUBLISHING:
        worker.tick()
        ticked.clock.advance(1.0)
    assert source.ran_early == []
    source.watched = False
    row = ticked.settle(restored, worker)
    assert row.state is ProcessState.COMPLETED, row.error
    with source.visit() as session:
        creates = {
            one["name"]: one["create_table_query"]
            for one in session.rows("SELECT name, create_table_query FROM system.tables WHERE database = 'r'")
        }
        assert "REFRESH EVERY 1 YEAR APPEND TO r.totals" in creates["to_v"]
        assert "REFRESH EVERY 1 YEAR (`id` UInt64)" in creates["own_v"]
        old = session.rows("SELECT n, at FROM r.totals ORDER BY at LIMIT 1")
        assert [one["n"] for one in old] in ([41], ["41"])
        runs = session.rows("SELECT DISTINCT n FROM r.totals WHERE n != 41")
        assert [int(one["n"]) for one in runs] in ([], [5]), "a run before the rows were there saw none"


@pytest.mark.parametrize(
    ("create", "held", "schedule"),
    [
        (
            "CREATE MATERIALIZED VIEW db.v UUID 'u' REFRESH EVERY 1 DAY OFFSET 2 HOUR RANDOMIZE FOR 1 MINUTE "
            "DEPENDS ON db.`to`, db.b SETTINGS refresh_retries = 3 APPEND TO db.x (`as` UInt64) AS SELECT 1",
            "CREATE MATERIALIZED VIEW db.v UUID 'u' REFRESH AFTER 100 YEAR APPEND TO db.x (`as` UInt64) "
            "EMPTY AS SELECT 1",
            "ALTER TABLE `db`.`v` MODIFY REFRESH EVERY 1 DAY OFFSET 2 HOUR RANDOMIZE FOR 1 MINUTE DEPENDS ON "
            "db.`to`, db.b SETTINGS refresh_retries = 3 APPEND",
        ),
        (
            "CREATE MATERIALIZED VIEW db.v REFRESH AFTER 5 MINUTE (`id` UInt64) ENGINE = MergeTree ORDER BY id "
            "DEFINER = d SQL SECURITY DEFINER AS WITH x AS (SELECT 1) SELECT * FROM x",
            "CREATE MATERIALIZED VIEW db.v REFRESH AFTER 100 YEAR (`id` UInt64) ENGINE = MergeTree ORDER BY id "
            "DEFINER = d SQL SECURITY DEFINER EMPTY AS WITH x AS (SELECT 1) SELECT * FROM x",
            "ALTER TABLE `db`.`v` MODIFY REFRESH AFTER 5 MINUTE",
        ),
    ],
)
def test_the_schedule_is_taken_out_whole(create: str, held: str, schedule: str) -> None:
    assert held_back(create, ("db", "v")) == (held, schedule)


def test_other_objects_stay_as_they_are() -> None:
    create = "CREATE MATERIALIZED VIEW db.v TO db.x AS SELECT 'REFRESH' AS refresh"
    assert held_back(create, ("db", "v")) == (create, "")
