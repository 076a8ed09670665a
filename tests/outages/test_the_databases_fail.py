"""PostgreSQL under the catalog, and under the store, goes away in mid-export and comes back."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from calve.model.errors import StoreError, StoreUnknownError
from calve.model.process import WorkerId
from calve.model.states import ProcessState
from calve.store import open_store
from support.network_proxy import Fault, Mode, NetworkProxy
from support.outage_place import PARTITIONS, PARTS, Executors, OutagePlace, make_table, until
from support.postgres import Postgres, postgres
from support.sparks import on_a_cluster_too

pytestmark = pytest.mark.services

ROWS = 50
EVERY_ROW = list(range(PARTS * ROWS))


@pytest.fixture
def database(postgres_url: str) -> Iterator[NetworkProxy]:
    """What stands between Calve and PostgreSQL."""
    with NetworkProxy(make_url(postgres_url).port or 0) as proxy:
        yield proxy


@pytest.fixture
def place(tmp_path: Path, runner: Executors) -> Iterator[OutagePlace]:
    place = OutagePlace(tmp_path, runner, {}, CALVE_LIMITS__LEASE_SECONDS="3")
    place.place.execute(*make_table("events", rows=ROWS))
    yield place
    place.close()


@pytest.mark.parametrize("fault", [Fault(mode=Mode.REFUSE), Fault(delay_seconds=0.05)], ids=["down", "slow"])
def test_L26_a_catalog_that_fails_as_exports_publish_gets_every_row_once(
    place: OutagePlace, runner: Executors, database: NetworkProxy, postgres_url: str, fault: Fault
) -> None:
    behind = make_url(postgres_url).set(port=database.port, drivername="postgresql+psycopg")
    file = place.place.folder / "calve.toml"
    file.write_text(
        file.read_text() + f'\n[catalog.pg]\ntype = "sql"\nuri = "{behind.render_as_string(False)}"\n'
        'warehouse = "lake/pg"\n'
    )
    place.reopen()
    with place.worker():
        with runner.holding():
            ids = place.submit("events", "pg.ns.events")
            until(lambda: place.planned(ids), "the plans")
            database.set(fault)
        if fault.mode is Mode.REFUSE:
            until(lambda: place.breakers() == ["catalog:pg"], "the catalog's breaker to open")
            assert not place.ended(ids)
            database.heal()
        ended = place.finish(ids)
    assert {process.state for process in ended} == {ProcessState.COMPLETED}, place.told(ids[0])
    database.heal()
    assert place.ids_in("pg.ns.events") == EVERY_ROW


@on_a_cluster_too
def test_a_worker_without_its_store_stops_its_tasks_and_goes_on_when_it_is_back(
    place: OutagePlace, runner: Executors, database: NetworkProxy, postgres_url: str
) -> None:
    """Its lease may be taken by another, and so nothing of it may still run by then."""
    url = make_url(postgres_url)
    place.use_store(url.render_as_string(False))
    told = runner.told_to_stop
    with place.worker(CALVE_STORE__URL=url.set(port=database.port).render_as_string(False)):
        with runner.holding():
            ids = place.submit("events", "lake.ns.events")
            until(lambda: any(process.tasks.running for process in place.rows(ids)), "tasks to be started")
            database.set(Fault(mode=Mode.REFUSE))
            until(lambda: runner.told_to_stop > told, "the worker to stop its tasks")
        until(lambda: runner.busy == 0, "the slots to be free")
        assert ProcessState.COMPLETED not in place.states(ids)
        database.heal()
        ended = place.finish(ids)
    assert {process.state for process in ended} == {ProcessState.COMPLETED}, place.told(ids[0])
    assert place.ids_in("lake.ns.events") == EVERY_ROW


@pytest.mark.parametrize("what", ["a read", "a write"])
def test_a_store_whose_proxy_lives_and_says_nothing_is_given_up_within_a_call(
    database: NetworkProxy, postgres_url: str, what: str
) -> None:
    """The kernel of the proxy's machine answers for it, so that no keepalive notices. (Found by chaos: a worker hung.)"""
    behind = make_url(postgres_url).set(port=database.port).render_as_string(False)
    with open_store(behind, connect_seconds=2.0, call_seconds=2.0) as store:
        assert store.live() == []
        database.set(Fault(mode=Mode.BLACK_HOLE))
        with ThreadPoolExecutor(1) as thread:
            asked = thread.submit(
                store.live if what == "a read" else partial(store.forget_worker, WorkerId("w"))
            )
            try:
                met = asked.exception(60)
            finally:
                database.cut_open()
        assert isinstance(met, StoreError | StoreUnknownError)
        database.heal()
        assert store.live() == []


# -- PostgreSQL itself, really restarted --------------------------------------------------------------


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[Postgres]:
    """One of this module's own: the others' tests must not lose theirs."""
    with postgres() as server:
        yield server


def test_a_store_that_is_restarted_in_mid_export_costs_nothing(
    place: OutagePlace, runner: Executors, own_postgres: Postgres
) -> None:
    """Quicker than a lease: the worker connects anew, and nothing was lost, doubled or even stopped."""
    place.use_store(own_postgres.new_database())
    with place.worker(CALVE_LIMITS__LEASE_SECONDS="60"):
        with runner.holding():
            ids = place.submit("events", "lake.ns.events", "0", "1")
            until(lambda: any(process.tasks.running for process in place.rows(ids)), "tasks to be started")
            own_postgres.restart()
        ended = place.finish(ids)
    assert {process.state for process in ended} == {ProcessState.COMPLETED}, place.told(ids[0])
    assert place.ids_in("lake.ns.events") == _rows_of(0, 1)


def test_a_store_that_is_down_for_longer_than_a_lease_has_its_worker_stop_first(
    place: OutagePlace, runner: Executors, own_postgres: Postgres
) -> None:
    """The tasks are stopped before the lease can be taken by another; after the start it goes on."""
    place.use_store(own_postgres.new_database())
    told = runner.told_to_stop
    with place.worker():
        with runner.holding():
            ids = place.submit("events", "lake.ns.events", "0", "1")
            until(lambda: any(process.tasks.running for process in place.rows(ids)), "tasks to be started")
            own_postgres.stop()
            until(lambda: runner.told_to_stop > told, "the worker to stop its tasks")
        until(lambda: runner.busy == 0, "the slots to be free")
        own_postgres.start()
        assert ProcessState.COMPLETED not in place.states(ids)
        ended = place.finish(ids)
    assert {process.state for process in ended} == {ProcessState.COMPLETED}, place.told(ids[0])
    assert place.ids_in("lake.ns.events") == _rows_of(0, 1)
    for process in ended:  # its store's outage used no task's budget
        for task in place.app.store.tasks(process.id):
            assert task.attempt - task.free_attempts <= 1


def test_a_sql_catalog_that_is_restarted_as_exports_publish_gets_every_row_once(
    place: OutagePlace, runner: Executors, own_postgres: Postgres
) -> None:
    url = make_url(own_postgres.new_database()).set(drivername="postgresql+psycopg")
    file = place.place.folder / "calve.toml"
    file.write_text(
        file.read_text() + f'\n[catalog.pg]\ntype = "sql"\nuri = "{url.render_as_string(False)}"\n'
        'warehouse = "lake/pg"\n'
    )
    place.reopen()
    with place.worker():
        with runner.holding():
            ids = place.submit("events", "pg.ns.events", "0", "1")
            until(lambda: place.planned(ids), "the plans")
            own_postgres.stop()
        until(lambda: place.breakers() == ["catalog:pg"] and runner.busy == 0, "the breaker to open")
        assert not place.ended(ids)
        own_postgres.start()
        ended = place.finish(ids)
    assert {process.state for process in ended} == {ProcessState.COMPLETED}, place.told(ids[0])
    assert place.ids_in("pg.ns.events") == _rows_of(0, 1)


def _rows_of(*partitions: int) -> list[int]:
    return [row for row in EVERY_ROW if row // ROWS % PARTITIONS in partitions]
