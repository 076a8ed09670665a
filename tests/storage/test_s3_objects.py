"""S3 through real sockets: what is put is whole, what is down is known soon, what is wrong at once."""

import os
import pickle
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from obstore.exceptions import GenericError
from s3_server import BUCKET, S3, running

from calve.model.errors import PermanentError, UnavailableError
from calve.objects.errors import translate
from calve.objects.remote import CHUNK_BYTES
from calve.objects.storage import Storage

ROOT = f"s3://{BUCKET}"


@pytest.fixture
def s3() -> Iterator[S3]:
    with running() as server:
        yield server


def test_after_a_lost_answer_the_object_is_there_and_a_second_put_changes_nothing(s3: S3) -> None:
    """Unknown is not failed: the caller compares."""
    storage = Storage(s3.properties)
    s3.lose_answers = 1
    storage.put_if_absent(f"{ROOT}/x", b"ours")
    assert storage.read(f"{ROOT}/x") == b"ours"
    assert not storage.put_if_absent(f"{ROOT}/x", b"theirs") and s3.objects == {"x": b"ours"}


@pytest.mark.parametrize("pace", ["", "1000@test-s3"], ids=["free", "paced"])
def test_large_files_go_up_in_parts_and_small_ones_at_once(s3: S3, tmp_path: Path, pace: str) -> None:
    storage = Storage(s3.properties, pace=pace)
    large, small = tmp_path / "large", tmp_path / "small"
    large.write_bytes(os.urandom(2 * CHUNK_BYTES + 1234))
    small.write_bytes(b"tiny")
    storage.upload(large, f"{ROOT}/large")
    storage.upload(small, f"{ROOT}/small")
    assert s3.objects == {"large": large.read_bytes(), "small": b"tiny"}
    assert sum("partNumber" in request for request in s3.requests) == 3


@pytest.mark.parametrize("pace", ["", "1000@test-s3"], ids=["free", "paced"])
def test_an_upload_that_fails_is_aborted_at_once(s3: S3, tmp_path: Path, pace: str) -> None:
    large = tmp_path / "large"
    large.write_bytes(os.urandom(3 * CHUNK_BYTES))
    s3.fail_parts_after = 1
    with pytest.raises(PermanentError):
        Storage(s3.properties, pace=pace).upload(large, f"{ROOT}/large")
    assert s3.objects == {} and s3.uploads == {}, "no object, and none of its parts"


@pytest.mark.parametrize(
    ("status", "code"), [(403, "AccessDenied"), (403, "InvalidAccessKeyId"), (401, "Unauthorized")]
)
def test_P9_wrong_credentials_are_permanent_and_not_tried_again(s3: S3, status: int, code: str) -> None:
    s3.fail_with = (status, code)
    with pytest.raises(PermanentError) as error:
        Storage(s3.properties).put_if_absent(f"{ROOT}/x", b"x")
    assert error.value.code == "storage_denied" and len(s3.requests) == 1
    assert "hush-secret" not in str(error.value) + error.value.hint
    assert pickle.loads(pickle.dumps(error.value)).info == error.value.info


def test_a_bucket_without_keys_is_told_so_and_not_to_check_its_endpoint() -> None:
    """Said as the client says it where the machine has no role to give."""
    met = GenericError("Error performing PUT http://169.254.169.254/latest/api/token in 5s: timed out")
    error = translate(met, "s3://bucket/x", "s3://bucket")
    assert "no keys are configured" in error.hint and '[storage."s3://bucket"]' in error.hint
    met = GenericError("Error performing GET https://s3.example.org/bucket/x in 5s: timed out")
    assert "check the endpoint" in translate(met, "s3://bucket/x", "s3://bucket").hint


def test_a_bucket_that_is_not_there_is_permanent(s3: S3) -> None:
    storage = Storage(s3.properties)
    for call in (storage.read, storage.list):
        with pytest.raises(PermanentError) as error:
            call("s3://nowhere/x")
        assert error.value.code == "bucket_missing" and "s3://nowhere" in error.value.message
    with pytest.raises(PermanentError):
        storage.put_if_absent("s3://nowhere/x", b"x")


@pytest.mark.parametrize("status", [500, 503])
def test_a_server_that_fails_is_unavailable_within_its_seconds(s3: S3, status: int) -> None:
    s3.fail_with = (status, "SlowDown")
    with pytest.raises(UnavailableError) as error:
        Storage(s3.properties, call_seconds=2.0).put_if_absent(f"{ROOT}/x", b"x")
    assert error.value.service == f"storage:{ROOT}" and error.value.retryable
    assert len(s3.requests) > 1


@pytest.mark.timeout(60)
def test_L2_a_dead_endpoint_is_known_within_its_seconds() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        properties = {
            "s3.endpoint": f"http://127.0.0.1:{unused.getsockname()[1]}",
            "s3.access-key-id": "k",
            "s3.secret-access-key": "s",
        }
        with pytest.raises(UnavailableError) as error:
            Storage(properties).read(f"{ROOT}/x")
        assert error.value.service == f"storage:{ROOT}"


@pytest.mark.timeout(60)
def test_L2_an_endpoint_that_never_answers_is_known_within_its_seconds(s3: S3) -> None:
    s3.fail_with = (0, "silence")
    with pytest.raises(UnavailableError):
        Storage(s3.properties, call_seconds=1.5).read(f"{ROOT}/x")


def test_a_storage_is_built_without_meeting_anybody() -> None:
    Storage({"s3.endpoint": "http://127.0.0.1:1", "s3.access-key-id": "k", "s3.secret-access-key": "s"})


def test_deleting_reaches_every_place(s3: S3, tmp_path: Path) -> None:
    storage = Storage(s3.properties)
    uris = [f"{ROOT}/x", f"file://{tmp_path}/y", f"{ROOT}/z"]
    for uri in uris:
        storage.put_if_absent(uri, b"x")
    storage.delete(uris)
    assert s3.objects == {} and not (tmp_path / "y").exists()
