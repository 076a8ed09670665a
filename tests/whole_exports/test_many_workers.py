"""Several worker processes, one PostgreSQL store, one PostgreSQL catalog, one table; killed at random.

The number of rounds with kill -9 is `CALVE_ROUNDS`, a dozen unless it is set; a hundred and more are for a
nightly run (`make test-long`). The seed is printed; `CALVE_SEED` repeats a run.
"""

import os
import random
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from whole_life import check_table
from whole_workers import FLEET_LIMITS, Fleet, ended, kill_all, settled, start, stop

from calve.model.process import Process, ProcessId
from calve.model.states import ProcessState
from calve.store import open_store
from support.kept_source import KeptSource
from support.local_runner import LocalRunner
from support.postgres import Postgres
from support.shared_service import SharedService

pytestmark = [pytest.mark.services, pytest.mark.timeout(1800)]

MONTHS = ("202401", "202402", "202403")
ROWS = 40
LOOK_SECONDS = 0.2
AT_ONCE = 4  # rounds whose exports are under way together: a lease that is waited out is one for all of them


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptSource]:
    with KeptSource(tmp_path_factory.mktemp("source") / "clickhouse") as kept:
        kept.execute(
            "CREATE DATABASE db",
            "CREATE TABLE db.events (id UInt64, day Date) ENGINE = MergeTree PARTITION BY toYYYYMM(day) ORDER BY id",
            *(
                f"INSERT INTO db.events SELECT number + {place * ROWS}, toDate('2024-0{place + 1}-01')"
                f" FROM numbers({ROWS})"
                for place in range(len(MONTHS))
            ),
        )
        yield kept


@pytest.fixture
def fleet(
    tmp_path: Path, source: KeptSource, runner: LocalRunner, postgres_server: Postgres
) -> Iterator[Fleet]:
    with SharedService(source, runner, tmp_path / "socket") as service:
        yield Fleet(
            folder=tmp_path,
            store_url=postgres_server.new_database(),
            catalog_uri=postgres_server.new_database().replace("postgresql://", "postgresql+psycopg://"),
            service=service.address,
        )
        kill_all()


def exported(fleet: Fleet, table: str) -> list[int]:
    found = fleet.table(table)
    check_table(found)
    return sorted(int(one) for one in found.scan().to_arrow()["id"].to_pylist())


def wait_for(fleet: Fleet, ids: list[ProcessId], workers: list) -> list[Process]:  # type: ignore[type-arg]
    """All have ended. A worker that ends meanwhile is an error."""
    for _ in range(1500):
        if (rows := settled(fleet, ids)) is not None:
            return rows
        assert not any(ended(one, LOOK_SECONDS / len(workers)) for one in workers), "a worker ended by itself"
    raise AssertionError("not settled in time")


def test_L28_three_workers_export_different_partitions_into_one_table_every_row_once(
    fleet: Fleet, source: KeptSource
) -> None:
    ids = fleet.submit(source, "events", *MONTHS)
    workers = [start(fleet) for _ in range(3)]
    rows = wait_for(fleet, ids, workers)
    stop(*workers)
    assert [row.error for row in rows] == [None] * 3
    assert exported(fleet, "events") == list(range(3 * ROWS))
    assert source.frozen == []


def test_L13_three_stores_that_know_nothing_of_each_other_export_one_partition_at_once(
    fleet: Fleet, source: KeptSource, postgres_server: Postgres
) -> None:
    fleets = [fleet] + [replace(fleet, store_url=postgres_server.new_database()) for _ in range(2)]
    submitted = [one.submit(source, "events", MONTHS[0]) for one in fleets]
    workers = [start(one) for one in fleets]
    rows = [wait_for(one, ids, workers)[0] for one, ids in zip(fleets, submitted, strict=True)]
    stop(*workers)
    assert [row.state for row in rows] == [ProcessState.COMPLETED] * 3, [row.error for row in rows]
    assert sorted(row.rows for row in rows) == [0, 0, ROWS], "one published, the others found it done"
    assert len({row.snapshot_id for row in rows}) == 1
    assert exported(fleet, "events") == list(range(ROWS))


@pytest.mark.longer
def test_L13_workers_killed_at_random_moments_publish_every_partition_once(
    fleet: Fleet, source: KeptSource, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("CALVE_SEED", "0")) or random.SystemRandom().randrange(1, 1_000_000)
    rounds = int(os.environ.get("CALVE_ROUNDS", "12"))
    with capsys.disabled():
        print(f"\n{rounds} rounds of kill -9: CALVE_SEED={seed}")
    chance = random.Random(seed)
    workers = [start(fleet) for _ in range(3)]
    kills = 0
    for first in range(0, rounds, AT_ONCE):
        tables = [f"round_{number}" for number in range(first, min(first + AT_ONCE, rounds))]
        ids = [one for table in tables for one in fleet.submit(source, table, *MONTHS)]
        for _ in range(sum(chance.randrange(1, 4) for _ in tables)):
            place = chance.randrange(len(workers))
            # A random moment of whatever it is doing; that it does not end by itself is checked on the way.
            assert not ended(workers[place], chance.uniform(0.0, 1.5)), "a worker ended by itself"
            workers[place].kill()
            workers[place].join()
            workers[place] = start(fleet)
            kills += 1
        rows = wait_for(fleet, ids, workers)
        where = f"seed {seed}, rounds from {first}"
        assert [row.error for row in rows] == [None] * len(ids), where
        for table in tables:
            assert exported(fleet, table) == list(range(3 * ROWS)), f"{where}, {table}"
        assert source.frozen == [], where
    stop(*workers)
    with capsys.disabled():
        print(f"{kills} workers killed, {3 * rounds} exports, every row once")


def test_D2_a_worker_stopped_right_before_its_send_is_fenced_undone_and_refused_when_it_wakes(
    fleet: Fleet, source: KeptSource, tmp_path: Path
) -> None:
    fleet.submit(source, "events", MONTHS[0])
    helper = start(fleet)
    # The table has a snapshot, so what refuses the late commit is the tag, not `main = null`.
    with open_store(fleet.store_url) as store:
        wait_for(fleet, [process.id for process in store.live()], [helper])
    stop(helper)
    [process_id] = fleet.submit(source, "events", MONTHS[1])
    told = tmp_path / "about-to-send"
    stopped = start(fleet, stop_before_send=str(told))
    while not told.exists():
        assert not ended(stopped, LOOK_SECONDS)
    try:
        _cancel_and_undo_elsewhere(fleet, process_id)
        before = fleet.table("events").metadata
        assert f"calve-{process_id}" in before.refs, "the tombstone"
    finally:
        os.kill(stopped.pid or 0, signal.SIGCONT)
    stop(stopped)
    table = fleet.table("events")
    assert table.metadata.snapshots == before.snapshots, "the late commit landed"
    assert exported(fleet, "events") == list(range(ROWS))
    with open_store(fleet.store_url) as store:
        assert store.process(process_id).state is ProcessState.CANCELLED


def _cancel_and_undo_elsewhere(fleet: Fleet, process_id: ProcessId) -> None:
    """Another worker, whose clock says that the first one's lease has run out long ago, and then that
    nobody will retry: it fences, ends, and deletes the files."""
    ahead = FLEET_LIMITS.lease_seconds + 60.0
    with open_store(fleet.store_url, clock_offset_seconds=lambda: ahead) as store:
        store.request_cancel(process_id)
        ports = fleet.ports()
        loop = fleet.worker_loop(ports, store)
        loop.run(until=lambda: store.process(process_id).state is ProcessState.CANCELLED)
        ahead += FLEET_LIMITS.keep_failed_hours * 3600 + 60.0
        again = fleet.worker_loop(ports, store)
        again.run(until=lambda: store.process(process_id).leftovers.value == "GONE")
        ports.close()
    data = Path(fleet.table("events").location().removeprefix("file://")) / "data"
    assert not list(data.rglob(f"calve-{process_id}-*")), "its files are deleted"
