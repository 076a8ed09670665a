"""Executors that are lost in the middle of tasks, decommissioned, and added: every row is there once."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from cluster_place import ClusterPlace, attempts, cluster_conf, finished, numbers

from calve.app.calve import Calve
from calve.app.values import ExportOptions, Selection
from calve.model.process import Granted, ProcessId
from calve.spark.runner import SparkRunner
from support.outage_place import until
from support.programs import Program

pytestmark = [pytest.mark.spark, pytest.mark.services]

SLOW = ExportOptions(where="note != 'slow'")  # the front takes seconds for a statement with that word


@contextmanager
def under_way(
    place: ClusterPlace, name: str, partitions: int = 4, tries: int = 1
) -> Iterator[tuple[Calve, list[ProcessId]]]:
    """An export with tasks on both executors. Once it has completed, every row is there once, and no task has used
    more of its budget than so many tries."""
    table = place.make(name, partitions)
    with place.calve() as calve:
        asked = calve.export(table, f"far.ns.{name}", Selection(all=True), SLOW)
        ids = [process.id for process in asked.processes]
        running = threading.Thread(target=lambda: list(calve.run(ids, timeout_seconds=240)))
        running.start()
        try:
            until(lambda: busy_executors(place) == 2, "tasks on both executors", 120)
            yield calve, ids
        finally:
            running.join(250)
        finished(calve, ids)
        assert place.ids_in(f"far.ns.{name}") == numbers(partitions)
        assert max(attempts(calve, ids)) <= tries


def busy_executors(place: ClusterPlace) -> int:
    """Those that run a task now, as Spark knows it."""
    known = place.spark.started()._jsc.sc().statusTracker().getExecutorInfos()
    return sum(1 for one in known if one.numRunningTasks() > 0)


def granted(place: ClusterPlace) -> Granted:
    return place.spark.granted() or Granted(executors=0, at_once=0)


def replace_workers(place: ClusterPlace, most: int = 2) -> None:
    """As many as before."""
    while len(place.cluster.workers) < most:
        place.cluster.add_worker()
    until(lambda: granted(place).executors == most, "the executors of the others", 120)


def test_an_executor_killed_in_mid_task_costs_its_wave_an_attempt(place: ClusterPlace) -> None:
    """Spark says of one that died by itself that its tasks may have killed it, as one without memory is."""
    killed = place.cluster.workers[0]
    with under_way(place, "killed", tries=2) as (calve, ids):
        before = place.cluster.executors(killed)
        place.cluster.kill_executor(killed)
        until(lambda: "task_again" in {event.name for event in calve.events(ids)}, "the loss to be seen", 60)
    assert len(before) == 1
    until(lambda: granted(place).executors == 2, "an executor in its place", 120)


@pytest.mark.long
def test_a_machine_that_loses_its_power_is_done_without(place: ClusterPlace) -> None:
    with under_way(place, "power"):
        place.cluster.kill_worker(place.cluster.workers[0])
    replace_workers(place)


@pytest.mark.long
def test_a_worker_that_is_decommissioned_in_mid_task_is_done_without(place: ClusterPlace) -> None:
    leaving = place.cluster.workers[0]
    with under_way(place, "leaving"):
        place.cluster.decommission(leaving)
        until(lambda: granted(place).executors == 1, "its executor to be taken out")
        assert place.spark.slots == 4
    place.cluster.kill_worker(leaving)
    replace_workers(place)


@pytest.mark.long
def test_slots_follow_executors_that_come_and_why_and_ps_say_so(place: ClusterPlace) -> None:
    added: list[Program] = []
    with under_way(place, "added", partitions=8) as (calve, ids):
        assert place.spark.slots == 8
        added.append(place.cluster.add_worker())
        until(lambda: place.spark.slots == 12, "the executor of the machine that was added", 120)
        until(lambda: _told(calve, ids, "3 executors for 6 tasks at a time"), "the heartbeat that tells")
    place.cluster.kill_worker(added[0])
    until(lambda: granted(place).executors == 2, "the cluster as it was", 120)


def _told(calve: Calve, ids: list[ProcessId], words: str) -> bool:
    return words in {str(status.worker.granted) for status in calve.workers()} and any(
        words in reason.why for reason in calve.why(ids)
    )


@pytest.mark.long
def test_a_cluster_without_an_executor_is_waited_for_and_said(place: ClusterPlace) -> None:
    table = place.make("none")
    for worker in list(place.cluster.workers):
        place.cluster.kill_worker(worker)
    until(lambda: granted(place).executors == 0, "no executor", 120)
    with place.calve() as calve:
        asked = calve.export(table, "far.ns.none", Selection(all=True))
        ids = [process.id for process in asked.processes]
        running = threading.Thread(target=lambda: list(calve.run(ids, timeout_seconds=240)))
        running.start()
        until(lambda: "granted" in calve.why(ids)[0].why, "the reason", 60)
        assert "wait for executors" in calve.why(ids)[0].why and "no executor" in calve.why(ids)[0].why
        replace_workers(place)
        running.join(250)
        finished(calve, ids)
    assert place.ids_in("far.ns.none") == numbers(4)


@pytest.mark.long
def test_dynamic_allocation_gives_executors_back_and_takes_them_again(
    place: ClusterPlace, spark: SparkRunner
) -> None:
    spark.close()
    conf = cluster_conf(place.cluster) | {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
        "spark.dynamicAllocation.executorIdleTimeout": "2s",
        "spark.executor.cores": "1",
    }
    table = place.make("dynamic", partitions=8)
    with closing(SparkRunner(master=place.cluster.url, conf=conf)) as dynamic:
        most: list[int] = []
        with _lent(place, dynamic), place.calve() as calve:
            dynamic.warm()
            assert dynamic.slots == 2
            asked = calve.export(table, "far.ns.dynamic", Selection(all=True), SLOW)
            ids = [process.id for process in asked.processes]
            for _ in calve.run(ids, timeout_seconds=240):
                most.append((dynamic.granted() or Granted(executors=0, at_once=0)).executors)
            finished(calve, ids)
        until(lambda: dynamic.granted() == Granted(executors=0, at_once=0), "all to be given back", 60)
        assert max(most) >= 2  # the two tasks that ask for the first ones
    assert place.ids_in("far.ns.dynamic") == numbers(8)


@pytest.mark.long
def test_the_driver_s_jvm_killed_in_mid_task_is_started_again(place: ClusterPlace) -> None:
    with under_way(place, "driver", tries=2):
        place.spark.jvm.kill()


@contextmanager
def _lent(place: ClusterPlace, runner: SparkRunner) -> Iterator[None]:
    before, place.runner = place.runner, runner
    try:
        yield
    finally:
        place.runner = before
