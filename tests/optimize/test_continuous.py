"""A worker that looks at tables by itself: what it queues, in which order, and when it leaves a table alone."""

import time
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from calve.app.config import Config, load_config
from calve.app.config.values import OptimizeConfig
from calve.app.optimize_history import history_in
from calve.app.optimizer import Optimizer, optimizing
from calve.app.wiring import App
from calve.model.change import Change, MoveTo, Result
from calve.model.errors import ErrorInfo
from calve.model.process import Lease, Process, WorkerId
from calve.model.states import ProcessState
from calve.optimize.request import OptimizeRequest
from calve.testing.fake_runner import FakeRunner
from calve.testing.fake_world import World
from support.lake import SCHEMA, arrow
from support.optimizing import OptimizeScene

REACH = frozenset({"catalog:lake"})


@pytest.fixture
def lake(tmp_path: Path) -> OptimizeScene:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}
    scene = OptimizeScene(FakeRunner(World()), "lake", properties)
    for namespace in (("ns",), ("ns", "deep"), ("other",)):
        scene.catalog_.create_namespace(namespace)
    return scene


def make(catalog: Catalog, *identifier: str, files: int, **properties: str) -> None:
    table = catalog.create_table(
        identifier, SCHEMA, properties={"clean-orphan-file.enabled": "false"} | properties
    )
    for number in range(files):
        table.append(arrow(range(number, number + 1), 1))


def optimizer(lake: OptimizeScene, *patterns: str, slots: int = 8, share: float = 0.25) -> Optimizer:
    config = OptimizeConfig(tables=patterns or ("lake.*",), share=share)
    return Optimizer(ports=lake, store=lake.store, config=config, catalogs=("lake",), slots=lambda: slots)


def finish(lake: OptimizeScene, process: Process, state: ProcessState) -> None:
    [claimed] = [
        p for p in lake.store.claim(WorkerId("w"), REACH, lease_seconds=1e6, limit=9) if p.id == process.id
    ]
    error = ErrorInfo(code="x", message="x") if state is ProcessState.FAILED else None
    result = () if error else (Result(rows=0, files=0, bytes=0),)
    lease = Lease(process_id=process.id, worker=WorkerId("w"), fence=claimed.fence)
    lake.store.apply(lease, Change(MoveTo(state, error), *result, expect_version=claimed.version))


def test_the_neediest_tables_are_queued_first_within_the_share_of_slots(lake: OptimizeScene) -> None:
    make(lake.catalog_, "ns", "little", files=12)
    make(lake.catalog_, "ns", "much", files=20)
    make(lake.catalog_, "ns", "healthy", files=1)
    make(lake.catalog_, "ns", "deep", "more", files=16)
    queued = optimizer(lake, slots=8, share=0.25).tick()
    assert [process.destination for process in queued] == ["lake.ns.much", "lake.ns.deep.more"]
    requests = [OptimizeRequest.from_json(process.request) for process in queued]
    assert all(request.by_worker for request in requests)
    assert sum(request.most_tasks for request in requests) <= 2, "no more tasks than the share has slots"
    assert all(process.priority < 0 for process in queued), "what people ask for goes first"


def test_what_is_under_way_uses_up_the_share(lake: OptimizeScene) -> None:
    make(lake.catalog_, "ns", "a", files=12)
    make(lake.catalog_, "ns", "b", files=12)
    one = optimizer(lake, slots=4, share=0.25)
    assert len(one.tick()) == 1
    assert one.tick() == []


def test_patterns_choose_the_tables(lake: OptimizeScene) -> None:
    for identifier in (("ns", "a"), ("other", "a")):
        make(lake.catalog_, *identifier, files=12)
    assert [p.destination for p in optimizer(lake, "lake.other.*").tick()] == ["lake.other.a"]
    assert list(optimizer(lake, "elsewhere.*").tables()) == []


def test_a_table_that_says_no_is_left_alone(lake: OptimizeScene) -> None:
    make(lake.catalog_, "ns", "a", files=12, **{"self-optimizing.enabled": "false"})
    assert optimizer(lake).tick() == []


def test_one_table_that_cannot_be_read_does_not_keep_others_waiting(lake: OptimizeScene) -> None:
    make(lake.catalog_, "ns", "a", files=12, **{"self-optimizing.target-size": "huge"})
    make(lake.catalog_, "ns", "b", files=12)
    assert [process.destination for process in optimizer(lake).tick()] == ["lake.ns.b"]


def test_two_workers_queue_one_process(lake: OptimizeScene) -> None:
    make(lake.catalog_, "ns", "a", files=12)
    one, other = optimizer(lake, slots=40), optimizer(lake, slots=40)
    assert len(one.tick()) == 1 and other.tick() == []


@pytest.mark.parametrize(
    ("state", "too_soon", "long_enough"),
    [
        (ProcessState.COMPLETED, {"seconds": 59}, {"seconds": 2}),
        (ProcessState.FAILED, {"minutes": 59}, {"minutes": 2}),
    ],
)
def test_a_table_rests_after_a_process_and_longer_after_a_failure(
    lake: OptimizeScene, state: ProcessState, too_soon: dict[str, int], long_enough: dict[str, int]
) -> None:
    make(lake.catalog_, "ns", "a", files=12)
    looking = optimizer(lake)
    [process] = looking.tick()
    finish(lake, process, state)
    lake.clock.advance(**too_soon)
    assert looking.tick() == []
    lake.clock.advance(**long_enough)
    assert len(looking.tick()) == 1


def test_orphans_are_looked_for_once_a_day(lake: OptimizeScene) -> None:
    make(lake.catalog_, "ns", "a", files=1, **{"clean-orphan-file.enabled": "true"})
    looking = optimizer(lake)
    [process] = looking.tick()
    assert OptimizeRequest.from_json(process.request).orphans is True
    finish(lake, process, ProcessState.COMPLETED)
    lake.clock.advance(hours=23)
    assert looking.tick() == []
    lake.clock.advance(hours=2)
    assert len(looking.tick()) == 1


def test_the_history_tells_what_workers_did_by_themselves_from_what_people_asked_for(
    lake: OptimizeScene,
) -> None:
    make(lake.catalog_, "ns", "a", files=12)
    make(lake.catalog_, "ns", "b", files=12)
    [own] = optimizer(lake, "lake.ns.a").tick()
    finish(lake, own, ProcessState.COMPLETED)
    asked = lake.submit("ns.b")
    assert [(item.process.id, item.by_worker) for item in history_in(lake.store)] == [
        (asked.id, False),
        (own.id, True),
    ]
    assert [item.process.id for item in history_in(lake.store, "lake.ns.a")] == [own.id]


def configured(folder: Path, **environ: str) -> Config:
    (folder / "calve.toml").write_text(
        '[catalog.lake]\ntype = "sql"\nuri = "sqlite:///c.db"\nwarehouse = "w"\n'
        '[optimize]\ntables = ["lake.ns.*"]\ninterval_seconds = 0.05\n'
    )
    return load_config(folder / "calve.toml", environ=environ)


def test_a_worker_queues_what_its_configuration_names_while_it_runs(tmp_path: Path) -> None:
    app = App(configured(tmp_path))
    app.__dict__["runner"] = FakeRunner(World())
    app.catalog("lake").create_namespace("ns")
    make(app.catalog("lake"), "ns", "a", files=12)
    with optimizing(app):
        while not (found := app.store.live()):
            time.sleep(0.01)
    assert [(process.kind, process.destination) for process in found] == [("optimize", "lake.ns.a")]
    app.close()


def test_the_tables_may_come_from_the_environment(tmp_path: Path) -> None:
    config = configured(tmp_path, CALVE_OPTIMIZE__TABLES="lake.*, other.ns.t", CALVE_OPTIMIZE__SHARE="0.5")
    assert config.optimize == OptimizeConfig(
        tables=("lake.*", "other.ns.t"), interval_seconds=0.05, share=0.5
    )
