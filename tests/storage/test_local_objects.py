"""A local folder beyond the contract: what a killed program leaves, and what the file system refuses."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from calve.model.errors import PermanentError, TemporaryError
from calve.objects import local
from calve.objects.local import TEMPORARY_SUFFIX
from calve.objects.storage import Storage
from support.another_user import another_user

KILLED_WHILE_WRITING = """
import os, signal, sys
from pathlib import Path
from calve.objects import local
from calve.objects.storage import Storage
copy = local._copy
def half(source, out):
    copy(source, out)
    out.flush()
    os.kill(os.getpid(), signal.SIGKILL)
local._copy = half
Storage().upload(Path(sys.argv[1]), sys.argv[2])
"""


@pytest.fixture
def root(tmp_path: Path) -> str:
    return f"file://{tmp_path}/deep/er"


def test_a_program_that_is_killed_while_writing_leaves_nothing(root: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(100_000))
    ended = subprocess.run([sys.executable, "-c", KILLED_WHILE_WRITING, source, f"{root}/file"], timeout=60)
    assert ended.returncode == -signal.SIGKILL
    assert list((tmp_path / "deep" / "er").iterdir()) == []


def test_without_nameless_files_it_leaves_one_that_no_listing_shows(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x")
    named = KILLED_WHILE_WRITING.replace("copy = local._copy", "local._NAMELESS = 0; copy = local._copy")
    subprocess.run([sys.executable, "-c", named, source, f"{root}/file"], timeout=60)
    [left] = (tmp_path / "deep" / "er").iterdir()
    assert left.name.startswith(".") and left.name.endswith(TEMPORARY_SUFFIX)
    assert Storage().list(root) == [] and not Storage().exists(f"{root}/file")


@pytest.mark.parametrize("nameless", [True, False])
def test_a_finished_or_refused_write_leaves_no_temporary_file(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nameless: bool
) -> None:
    if not nameless:
        monkeypatch.setattr(local, "_NAMELESS", 0)
    source = tmp_path / "source"
    source.write_bytes(b"x")
    for _ in range(2):
        Storage().upload(source, f"{root}/file")
        Storage().put_if_absent(f"{root}/object", b"x")
    assert sorted(os.listdir(tmp_path / "deep" / "er")) == ["file", "object"]  # noqa: PTH208


@pytest.mark.parametrize(
    "uri", ["/plain/path", "relative", "file://relative", "file:///a/../b", "ftp://h/x", "s3://"]
)
def test_L8_only_full_uris_are_taken(uri: str) -> None:
    with pytest.raises(PermanentError) as error:
        Storage().read(uri)
    assert error.value.code == "storage_uri" and uri in error.value.message


def test_a_file_where_a_folder_must_be_is_an_error_that_names_it(root: str) -> None:
    storage = Storage()
    storage.put_if_absent(f"{root}/x", b"")
    with pytest.raises(TemporaryError) as error:
        storage.put_if_absent(f"{root}/x/y", b"")
    assert f"{root}/x/y" in error.value.message


def test_a_folder_without_write_access_is_permanent(root: str, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "er"
    folder.mkdir(parents=True)
    folder.chmod(0o500)
    with another_user(), pytest.raises(PermanentError) as error:
        Storage().put_if_absent(f"{root}/x", b"")
    assert error.value.code == "storage_denied"
