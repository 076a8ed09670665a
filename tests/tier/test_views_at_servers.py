"""Views at servers: many readers while partitions move from hot to cold and back; two replicas; queries that go on."""

import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from calve.app.policies import tier
from calve.clickhouse.tier import residency
from calve.clickhouse.tier.residency import Resident
from calve.model.errors import TemporaryError
from support.clickhouse_front import ClickHouseFront, FrontOptions, clickhouse_front
from support.local_runner import LocalRunner
from support.server_place import ServerPlace

ROWS = 300
ANSWERS = 40


@pytest.fixture(scope="module")
def fronts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ClickHouseFront, ClickHouseFront]]:
    options = FrontOptions(timezone="America/St_Johns")
    with (
        clickhouse_front(tmp_path_factory.mktemp("one"), options) as one,
        clickhouse_front(tmp_path_factory.mktemp("two"), options) as two,
    ):
        yield one, two


def _place(folder: Path, runner: LocalRunner, *fronts: ClickHouseFront) -> ServerPlace:
    return ServerPlace(folder, ",".join(front.url for front in fronts), runner, configured_id="one")


def _table(place: ServerPlace, name: str, uuid: str) -> None:
    """Three months, each of its last half hour by the server's clock, when UTC has the next month."""
    place.execute(
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.events UUID '{uuid}' (id UInt64, at DateTime) "
        "ENGINE = MergeTree PARTITION BY toYYYYMM(at) ORDER BY id",
        *(
            f"INSERT INTO {name}.events SELECT {month} * 1000 + number, '2024-0{month}-{day} 23:30:00' FROM numbers({ROWS // 3})"
            for month, day in ((1, 31), (2, 29), (3, 31))
        ),
    )


def test_every_answer_is_whole_while_the_set_moves(
    fronts: tuple[ClickHouseFront, ClickHouseFront], tmp_path: Path, runner: LocalRunner
) -> None:
    place, uuid = _place(tmp_path, runner, fronts[0]), str(uuid4())
    _table(place, "moving", uuid)
    place.export("moving.events", to="lake.ns.moving")
    with place.app() as app:
        tier.view_create(app, "moving.events", "lake.ns.moving", "moving.all", cold=["202401"])
    asked = "SELECT count() AS n, uniqExact(id) AS ids, sum(id) AS total, arraySort(groupUniqArray(toString(at))) AS times FROM {}"
    wanted = place.select(asked.format("moving.events"))
    done = threading.Event()
    wrong: list[object] = []
    flips = 0

    def read() -> None:
        for _ in range(ANSWERS):
            answer = place.select(asked.format("moving.all"))
            if answer != wanted:
                wrong.append(answer)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    threading.Thread(target=lambda: ([one.join() for one in readers], done.set())).start()
    with place.visit() as session:
        while not done.is_set():
            before = residency.read(session, uuid)
            turned = [
                Resident(id=id, cold=not (id in before and before[id].cold))
                for number, id in enumerate(("202401", "202402", "202403"))
                if (flips >> number) % 2 == 0
            ]
            residency.put(session, uuid, residency.stamped(turned, before, "test"))
            flips += 1
    assert wrong == []
    assert flips > 2


def test_the_set_is_computed_once_a_query(
    fronts: tuple[ClickHouseFront, ClickHouseFront], tmp_path: Path, runner: LocalRunner
) -> None:
    """What keeps both halves at one generation. Counted by the engine."""
    place, uuid = _place(tmp_path, runner, fronts[1]), str(uuid4())
    _table(place, "once", uuid)
    place.export("once.events", to="lake.ns.once")
    with place.app() as app:
        tier.view_create(app, "once.events", "lake.ns.once", "once.all", cold=["202401"])
    [row] = place.select(
        "SELECT as_select AS text FROM system.tables WHERE database = 'once' AND name = 'all'"
    )
    asked = residency.scalar(uuid, "once.events").replace("`", "")
    text = row["text"].replace("`", "")
    assert text.count(asked) == text.count("_residency") > 3
    assert " IN " not in text
    counted = "SELECT sum(value) AS n FROM system.events WHERE event = 'ScalarSubqueriesGlobalCacheHit'"
    [before] = place.select(counted)
    place.select("SELECT count() AS n FROM once.all")
    [after] = place.select(counted)
    assert int(after["n"]) - int(before["n"]) == text.count(asked) - 1  # the first is computed


def test_both_servers_have_the_view_and_learn_what_the_other_knows(
    fronts: tuple[ClickHouseFront, ClickHouseFront], tmp_path: Path, runner: LocalRunner
) -> None:
    uuid = str(uuid4())
    places = [_place(_made(tmp_path / f"p{number}"), runner, front) for number, front in enumerate(fronts)]
    for place in places:
        _table(place, "two", uuid)
    both = _place(_made(tmp_path / "both"), runner, *fronts)
    both.export("two.events", to="lake.ns.two")
    wanted = places[0].select("SELECT sum(id) AS n, count() AS rows FROM two.events")
    with both.app() as app:
        made = tier.view_create(app, "two.events", "lake.ns.two", "two.all", cold=["202401"])
        assert made["servers"] == 2
        with places[1].visit() as session:  # a flip that reached one server alone
            before = residency.read(session, uuid)
            residency.put(session, uuid, residency.stamped([Resident(id="202402", cold=True)], before, "w"))
        assert not tier.view_show(app, "two.events")["same_everywhere"]
        tier.view_create(app, "two.events", "lake.ns.two", "two.all")
        shown = tier.view_show(app, "two.events")
        assert (shown["same_everywhere"], [one["id"] for one in shown["cold"]]) == (
            True,
            ["202401", "202402"],
        )
        for place in places:
            assert place.select("SELECT sum(id) AS n, count() AS rows FROM two.all") == wanted
        tier.view_drop(app, "two.events", force=True)
    for place in places:
        left = place.select(
            f"SELECT name FROM system.tables WHERE name = 'all' AND database = 'two' OR name LIKE '{uuid}%'"
        )
        assert left == []


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_of_two_writers_of_one_partition_the_loser_is_told(
    fronts: tuple[ClickHouseFront, ClickHouseFront], tmp_path: Path, runner: LocalRunner
) -> None:
    uuid = str(uuid4())
    with _place(tmp_path, runner, fronts[0]).visit() as session:
        residency.create(session, uuid, "test")
        before = residency.read(session, uuid)
        mine = residency.stamped([Resident(id="1", cold=True), Resident(id="2", cold=True)], before, "a")
        residency.put(session, uuid, residency.stamped([Resident(id="2", cold=False)], before, "b"))
        with pytest.raises(TemporaryError) as lost:
            residency.put(session, uuid, mine)
        assert lost.value.code == "residency_conflict"
        assert {one.id: one.cold for one in residency.read(session, uuid).values()} == {"1": True, "2": False}


def test_queries_that_began_before_are_seen_until_they_end(
    fronts: tuple[ClickHouseFront, ClickHouseFront], tmp_path: Path, runner: LocalRunner
) -> None:
    place = _place(tmp_path, runner, fronts[0])
    slow = (
        "SELECT sum(sleepEachRow(0.01)) AS calve_test_slow FROM numbers(100000) SETTINGS max_block_size = 1"
    )
    began, ended = threading.Event(), threading.Event()

    def ask() -> None:
        began.set()
        try:
            place.select(slow)
        except Exception:  # noqa: BLE001 - it is killed
            ended.set()

    thread = threading.Thread(target=ask)
    thread.start()
    began.wait()
    mine = "SELECT query_id FROM system.processes WHERE query LIKE '%calve_test_slow%' AND query NOT LIKE '%LIKE%'"
    with place.visit() as session:
        early = residency.clock(session)
        while not (running := session.rows(mine)):
            early = residency.clock(session)
        since = residency.clock(session)
        found = {one.id for one in residency.older_queries(session, since)}
        assert running[0]["query_id"] in found
        assert running[0]["query_id"] not in {
            one.id for one in residency.older_queries(session, "2020-01-01 00:00:00")
        }
        session.execute(f"KILL QUERY WHERE query_id = '{running[0]['query_id']}' SYNC")
        thread.join()
        assert running[0]["query_id"] not in {one.id for one in residency.older_queries(session, since)}
    assert ended.is_set() and early
