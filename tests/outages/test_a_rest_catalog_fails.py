"""A REST catalog that is down, broken, silent, slow: known within a call's bound, and then left alone."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rest_place import ROWS, heal, rest_place

from calve.model.process import ProcessId
from calve.model.states import ProcessState, TaskState
from support.catalog_faults import Told
from support.catalog_proxy import CatalogProxy
from support.iceberg_rest import IcebergRest, apache_rest
from support.network_proxy import Fault, Mode, NetworkProxy
from support.outage_place import PARTITIONS, PARTS, Executors, OutagePlace, make_table, until

pytestmark = pytest.mark.services

LANE = "catalog:rest"
# Of the partitions 0, 1 and 2: a part of each, then the second of each.
EXPECTED = sorted(row for row in range(PARTS * ROWS) if row // ROWS % PARTITIONS < 3)
Break = Callable[[NetworkProxy, CatalogProxy], None]


def _answering(told: Told) -> Break:
    def break_it(network: NetworkProxy, catalog: CatalogProxy) -> None:
        catalog.ails = told
        network.cut_open()

    return break_it


BROKEN: dict[str, Break] = {
    "down": lambda network, catalog: network.set(Fault(mode=Mode.REFUSE)),
    "503": _answering(Told.UNAVAILABLE),
    "hanging": lambda network, catalog: network.set(Fault(mode=Mode.BLACK_HOLE)),
    "hanging in mid-answer": lambda network, catalog: network.set(Fault(hang_answer_after_bytes=100)),
}


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergRest]:
    with apache_rest(tmp_path_factory.mktemp("rest")) as server:
        yield server


@pytest.fixture
def catalog(rest: IcebergRest) -> Iterator[CatalogProxy]:
    with CatalogProxy(rest.uri) as proxy:
        yield proxy


@pytest.fixture
def line(catalog: CatalogProxy) -> Iterator[NetworkProxy]:
    """What stands between Calve and the catalog."""
    with NetworkProxy(catalog.port) as proxy:
        yield proxy


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> str:
    """Of the test's own: the catalog is shared."""
    return "ns" + "".join(character for character in request.node.name if character.isalnum()).lower()[-40:]


@pytest.fixture
def place(tmp_path: Path, runner: Executors, line: NetworkProxy) -> Iterator[OutagePlace]:
    place = rest_place(tmp_path, runner, line.url)
    place.place.execute(*make_table("events", rows=ROWS))
    yield place
    place.close()


@pytest.mark.parametrize("fault", BROKEN)
def test_L26_a_catalog_that_fails_in_mid_export_gets_every_row_once_when_it_is_back(
    place: OutagePlace,
    runner: Executors,
    line: NetworkProxy,
    catalog: CatalogProxy,
    namespace: str,
    fault: str,
) -> None:
    to = f"rest.{namespace}.events"
    with place.worker():
        with runner.holding():
            ids = place.submit("events", to, "0", "1")
            until(lambda: place.planned(ids), "the plans")
            BROKEN[fault](line, catalog)
        until(lambda: place.breakers() == [LANE] and runner.busy == 0, "the breaker to open, the slots free")
        # L3: accepted all the same. L6: another destination does not have to wait for this one.
        ids += place.submit("events", to, "2")
        [other] = place.finish(place.submit("events", "lake.ns.other", "3"))
        assert other.state is ProcessState.COMPLETED
        until(lambda: runner.busy == 0, "the slot of the other one to be free")
        assert not place.ended(ids) and place.breakers() == [LANE]
        heal(line, catalog)
        ended = place.finish(ids)
    assert {process.state for process in ended} == {ProcessState.COMPLETED}, place.told(ids[0])
    assert place.ids_in(to) == EXPECTED
    _used_no_budget(place, ids)


def test_a_slow_catalog_is_no_outage(
    place: OutagePlace, line: NetworkProxy, catalog: CatalogProxy, namespace: str
) -> None:
    line.set(Fault(delay_seconds=0.05))
    with place.worker():
        ended = place.finish(place.submit("events", f"rest.{namespace}.events", "0", "1", "2"))
    assert [(process.state, process.plan_attempts) for process in ended] == [(ProcessState.COMPLETED, 1)] * 3
    line.heal()
    assert place.ids_in(f"rest.{namespace}.events") == EXPECTED


def _used_no_budget(place: OutagePlace, ids: list[ProcessId]) -> None:
    for process in place.rows(ids):
        assert process.plan_attempts <= 2
        for task in place.app.store.tasks(process.id):
            assert task.state is TaskState.DONE
            assert task.attempt - task.free_attempts <= 1
