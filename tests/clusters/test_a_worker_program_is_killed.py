"""Whole `calve worker` programs on a cluster, each the driver of an application of its own. One is killed, or stopped for
longer than its lease, in the middle of tasks and of a publish: another takes over, the cluster gets the executors back, and
every row is there once.

The Spark that these tests share is closed meanwhile: its cores are for the programs.
"""

import json
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from cluster_place import ClusterPlace, attempts, cluster_conf, finished, numbers

from calve.app.calve import Calve
from calve.app.front import WorkerState
from calve.app.values import ExportOptions, Selection
from calve.model.process import Process, ProcessId
from calve.model.states import PROCESS_TERMINAL, ProcessState
from support.outage_place import until
from support.programs import ForkedProgram

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.long]

SLOW = ExportOptions(where="note != 'slow'")  # the front takes seconds for a statement with that word


class Programs:
    """Workers with the cluster's configuration, in programs of their own."""

    def __init__(self, place: ClusterPlace) -> None:
        self.place = place
        self._programs: list[ForkedProgram] = []
        conf = cluster_conf(place.cluster) | {"spark.cores.max": "2", "spark.executor.cores": "1"}
        lines = "\n".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in conf.items())
        text = (place.folder / "calve.toml").read_text()
        self._config = place.folder / "programs.toml"
        self._config.write_text(text.replace("\n[spark.conf] ", f"\n[spark.conf]\n{lines}\n#", 1))

    def worker(self) -> ForkedProgram:
        """One that has said it is there."""
        log = self.place.folder / f"worker-{len(self._programs)}.log"
        program = ForkedProgram(
            log.stem,
            ["calve.cli.main:main", "worker", "--config", str(self._config)],
            log,
            self.place.settings,
            self.place.folder,
        )
        self._programs.append(program)
        program.wait_ready(lambda: " reaches " in log.read_text())
        return program

    def close(self) -> None:
        for program in self._programs:
            program.kill()


@pytest.fixture
def programs(place: ClusterPlace) -> Iterator[Programs]:
    place.spark.close()
    until(lambda: applications(place) == set(), "the end of the shared application")
    with closing(Programs(place)) as made:
        yield made


def applications(place: ClusterPlace) -> set[str]:
    """Those that have executors now."""
    found = set()
    for worker in place.cluster.workers:
        for pid in place.cluster.executors(worker):
            with_name = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            found.add(with_name[with_name.index(b"--app-id") + 1].decode())
    return found


@contextmanager
def asked(place: ClusterPlace, name: str) -> Iterator[tuple[Calve, list[ProcessId]]]:
    """An export of four partitions that this program only asks for. At its end every row is there once."""
    table = place.make(name)
    with place.calve() as calve:
        ids = [one.id for one in calve.export(table, f"far.ns.{name}", Selection(all=True), SLOW).processes]
        yield calve, ids
        until(
            lambda: all(one.state in PROCESS_TERMINAL for one in rows(calve, ids)),
            "the end of the export",
            240,
        )
        finished(calve, ids)
        assert place.ids_in(f"far.ns.{name}") == numbers(4)
        # One commit for each process: nothing was published twice and taken back.
        assert len(place.table(f"far.ns.{name}").metadata.snapshots) == len(ids)
        assert place.pins == []


def rows(calve: Calve, ids: list[ProcessId]) -> list[Process]:
    return [one.process for one in calve.show(ids)]


def working(calve: Calve) -> int:
    """Of those that earlier tests killed, the rows are still there."""
    return sum(one.state is WorkerState.WORKING for one in calve.workers())


def running(calve: Calve, ids: list[ProcessId]) -> bool:
    return any(one.tasks.running for one in rows(calve, ids))


def test_one_that_is_killed_in_mid_task_is_replaced_and_its_executors_go(programs: Programs) -> None:
    place, first = programs.place, programs.worker()
    with asked(place, "midtask") as (calve, ids):
        until(lambda: running(calve, ids) and len(applications(place)) == 1, "tasks on executors", 120)
        before = applications(place)
        first.send(signal.SIGKILL)
        until(lambda: not before & applications(place), "the end of its executors", 60)
        programs.worker()
    with place.calve() as calve:
        assert max(attempts(calve, ids)) <= 2
    assert applications(place).isdisjoint(before)


def test_one_that_is_killed_in_mid_publish_is_replaced(programs: Programs) -> None:
    place, first = programs.place, programs.worker()
    with asked(place, "midpublish") as (calve, ids):
        until(lambda: running(calve, ids), "tasks", 120)
        # The catalog can be read, and no commit gets through while somebody else is about to write.
        with closing(sqlite3.connect(place.folder / "far.db", isolation_level=None, timeout=60)) as catalog:
            catalog.execute("BEGIN IMMEDIATE")
            until(
                lambda: any(one.state is ProcessState.PUBLISHING for one in rows(calve, ids)),
                "publishing",
                120,
            )
            first.send(signal.SIGKILL)
            catalog.execute("COMMIT")
        programs.worker()


def test_one_that_is_stopped_past_its_lease_finds_its_work_done_and_goes_on(programs: Programs) -> None:
    place, first = programs.place, programs.worker()
    with asked(place, "stopped") as (calve, ids):
        until(lambda: running(calve, ids) and len(applications(place)) == 1, "tasks on executors", 120)
        first.send(signal.SIGSTOP)
        second = programs.worker()
        until(
            lambda: all(one.state in PROCESS_TERMINAL for one in rows(calve, ids)),
            "the other to do its work",
            240,
        )
        first.send(signal.SIGCONT)
        until(lambda: working(calve) == 2, "both to live", 60)
    second.kill()
    with asked(place, "later"):
        pass
