"""Several publishers at once, in threads and in processes of their own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from calve.destination.names import DestinationAddress
from calve.iceberg.catalogs.catalog import open_catalog
from calve.iceberg.destination import IcebergDestination
from calve.iceberg.publish import AlreadyExported, PublishedSnapshot, PublishFenced, fence
from calve.iceberg.undo import undo
from calve.model.errors import TemporaryError
from calve.model.limits import Limits
from calve.objects.storage import Storage
from support.lake import IDENTIFIER, Work, make_table, make_work, rows_of, sqlite_properties
from support.outcomes import (
    Publisher,
    append_as_somebody_else,
    assert_every_manifest_is_there,
    assert_published_once,
)

RACERS = 4


@pytest.mark.parametrize(
    "has_snapshots", [True, False], ids=["in a table with snapshots", "in an empty table"]
)
def test_L13_threads_that_publish_one_process_publish_it_once(tmp_path: Path, has_snapshots: bool) -> None:
    catalogs = [open_catalog("lake", sqlite_properties(tmp_path)) for _ in range(RACERS)]
    make_table(catalogs[0])
    if has_snapshots:
        append_as_somebody_else(catalogs[0], range(50, 53))
    work = make_work(catalogs[0], [(1, range(9))])
    start = Barrier(RACERS)

    def race(number: int) -> object:
        start.wait()
        return Publisher(catalog=catalogs[number], work=work).run(attempts=50)

    with ThreadPoolExecutor(RACERS) as pool:
        answers = set(pool.map(race, range(RACERS)))
    assert len(answers) == 1
    assert rows_of(catalogs[0]) == [*range(9), *(range(50, 53) if has_snapshots else ())]
    assert_published_once(catalogs[0], work.process_id)
    for catalog in catalogs:
        catalog.close()


def test_L13_stores_that_race_for_one_key_publish_it_once(tmp_path: Path) -> None:
    catalogs = [open_catalog("lake", sqlite_properties(tmp_path)) for _ in range(RACERS)]
    make_table(catalogs[0])
    works = [make_work(catalog, [(1, range(9))]) for catalog in catalogs]
    start = Barrier(RACERS)

    def race(number: int) -> object:
        start.wait()
        return Publisher(catalog=catalogs[number], work=works[number]).run(attempts=50)

    with ThreadPoolExecutor(RACERS) as pool:
        answers = list(pool.map(race, range(RACERS)))
    winners = [answer for answer in answers if isinstance(answer, PublishedSnapshot)]
    assert len(winners) == 1
    assert sum(isinstance(answer, AlreadyExported) for answer in answers) == RACERS - 1
    assert rows_of(catalogs[0]) == list(range(9))
    for catalog in catalogs:
        catalog.close()


def test_L28_threads_that_publish_different_partitions_publish_every_row_once(tmp_path: Path) -> None:
    catalogs = [open_catalog("lake", sqlite_properties(tmp_path)) for _ in range(RACERS)]
    make_table(catalogs[0])
    works = [
        make_work(
            catalog, [(number, range(number * 10, number * 10 + 10))], keys=((str(number), f"k{number}"),)
        )
        for number, catalog in enumerate(catalogs)
    ]
    start = Barrier(RACERS)

    def race(number: int) -> object:
        start.wait()
        return Publisher(catalog=catalogs[number], work=works[number]).run(attempts=100)

    with ThreadPoolExecutor(RACERS) as pool:
        answers = list(pool.map(race, range(RACERS)))
    assert all(isinstance(answer, PublishedSnapshot) for answer in answers)
    assert rows_of(catalogs[0]) == list(range(10 * RACERS))
    for work, catalog in zip(works, catalogs, strict=True):
        assert_published_once(catalogs[0], work.process_id)
        catalog.close()


CHILD = """
import json, os, signal, sys
from calve.destination.names import DestinationAddress
from calve.iceberg.catalogs.catalog import open_catalog
from calve.iceberg.destination import IcebergDestination
from calve.iceberg.publish import AlreadyExported, publish
from calve.model.errors import CalveError, TemporaryError
from calve.destination.plan import ExportPlan
from calve.destination.receipt import Receipt
from support.lake import sqlite_properties
from pathlib import Path

given = json.loads(sys.stdin.readline())
catalog = open_catalog("lake", sqlite_properties(Path(given["folder"])))
plan = ExportPlan.from_json(given["plan"])
receipts = [Receipt.from_json(text) for text in given["receipts"]]
noted = [""]

def note(text):
    noted[0] = text
    if given["stop"]:
        print(text, flush=True)
        really = catalog.commit_table
        def stopped(*request):
            os.kill(os.getpid(), signal.SIGSTOP)
            return really(*request)
        catalog.commit_table = stopped

catalog.load_table(plan.destination.identifier)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(50):
    try:
        answer = publish(catalog, plan.process_id, plan, receipts, noted[0], note)
        print(type(answer).__name__, flush=True)
        break
    except TemporaryError as error:
        if given["stop"]:
            print(error.code, flush=True)
            break
    except CalveError as error:
        print(error.code, flush=True)
        break
"""


class Child:
    """A publisher in a process of its own."""

    def __init__(self, folder: Path, work: Work, *, stop: bool = False) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        receipts = [receipt.to_json() for receipt in work.receipts]
        self.say(
            json.dumps(
                {"folder": str(folder), "plan": work.plan.to_json(), "receipts": receipts, "stop": stop}
            )
        )

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def children() -> Iterator[list[Child]]:
    made: list[Child] = []
    yield made
    for child in made:
        child.end()


def test_L13_processes_that_publish_one_process_publish_it_once(
    tmp_path: Path, children: list[Child]
) -> None:
    catalog = open_catalog("lake", sqlite_properties(tmp_path))
    make_table(catalog)
    work = make_work(catalog, [(1, range(9))])
    children.extend(Child(tmp_path, work) for _ in range(3))
    assert [child.hear() for child in children] == ["ready"] * 3
    for child in children:
        child.say("go")
    assert [child.hear() for child in children] == ["PublishedSnapshot"] * 3
    assert rows_of(catalog) == list(range(9))
    assert_published_once(catalog, work.process_id)
    catalog.close()


@pytest.mark.parametrize(
    "has_snapshots", [True, False], ids=["in a table with snapshots", "in an empty table"]
)
def test_D2_a_publisher_stopped_before_its_send_then_fenced_and_undone_publishes_nothing_when_it_wakes(
    tmp_path: Path, children: list[Child], has_snapshots: bool
) -> None:
    catalog = open_catalog("lake", sqlite_properties(tmp_path))
    make_table(catalog)
    others = list(range(50, 53)) if has_snapshots else []
    if has_snapshots:
        append_as_somebody_else(catalog, range(50, 53))
    work = make_work(catalog, [(1, range(9))])
    child = Child(tmp_path, work, stop=True)
    children.append(child)
    assert child.hear() == "ready"
    child.say("go")
    noted = child.hear()
    _, status = os.waitpid(child.process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)

    assert isinstance(fence(catalog, work.process_id, work.plan, noted), PublishFenced)
    done = undo(catalog, Storage(), work.process_id, work.plan, work.receipts, noted)
    assert done.left == ()
    assert work.receipts[0].files[0].path in done.deleted
    os.kill(child.process.pid, signal.SIGCONT)

    assert child.hear() == "publish_fenced"
    assert rows_of(catalog) == others
    assert_every_manifest_is_there(catalog)
    catalog.close()


def test_D2_without_the_fence_the_same_publisher_would_have_published(
    tmp_path: Path, children: list[Child]
) -> None:
    """The scene is real: woken without a tombstone, the stopped commit lands."""
    catalog = open_catalog("lake", sqlite_properties(tmp_path))
    make_table(catalog)
    work = make_work(catalog, [(1, range(9))])
    child = Child(tmp_path, work, stop=True)
    children.append(child)
    child.hear()
    child.say("go")
    child.hear()
    os.waitpid(child.process.pid, os.WUNTRACED)
    os.kill(child.process.pid, signal.SIGCONT)
    assert child.hear() == "PublishedSnapshot"
    assert rows_of(catalog) == list(range(9))
    catalog.close()


def _two_into_one_table(tmp_path: Path, limits: Limits) -> tuple[IcebergDestination, Work, Work]:
    properties = sqlite_properties(tmp_path)
    catalog = open_catalog("lake", properties)
    make_table(catalog)
    address = DestinationAddress(catalog="lake", identifier=IDENTIFIER)
    first, second = (
        make_work(catalog, [(1, range(at, at + 3))], keys=[(str(at), f"k-{at}")]) for at in (0, 10)
    )
    return IcebergDestination(address, catalog, properties, limits), first, second


def test_one_worker_s_publishes_into_a_table_take_turns(tmp_path: Path) -> None:
    """Bench `scale-simulation`: of 32 at once, most lost the race and waited a second to start again."""
    destination, first, second = _two_into_one_table(tmp_path, Limits())
    with ThreadPoolExecutor(1) as pool:
        beside: list[Future[object]] = []

        def meanwhile(_: str) -> None:
            run = (second.process_id, second.plan, second.receipts, "", lambda _: None)
            beside.append(pool.submit(destination.publish, *run))
            with pytest.raises(TimeoutError):  # it would be done by now, and the first refused
                beside[0].result(timeout=0.5)

        answer = destination.publish(first.process_id, first.plan, first.receipts, "", meanwhile)
        assert isinstance(answer, PublishedSnapshot)
        assert isinstance(beside[0].result(), PublishedSnapshot)
    assert rows_of(destination.catalog) == [0, 1, 2, 10, 11, 12]


def test_a_publish_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    destination, first, second = _two_into_one_table(tmp_path, Limits(call_seconds=0.01))
    with ThreadPoolExecutor(1) as pool:

        def meanwhile(_: str) -> None:
            run = (second.process_id, second.plan, second.receipts, "", lambda _: None)
            assert isinstance(pool.submit(destination.publish, *run).result(), PublishedSnapshot)

        with pytest.raises(TemporaryError, match="changed while the snapshot was built"):
            destination.publish(first.process_id, first.plan, first.receipts, "", meanwhile)
    assert rows_of(destination.catalog) == [10, 11, 12]
