"""A local folder is object storage: whole objects or none, taken names stay taken."""

import os
import threading
from pathlib import Path

import pytest

from calve.model.errors import NotFoundError, PermanentError, TemporaryError
from calve.objects.local import TEMPORARY_SUFFIX, local_path
from calve.objects.storage import Storage
from support.another_user import another_user


@pytest.fixture
def root(tmp_path: Path) -> str:
    return f"file://{tmp_path}/deep/er"


def test_an_object_is_put_read_sized_listed_and_deleted(root: str) -> None:
    storage = Storage()
    assert storage.put_if_absent(f"{root}/a/one", b"12345")
    assert storage.exists(f"{root}/a/one") and storage.size(f"{root}/a/one") == 5
    assert storage.read(f"{root}/a/one") == b"12345"
    assert storage.list(root) == [f"{root}/a/one"]
    storage.delete([f"{root}/a/one", f"{root}/a/never"])
    assert storage.list(root) == [] and not storage.exists(f"{root}/a/one")


def test_a_taken_name_is_refused_and_unchanged(root: str) -> None:
    storage = Storage()
    assert storage.put_if_absent(f"{root}/x", b"first")
    assert not storage.put_if_absent(f"{root}/x", b"second")
    assert storage.read(f"{root}/x") == b"first"


def test_of_many_racing_puts_exactly_one_wins(root: str) -> None:
    storage, wins = Storage(), []
    barrier = threading.Barrier(8)

    def put(number: int) -> None:
        barrier.wait()
        if storage.put_if_absent(f"{root}/x", str(number).encode()):
            wins.append(number)

    threads = [threading.Thread(target=put, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wins) == 1 and storage.read(f"{root}/x") == str(wins[0]).encode()
    assert os.listdir(local_path(root)) == ["x"]  # noqa: PTH208


def test_an_upload_is_whole_and_one_that_fails_leaves_nothing(root: str, tmp_path: Path) -> None:
    storage = Storage()
    source = tmp_path / "source"
    source.write_bytes(os.urandom(3_000_000))
    storage.upload(source, f"{root}/file")
    assert storage.read(f"{root}/file") == source.read_bytes()
    with pytest.raises(NotFoundError):
        storage.upload(tmp_path / "missing", f"{root}/other")
    assert storage.list(root) == [f"{root}/file"]
    assert not list(tmp_path.rglob(f"*{TEMPORARY_SUFFIX}"))


@pytest.mark.parametrize("name", ["a b", "p=%2F..%2Fx", "é漢🧊", "x?y#z", "month=2024-01"])
def test_L8_uris_are_taken_literally_and_never_decoded(root: str, name: str) -> None:
    storage = Storage()
    assert storage.put_if_absent(f"{root}/{name}/f", b"x")
    assert storage.list(root) == [f"{root}/{name}/f"]
    assert (local_path(root) / name / "f").is_file()


@pytest.mark.parametrize(
    "uri", ["/plain/path", "relative", "file://relative", "file:///a/../b", "ftp://h/x", "s3://"]
)
def test_L8_only_full_uris_are_taken(uri: str) -> None:
    with pytest.raises(PermanentError) as error:
        Storage().read(uri)
    assert error.value.code == "storage_uri" and uri in error.value.message


def test_missing_objects_and_folders(root: str) -> None:
    storage = Storage()
    assert storage.list(f"{root}/nothing") == []
    for call in (storage.read, storage.size):
        with pytest.raises(NotFoundError):
            call(f"{root}/nothing")


def test_a_file_where_a_folder_must_be_is_an_error_that_names_it(root: str) -> None:
    storage = Storage()
    storage.put_if_absent(f"{root}/x", b"")
    with pytest.raises(TemporaryError) as error:
        storage.put_if_absent(f"{root}/x/y", b"")
    assert f"{root}/x/y" in error.value.message


def test_a_folder_without_write_access_is_permanent(root: str) -> None:
    folder = local_path(root)
    folder.mkdir(parents=True)
    folder.chmod(0o500)
    with another_user(), pytest.raises(PermanentError) as error:
        Storage().put_if_absent(f"{root}/x", b"")
    assert error.value.code == "storage_denied"
