"""A real standalone Spark master that is away when an export begins, is killed while tasks run, and is restarted:
an outage like any other (T14). It is said within seconds, uses no budget, and ends by itself."""

import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from calve.control.why import waiting_for, why
from calve.model.process import Process, ProcessId
from calve.model.states import ProcessState, TaskState
from calve.spark.runner import SparkRunner
from support.calve_command import call
from support.outage_place import PARTS, OutagePlace, make_table, until
from support.sparks import Sparks, common_conf
from support.standalone import Standalone
from support.watched_runner import WatchedRunner

pytestmark = pytest.mark.spark

ROWS = 50


class SparkPlace(OutagePlace):
    spark: SparkRunner


@contextmanager
def place_on(folder: Path, cluster: Standalone) -> Iterator["SparkPlace"]:
    conf = common_conf() | {"spark.pyspark.python": sys.executable}
    spark = SparkRunner(master=cluster.url, conf=conf, slots=2, connect_seconds=2)
    runner = WatchedRunner(spark)
    with closing(runner):
        place = SparkPlace(folder / "place", runner, {}, CALVE_SPARK__MASTER=cluster.url)
        place.spark = spark
        place.place.execute(*make_table("events", rows=ROWS))
        yield place
        print(place.everything_told())
        place.close()


@pytest.fixture
def cluster(tmp_path: Path, sparks: Sparks) -> Standalone:
    sparks.close()  # PySpark has room for one
    folder = tmp_path / "cluster"
    folder.mkdir()
    return Standalone(folder)


def test_T14_a_master_that_is_away_at_the_start_is_said_and_waited_for(
    tmp_path: Path, cluster: Standalone
) -> None:
    service = f"spark:{cluster.url}"
    with place_on(tmp_path, cluster) as place, place.worker():
        ids = place.submit("events", "lake.ns.events")
        until(lambda: place.planned(ids), "the plans: they need no Spark")
        began = time.monotonic()
        until(lambda: place.breakers() == [service], "the breaker to open")
        assert time.monotonic() - began < 10
        until(lambda: len(waiting_for(place.app.store, place.rows(ids))) == len(ids), "all to wait for it")
        said = why(place.app.store, place.rows(ids)[0])
        assert f"It waits for {service}, which has been down since" in said and "Connection refused" in said
        [opened] = place.app.store.breakers()
        until(lambda: place.app.store.breakers()[0].probes > opened.probes + 6, "more probes than tries")
        listed = call("ps", cwd=place.place.folder, env=place.place.settings)
        assert f"{service} has been down since" in listed.err
        assert not place.ended(ids)
        with cluster:
            ended = place.finish(ids, seconds=240)
    completed_without_budget(place, ids, ended)


@pytest.mark.parametrize("when", ["Spark starts", "tasks run"])
def test_T14_a_master_that_is_killed_and_comes_back(tmp_path: Path, cluster: Standalone, when: str) -> None:
    service = f"spark:{cluster.url}"
    with cluster, place_on(tmp_path, cluster) as place, place.worker():
        if when == "tasks run":
            place.spark.warm()
        ids = place.submit("events", "lake.ns.events")
        until(lambda: place.runner.busy == 2, "tasks to run")
        cluster.stop_master()
        began = time.monotonic()
        until(lambda: place.breakers() == [service] and place.runner.busy == 0, "the breaker to open")
        assert time.monotonic() - began < 15
        assert not place.ended(ids)
        cluster.start_master()
        ended = place.finish(ids, seconds=240)
        assert place.breakers() == []
    completed_without_budget(place, ids, ended)


def test_T14_a_master_that_is_restarted_between_two_exports_knows_nothing_of_the_first(
    tmp_path: Path, cluster: Standalone
) -> None:
    """Its application would wait for executors for ever: another one is started."""
    with cluster, place_on(tmp_path, cluster) as place, place.worker():
        first = place.submit("events", "lake.ns.events", "0")
        ended = place.finish(first, seconds=240)
        cluster.stop_master()
        cluster.start_master()
        rest = place.submit("events", "lake.ns.events", "1", "2", "3", "4")
        ended += place.finish(rest, seconds=240)
    completed_without_budget(place, first + rest, ended)


def completed_without_budget(place: OutagePlace, ids: list[ProcessId], ended: list[Process]) -> None:
    assert {process.state for process in ended} == {ProcessState.COMPLETED}, ended
    assert place.ids_in("lake.ns.events") == list(range(PARTS * ROWS))
    with place.place.app() as app:
        for process_id in ids:
            for task in app.store.tasks(process_id):
                assert task.state is TaskState.DONE
                assert task.attempt - task.free_attempts == 1, task.error
