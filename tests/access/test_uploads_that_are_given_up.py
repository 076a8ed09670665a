"""An upload that is given up leaves no object, and none of its parts: looked up in the server itself."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from calve.lake.objects.s3 import CHUNK_BYTES
from calve.lake.storage import Storage
from calve.model.errors import UnavailableError
from calve.model.process import Process
from calve.model.states import Leftovers, ProcessState
from calve.testing.child_runner import ChildRunner
from calve.testing.network_proxy import Fault, NetworkProxy
from calve.testing.outage_place import BUCKET, OutagePlace, behind, until
from calve.testing.s3 import S3Server

pytestmark = pytest.mark.services

ROWS = 24_000
TABLE = (
    "CREATE DATABASE IF NOT EXISTS db",
    "CREATE TABLE db.events (id UInt64, blob String) ENGINE = MergeTree ORDER BY id",
    # Half of it is left after compression: a file of some 12 MB, in three parts.
    f"INSERT INTO db.events SELECT number, hex(randomString(512)) FROM numbers({ROWS})",
)
SLOW = 1_500_000  # bytes a second
IN_ITS_MIDST = CHUNK_BYTES + 1_000_000  # of the request's bytes: the first part is there


@pytest.fixture
def network(s3: S3Server) -> Iterator[NetworkProxy]:
    with NetworkProxy(s3.port) as proxy:
        yield proxy


@pytest.fixture
def storage(s3: S3Server) -> Storage:
    """The server itself, whatever happens on the network."""
    return Storage(s3.properties())


@pytest.fixture
def place(tmp_path: Path, runner: ChildRunner, s3: S3Server, network: NetworkProxy) -> Iterator[OutagePlace]:
    place = OutagePlace(
        tmp_path / "place",
        runner,
        behind(s3, network.port),
        CALVE_LIMITS__TASK_BYTES_MB="1000",
        CALVE_LIMITS__CALL_SECONDS="15",
        CALVE_LIMITS__KEEP_FAILED_HOURS="0.00001",
    )
    place.place.execute(*TABLE)
    yield place
    place.close()


def in_mid_upload(place: OutagePlace, network: NetworkProxy, storage: Storage, to: str) -> Process:
    """An export whose upload has begun, and whose first part the server has."""
    with place.runner.holding():
        ids = place.submit("events", to, "all")
        until(lambda: place.planned(ids), "the plan")
        network.set(Fault(bytes_per_second=SLOW))
        sent = network.counts.request_bytes
    until(lambda: network.counts.request_bytes > sent + IN_ITS_MIDST, "an upload to be half done")
    assert len(storage.uploads(f"s3://{BUCKET}")) == 1
    return place.rows(ids)[0]


def data_files(storage: Storage, process: Process) -> list[str]:
    mark = f"calve-{process.id}-"
    return [uri for uri in storage.list(f"s3://{BUCKET}") if mark in uri and uri.endswith(".parquet")]


def test_a_cancelled_export_leaves_neither_object_nor_parts(
    place: OutagePlace, network: NetworkProxy, storage: Storage
) -> None:
    with place.worker():
        process = in_mid_upload(place, network, storage, "far.cancelled.events")
        place.app.store.request_cancel(process.id)
        [process] = place.finish([process.id])
        network.heal()
        assert process.state is ProcessState.CANCELLED
        until(lambda: place.rows([process.id])[0].leftovers is Leftovers.GONE, "the undo")
    assert storage.uploads(f"s3://{BUCKET}") == []
    assert data_files(storage, process) == []


def test_an_executor_that_is_killed_costs_an_attempt_and_its_parts_are_aborted(
    place: OutagePlace, network: NetworkProxy, storage: Storage, runner: ChildRunner
) -> None:
    with place.worker():
        process = in_mid_upload(place, network, storage, "far.killed.events")
        runner.kill_busy()
        network.heal()
        [process] = place.finish([process.id])
    assert process.state is ProcessState.COMPLETED, place.told(process.id)
    assert [task.attempt for task in place.app.store.tasks(process.id)] == [2]
    assert storage.uploads(f"s3://{BUCKET}") == []
    [file] = data_files(storage, process)
    assert file.endswith(f"calve-{process.id}-0-2-0.parquet")
    assert place.ids_in("far.killed.events") == list(range(ROWS))


def test_an_upload_that_fails_is_aborted_by_the_task_itself(
    network: NetworkProxy, s3: S3Server, storage: Storage, tmp_path: Path
) -> None:
    large = tmp_path / "large"
    large.write_bytes(os.urandom(3 * CHUNK_BYTES))
    network.set(Fault(cut_request_after_bytes=CHUNK_BYTES // 2))  # of a connection: no part goes through
    with pytest.raises(UnavailableError):
        Storage(behind(s3, network.port), call_seconds=3).upload(large, f"s3://{BUCKET}/failed/large")
    assert network.counts.cut > 1
    assert storage.uploads(f"s3://{BUCKET}/failed") == []
    assert storage.list(f"s3://{BUCKET}/failed") == []


def test_only_uploads_below_the_folder_are_listed_and_aborting_twice_is_harmless(
    s3: S3Server, storage: Storage
) -> None:
    begun = {}
    for key in ("up/a b/x", "up/a b/y", "upward/z"):
        status, body = s3.request("POST", f"/{BUCKET}/{key}", query={"uploads": ""})
        assert status == 200, body
        begun[key] = body
    found = storage.uploads(f"s3://{BUCKET}/up/")
    assert [upload.uri for upload in found] == [f"s3://{BUCKET}/up/a b/x", f"s3://{BUCKET}/up/a b/y"]
    assert all(upload.begun_at is not None for upload in found)
    storage.abort(found[:1])
    storage.abort(found)
    assert storage.uploads(f"s3://{BUCKET}/up") == []
    [other] = storage.uploads(f"s3://{BUCKET}")
    storage.abort([other])
    assert storage.uploads(f"s3://{BUCKET}") == []


def test_in_a_folder_what_a_killed_writer_left_is_found_by_its_name(tmp_path: Path) -> None:
    storage = Storage()
    left = tmp_path / "month=1" / ".calve-p1-0-1-0.parquet.0123456789ab.calve-tmp"
    left.parent.mkdir()
    left.write_bytes(b"half")
    [upload] = storage.uploads(f"file://{tmp_path}")
    assert upload.uri == f"file://{tmp_path}/month=1/calve-p1-0-1-0.parquet"
    storage.abort([upload])
    storage.abort([upload])
    assert not left.exists()
