"""Uploads over a network that cuts, delays and throttles: whole or not at all, and never half visible."""

import contextlib
import os
import threading
from pathlib import Path

import pytest

from calve.model.errors import NotFoundError, UnavailableError
from calve.objects.remote import CHUNK_BYTES
from calve.objects.storage import Storage
from support.network_proxy import Fault, Mode, NetworkProxy
from support.outage_place import BUCKET, behind, until
from support.s3 import S3Server

pytestmark = pytest.mark.services


@pytest.fixture
def storage(s3: S3Server, network: NetworkProxy) -> Storage:
    return Storage(behind(s3, network.port), connect_seconds=2.0, call_seconds=6.0)


@pytest.fixture(params=["small", "in parts"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    file = tmp_path / "data.parquet"
    size = 300_000 if request.param == "small" else 2 * CHUNK_BYTES + 1
    file.write_bytes(os.urandom(size))
    return file


@pytest.mark.parametrize("mode", [Mode.REFUSE, Mode.BLACK_HOLE])
def test_an_upload_that_is_given_up_leaves_no_object(
    storage: Storage, network: NetworkProxy, file: Path, mode: Mode
) -> None:
    uri = f"s3://{BUCKET}/given-up-{mode}-{file.stat().st_size}"
    network.set(Fault(bytes_per_second=file.stat().st_size / 2))
    sent = network.counts.request_bytes
    met: list[BaseException] = []

    def upload() -> None:
        try:
            storage.upload(file, uri)
        except UnavailableError as error:
            met.append(error)

    thread = threading.Thread(target=upload)
    thread.start()
    until(lambda: network.counts.request_bytes > sent + 50_000, "the upload to be half done")
    network.set(Fault(mode=mode))
    thread.join()
    network.heal()
    assert [error.service for error in met if isinstance(error, UnavailableError)] == [
        f"storage:s3://{BUCKET}"
    ]
    # A small file goes in one request: given up while only the answer was missing, it may have arrived,
    # but then whole. A large one goes in parts, and is not there before the last word.
    with contextlib.suppress(NotFoundError):
        assert storage.size(uri) == file.stat().st_size < 5_000_000
    # The same storage, with the connections it has, goes on as if nothing had been.
    storage.upload(file, uri)
    assert storage.read(uri) == file.read_bytes()


def test_a_slow_and_late_network_is_no_outage(s3: S3Server, network: NetworkProxy, file: Path) -> None:
    storage = Storage(behind(s3, network.port), connect_seconds=30.0, call_seconds=60.0)
    uri = f"s3://{BUCKET}/slow-{file.stat().st_size}"
    network.set(Fault(delay_seconds=0.001, bytes_per_second=8_000_000))
    storage.upload(file, uri)
    back = file.with_name("back")
    storage.download(uri, back)
    assert back.read_bytes() == file.read_bytes()


def test_a_connection_that_is_cut_now_and_then_is_made_again(
    storage: Storage, network: NetworkProxy, tmp_path: Path
) -> None:
    file = tmp_path / "data.parquet"
    file.write_bytes(os.urandom(100_000))
    uri = f"s3://{BUCKET}/cut"
    storage.put_if_absent(f"s3://{BUCKET}/warm", b"")
    broken = network.counts.connections + 1
    network.cut_open()
    network.set(Fault(cut_request_after_bytes=10_000, only_connections=frozenset({broken})))
    storage.upload(file, uri)
    assert network.counts.cut >= 1
    assert storage.read(uri) == file.read_bytes()
