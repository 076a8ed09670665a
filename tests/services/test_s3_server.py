"""The S3 server of the tests does what Calve asks of storage, and dies and returns on demand."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from calve.model.errors import NotFoundError, PermanentError, UnavailableError
from calve.objects.storage import Storage
from support.s3 import Keys, S3Server, s3_server

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as started:
        started.create_bucket("calve-bucket")
        yield started


@pytest.fixture
def storage(server: S3Server) -> Storage:
    return Storage(server.properties(), connect_seconds=2.0, call_seconds=5.0)


def test_a_bucket_is_created_once_or_twice(server: S3Server) -> None:
    server.create_bucket("calve-again")
    server.create_bucket("calve-again")


def test_only_the_first_put_of_a_name_is_taken(storage: Storage) -> None:
    """Receipts and plain Parquet's commits rest on this."""
    uri = "s3://calve-bucket/receipts/1-1.json"
    assert storage.put_if_absent(uri, b"first")
    assert not storage.put_if_absent(uri, b"second")
    assert storage.read(uri) == b"first"


def test_a_large_file_is_uploaded_in_parts_and_read_back(storage: Storage, tmp_path: Path) -> None:
    local = tmp_path / "large"
    local.write_bytes(bytes(range(256)) * 100_000)  # 25.6 MB
    storage.upload(local, "s3://calve-bucket/data/large")
    assert storage.read("s3://calve-bucket/data/large") == local.read_bytes()


def test_P9_wrong_keys_are_refused_at_once(server: S3Server) -> None:
    wrong = {**server.properties(), "s3.secret-access-key": "wrong"}
    with pytest.raises(PermanentError) as refused:
        Storage(wrong, connect_seconds=2.0, call_seconds=5.0).read("s3://calve-bucket/x")
    assert "wrong" not in refused.value.message


def test_killed_and_started_again_it_has_what_it_had(tmp_path: Path) -> None:
    with s3_server(tmp_path, Keys(access_key_id="other", secret_access_key="keys")) as server:
        server.create_bucket("calve-bucket")
        storage = Storage(server.properties(), connect_seconds=1.0, call_seconds=3.0)
        storage.put_if_absent("s3://calve-bucket/kept", b"here")
        port = server.port
        server.kill()
        with pytest.raises(UnavailableError):
            storage.read("s3://calve-bucket/kept")
        server.start()
        assert server.port == port
        assert storage.read("s3://calve-bucket/kept") == b"here"
        with pytest.raises(NotFoundError):
            storage.read("s3://calve-bucket/other")


def test_it_listens_on_the_loopback_alone(server: S3Server) -> None:
    """`/proc/net/tcp` shows 127.0.0.1 as 0100007F; the sockets of the process are found by inode."""
    inodes = set()
    for entry in Path(f"/proc/{server.program.pid}/fd").iterdir():
        try:
            link = entry.readlink().name
        except OSError:
            continue
        if link.startswith("socket:["):
            inodes.add(link[8:-1])
    listening = [
        line.split()[1].split(":")[0]
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
        if line.split()[3] == "0A" and line.split()[9] in inodes
    ]
    assert listening
    assert set(listening) == {"0100007F"}
