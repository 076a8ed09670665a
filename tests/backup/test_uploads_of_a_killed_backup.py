"""What a killed executor began to upload for a backup is aborted: looked up in the S3 server itself."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from backup_place import DirectRunner
from ticked import Ticked

from calve.backup import shelf
from calve.backup.verifying import verify
from calve.control.ports import TaskOrder, TaskResult
from calve.model.states import Leftovers, ProcessState
from calve.objects.s3 import CHUNK_BYTES
from calve.objects.storage import Storage
from calve.spark import executor
from calve.testing.kept_source import KeptSource
from calve.testing.network_proxy import Fault, NetworkProxy
from calve.testing.outage_place import behind, until
from calve.testing.s3 import S3Server, s3_server

pytestmark = pytest.mark.services

SLOW = Fault(bytes_per_second=1_500_000)


@dataclass
class KilledOnce(DirectRunner):
    """The first attempt runs in a child, which is killed once the server has a part of its upload."""

    network: NetworkProxy | None = None
    then: Callable[[], None] = lambda: None

    def run(self, group: str, orders: Sequence[TaskOrder], on_result: Callable[[TaskResult], None]) -> None:
        network, self.network = self.network, None
        if network is None:
            super().run(group, orders, on_result)
            return
        sent = network.counts.request_bytes
        network.set(SLOW)
        child = multiprocessing.get_context("spawn").Process(target=executor.execute, args=(orders[0],))
        child.start()
        until(lambda: network.counts.request_bytes > sent + CHUNK_BYTES + 1_000_000, "half an upload")
        child.kill()
        child.join()
        network.heal()
        self.then()


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        server.create_bucket("backups")
        yield server


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptSource]:
    with KeptSource(tmp_path_factory.mktemp("clickhouse")) as source:
        source.execute(
            "CREATE DATABASE db",
            "CREATE TABLE db.t (id UInt64, s String) ENGINE = MergeTree ORDER BY id",
            "INSERT INTO db.t SELECT number, randomString(100) FROM numbers(150000)",  # 15 MB
        )
        yield source


@pytest.fixture
def ticked(s3: S3Server, source: KeptSource, tmp_path: Path) -> Iterator[Ticked]:
    with NetworkProxy(s3.port) as network:
        ticked = Ticked(tmp_path, source, task_bytes_mb=100)
        ticked.ports.url, ticked.ports.storage = f"s3://backups/{tmp_path.name}", behind(s3, network.port)
        ticked.runner = KilledOnce(slots=2, network=network)
        yield ticked


def begun(s3: S3Server, ticked: Ticked) -> list[str]:
    return [upload.uri for upload in Storage(s3.properties()).uploads(ticked.ports.url)]


def after_the_kill(s3: S3Server, ticked: Ticked, do: Callable[[], object]) -> list[str]:
    """Do something once the executor is dead; what it has left by then is in the list."""
    left: list[str] = []

    def then() -> None:
        left.extend(begun(s3, ticked))
        do()

    assert isinstance(ticked.runner, KilledOnce)
    ticked.runner.then = then
    return left


def test_of_a_cancelled_one_they_go_at_once(s3: S3Server, ticked: Ticked) -> None:
    process_id, worker = ticked.create("b"), ticked.worker()
    left = after_the_kill(s3, ticked, lambda: ticked.store.request_cancel(process_id))
    assert ticked.settle(process_id, worker).state is ProcessState.CANCELLED
    assert left and all(f"/parts/{process_id}/0-1/" in uri for uri in left)
    worker.tick()
    assert begun(s3, ticked) == []
    assert ticked.row(process_id).leftovers is Leftovers.KEPT, "what is whole waits for a retry"


def test_of_one_that_completes_by_another_attempt_they_go_too(s3: S3Server, ticked: Ticked) -> None:
    process_id, worker = ticked.create("b"), ticked.worker()
    left = after_the_kill(s3, ticked, lambda: None)
    row = ticked.settle(process_id, worker)
    assert row.state is ProcessState.COMPLETED, row.error
    assert left and [task.attempt for task in ticked.store.tasks(process_id)] == [2]
    worker.tick()
    assert begun(s3, ticked) == []
    assert verify(ticked.location, shelf.find(ticked.location, "b"), read_share=1.0).whole
