"""P22: canary secrets are planted wherever a secret can be given; nothing that a run leaves has them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from calve.model.states import ProcessState
from calve.testing.child_runner import ChildRunner
from calve.testing.outage_place import BUCKET, OutagePlace, make_table, until
from calve.testing.s3 import Keys, S3Server, s3_server

pytestmark = pytest.mark.services

S3_SECRET = "canary-of-the-storage-5f1d"
SOURCE_SECRET = "canary-of-the-source-8c2e"
CATALOG_SECRET = "canary-of-the-catalog-0b7a"
WRONG_SECRET = "canary-that-is-refused-44d9"
CANARIES = (S3_SECRET, SOURCE_SECRET, CATALOG_SECRET, WRONG_SECRET)
_OURS = frozenset({"calve.toml"})  # where they were planted


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("guarded"), Keys(secret_access_key=S3_SECRET)) as server:
        server.create_bucket(BUCKET)
        yield server


@pytest.fixture
def place(tmp_path: Path, runner: ChildRunner, guarded: S3Server) -> Iterator[OutagePlace]:
    place = OutagePlace(
        tmp_path / "place",
        runner,
        guarded.properties() | {"token": CATALOG_SECRET},
        CALVE_SOURCE__MAIN__PASSWORD=SOURCE_SECRET,
    )
    file = place.place.folder / "calve.toml"
    file.write_text(
        file.read_text()
        + f'\n[storage."s3://{BUCKET}"]\nendpoint = "{guarded.endpoint}"\naccess_key_id = "calve-test"\n'
        f'secret_access_key = "{S3_SECRET}"\n'
        f'\n[catalog.wrong]\ntype = "sql"\nuri = "sqlite:///lake/wrong.db"\nwarehouse = "s3://{BUCKET}/wrong"\n'
        f'"s3.endpoint" = "{guarded.endpoint}"\n"s3.access-key-id" = "calve-test"\n"s3.region" = "us-east-1"\n'
        f'"s3.secret-access-key" = "{WRONG_SECRET}"\n'
    )
    place.reopen()
    yield place
    place.close()


def test_P22_nothing_that_a_run_leaves_holds_a_secret(
    place: OutagePlace, runner: ChildRunner, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="calve")
    place.place.execute(*make_table("events", rows=100))
    seen: list[str] = []
    with place.worker():
        done = place.submit("events", "far.ns.events", "0")
        done += place.submit("events", f"s3://{BUCKET}/plain/", "1")
        refused = place.submit("events", "wrong.ns.events", "2")
        until(lambda: runner.busy > 0 or place.ended(done), "a task to run")
        seen += _command_lines()
        assert [process.state for process in place.finish(done)] == [ProcessState.COMPLETED] * 2
        [failed] = place.finish(refused)
    # P9: refused at once, not tried for an hour.
    assert failed.state is ProcessState.FAILED
    assert failed.error is not None and not failed.error.retryable
    seen += [record.getMessage() for record in caplog.records]
    seen += [_calve(place, "config", "--json"), _calve(place, "ps", "--all", "--json")]
    for one in (*done, *refused):
        seen += [_calve(place, command, one, *tail) for command, *tail in _QUESTIONS]
    for canary in CANARIES:
        assert not [text[:200] for text in seen if canary in text]
        assert not [file for file in _left_in(place.place.folder) if canary.encode() in file.read_bytes()]
        storage = place.app.storage("far")
        objects = storage.list(f"s3://{BUCKET}/")
        assert len(objects) > 5
        assert not [uri for uri in objects if canary.encode() in storage.read(uri)]


_QUESTIONS = (("show", "--json"), ("show",), ("events",), ("why",))


def _calve(place: OutagePlace, *arguments: str) -> str:
    """Both what it says and what it answers."""
    done = subprocess.run(
        [sys.executable, "-m", "calve.cli", *arguments],
        cwd=place.place.folder,
        env=os.environ | {"CALVE_SOURCE__MAIN__PASSWORD": SOURCE_SECRET},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout
    return done.stdout + done.stderr


def _command_lines() -> list[str]:
    """Of every program of this machine: everybody may read them."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(file.read_bytes().decode(errors="replace"))
        except OSError:
            continue  # it ended meanwhile
    assert any("python" in line for line in found)
    return found


def _left_in(folder: Path) -> list[Path]:
    files = [file for file in folder.rglob("*") if file.is_file() and file.name not in _OURS]
    assert any(file.name == "calve.db" for file in files)
    return files
