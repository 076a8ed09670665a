"""An upload that is given up leaves no object, and none of its parts: looked up in the server itself."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from calve.control.retry import retry
from calve.model.errors import UnavailableError
from calve.model.process import Process
from calve.model.states import Leftovers, ProcessState
from calve.objects.port import Upload
from calve.objects.s3 import CHUNK_BYTES
from calve.objects.storage import Storage
from calve.testing.child_runner import ChildRunner
from calve.testing.network_proxy import Fault, NetworkProxy
from calve.testing.outage_place import BUCKET, OutagePlace, behind, until
from calve.testing.s3 import S3Server

pytestmark = pytest.mark.services

ROWS, FEW = 24_000, 4_000
TABLE = (
    "CREATE DATABASE IF NOT EXISTS db",
    "CREATE TABLE db.events (id UInt64, blob String) ENGINE = MergeTree ORDER BY id",
    # Half of it is left after compression: a file of some 12 MB, in three parts.
    f"INSERT INTO db.events SELECT number, hex(randomString(512)) FROM numbers({ROWS})",
)
TWO_SIZES = (
    "CREATE DATABASE IF NOT EXISTS db",
    "CREATE TABLE db.sizes (id UInt64, blob String) ENGINE = MergeTree ORDER BY id",
    "SYSTEM STOP MERGES db.sizes",
    f"INSERT INTO db.sizes SELECT number, hex(randomString(512)) FROM numbers({ROWS})",
    f"INSERT INTO db.sizes SELECT number + {ROWS}, hex(randomString(512)) FROM numbers({FEW})",
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


def begun_by_another(s3: S3Server, storage: Storage, process: Process) -> Upload:
    """An upload beside the process's own, of another process whose name begins alike."""
    [own] = [one for one in storage.uploads(f"s3://{BUCKET}") if f"calve-{process.id}-" in one.uri]
    key = own.uri.replace(f"calve-{process.id}-", f"calve-{process.id}x-").removeprefix("s3:/")
    status, body = s3.request("POST", key, query={"uploads": ""})
    assert status == 200, body
    [other] = [one for one in storage.uploads(f"s3://{BUCKET}") if one.uri == f"s3:/{key}"]
    return other


@pytest.mark.parametrize("to", ["far.cancelled.events", f"s3://{BUCKET}/plain/events/"])
def test_the_parts_of_a_cancelled_export_are_aborted_while_its_files_are_kept(
    place: OutagePlace, network: NetworkProxy, storage: Storage, s3: S3Server, to: str
) -> None:
    with place.worker():
        process = in_mid_upload(place, network, storage, to)
        other = begun_by_another(s3, storage, process)
        place.app.store.request_cancel(process.id)
        [process] = place.finish([process.id])
        network.heal()
        assert process.state is ProcessState.CANCELLED
        until(lambda: storage.uploads(f"s3://{BUCKET}") == [other], "its parts to be aborted")
        [process] = place.rows([process.id])
    assert process.leftovers is Leftovers.KEPT and process.cleanup_at is not None
    assert data_files(storage, process) == []
    assert "uploads_aborted" in place.told(process.id)
    storage.abort([other])


def test_what_a_failed_export_finished_stays_for_its_retry_and_only_parts_are_aborted(
    place: OutagePlace, network: NetworkProxy, storage: Storage, runner: ChildRunner
) -> None:
    place.place.execute(*TWO_SIZES)
    with place.worker(CALVE_LIMITS__TASK_ATTEMPTS="1", CALVE_LIMITS__TASK_BYTES_MB="26"):
        with runner.holding():
            [first] = place.submit("sizes", "far.failed.sizes", "all")
            until(lambda: place.planned([first]), "the plan")
            network.set(Fault(bytes_per_second=SLOW))
            sent = network.counts.request_bytes
        until(lambda: place.rows([first])[0].tasks.done == 1, "the small file")
        until(lambda: network.counts.request_bytes > sent + IN_ITS_MIDST, "an upload to be half done")
        runner.kill_busy()
        network.heal()
        [failed] = place.finish([first])
        assert failed.state is ProcessState.FAILED, place.told(first)
        until(lambda: storage.uploads(f"s3://{BUCKET}") == [], "its parts to be aborted")
        [small] = data_files(storage, failed)
        again = retry(place.app.store, first)
        assert again.adopted
        [done] = place.finish([again.id])
    assert done.state is ProcessState.COMPLETED, place.told(done.id)
    assert small in data_files(storage, failed), "the retry relies on it"
    assert place.ids_in("far.failed.sizes") == list(range(ROWS + FEW))


def test_an_executor_that_is_killed_costs_an_attempt_and_its_parts_are_aborted(
    place: OutagePlace, network: NetworkProxy, storage: Storage, runner: ChildRunner
) -> None:
    with place.worker():
        process = in_mid_upload(place, network, storage, "far.killed.events")
        runner.kill_busy()
        network.heal()
        [process] = place.finish([process.id])
        until(lambda: storage.uploads(f"s3://{BUCKET}") == [], "the first attempt's parts to be aborted")
    assert process.state is ProcessState.COMPLETED, place.told(process.id)
    assert [task.attempt for task in place.app.store.tasks(process.id)] == [2]
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


def test_an_upload_whose_object_is_whole_is_let_be(s3: S3Server, storage: Storage) -> None:
    """A server that lists one it has finished would take the object's data along."""
    uri = f"s3://{BUCKET}/whole/x"
    storage.put_if_absent(uri, b"whole")
    status, body = s3.request("POST", f"/{BUCKET}/whole/x", query={"uploads": ""})
    assert status == 200, body
    [begun] = storage.uploads(f"s3://{BUCKET}/whole")
    storage.abort([begun])
    assert storage.uploads(f"s3://{BUCKET}/whole") == [begun]
    assert storage.read(uri) == b"whole"
    storage.delete([uri])
    storage.abort([begun])
    assert storage.uploads(f"s3://{BUCKET}/whole") == []


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
