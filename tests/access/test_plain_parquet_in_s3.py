"""Plain Parquet in a bucket: the whole life of an export there, over https, keys by a profile."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from calve.app.doctor.examine import examine
from calve.app.partitions import Exported, list_partitions
from calve.app.processes import details
from calve.app.proof import prove
from calve.app.view import detail_json
from calve.model.errors import PermanentError, RefusedError
from calve.model.process import Process
from calve.model.states import ProcessState
from calve.objects.storage import Storage
from support.child_runner import ChildRunner
from support.outage_place import BUCKET
from support.place import Place
from support.s3 import S3Server
from support.tls import Authority, TlsFront

pytestmark = pytest.mark.services

TABLE = (
    "CREATE DATABASE db",
    "CREATE TABLE db.events (id UInt64, month UInt32) ENGINE = MergeTree PARTITION BY month ORDER BY id",
    "SYSTEM STOP MERGES db.events",
    *(
        f"INSERT INTO db.events SELECT number + {first}, {month} FROM numbers(50)"
        for month, first in ((1, 0), (2, 50), (2, 100))
    ),
)


class Bucket:
    """What is in the bucket, seen past Calve's configuration."""

    def __init__(self, s3: S3Server, out: str) -> None:
        self.out = f"s3://{BUCKET}/{out}"
        self._storage = Storage(s3.properties())

    def data(self) -> list[str]:
        return [uri for uri in self._storage.list(self.out) if uri.endswith(".parquet")]

    def every(self) -> list[str]:
        return self._storage.list(f"s3://{BUCKET}")

    def commits(self) -> list[dict[str, Any]]:
        found = self._storage.list(f"{self.out}/_calve/commits")
        return [json.loads(self._storage.read(uri)) for uri in found]

    def spoil(self, uri: str) -> None:
        self._storage.delete([uri])


@pytest.fixture(scope="module")
def place(
    tmp_path_factory: pytest.TempPathFactory, runner: ChildRunner, s3: S3Server, front: TlsFront,
    authority: Authority,
) -> Iterator[Place]:  # fmt: skip
    folder = tmp_path_factory.mktemp("plain")
    (folder / "credentials").write_text(
        f"[work]\naws_access_key_id = {s3.keys.access_key_id}\n"
        f"aws_secret_access_key = {s3.keys.secret_access_key}\n"
    )
    place = Place(folder, runner)
    config = folder / "calve.toml"
    section = f'\n[storage."s3://{BUCKET}"]\nendpoint = "{front.url}"\nprofile = "work"\n'
    config.write_text(f'{config.read_text()}{section}ca_file = "{authority.ca_file}"\n')
    place.execute(*TABLE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "credentials"))
        yield place


@pytest.fixture
def bucket(s3: S3Server, tmp_path: Path) -> Bucket:
    return Bucket(s3, tmp_path.name)


def exported(place: Place, bucket: Bucket, *partitions: str, **asked: Any) -> list[Process]:
    processes = place.export("db.events", *partitions, to=f"{bucket.out}/", **asked)
    assert {process.state for process in processes} <= {ProcessState.COMPLETED}, processes
    return processes


def test_an_export_is_committed_listed_proven_and_not_done_twice(place: Place, bucket: Bucket) -> None:
    first, second = exported(place, bucket)
    commits = {commit["process"]: commit for commit in bucket.commits()}
    assert commits.keys() == {first.id, second.id}
    files = [file for commit in commits.values() for file in commit["files"]]
    assert sorted(file["path"] for file in files) == bucket.data()
    assert all(file["rows"] and file["bytes"] and len(file["sha256"]) == 64 for file in files)
    assert {uri.removeprefix(bucket.out).split("/")[1] for uri in bucket.data()} == {"month=1", "month=2"}
    with place.app() as app:
        assert prove(app, first.id).ok and prove(app, second.id).ok
        shown = detail_json(details(app, [first.id])[0])["files_for_readers"]
        listed = {
            one.partition.id: one.exported for one in list_partitions(app, "db.events", f"{bucket.out}/")
        }
    assert [file["path"] for file in shown] == [file["path"] for file in commits[first.id]["files"]]
    assert listed == {"1": Exported.UNCHANGED, "2": Exported.UNCHANGED}
    assert exported(place, bucket) == []


def test_force_replaces_and_takes_the_old_files_away(place: Place, bucket: Bucket) -> None:
    [first] = exported(place, bucket, "1")
    [second] = exported(place, bucket, "1", force=True)
    assert [(commit["generation"], commit["process"]) for commit in bucket.commits()] == [
        (0, first.id),
        (1, second.id),
    ]
    [file] = bucket.data()
    assert f"calve-{second.id}-" in file


def test_single_parts_are_exported_and_overlap_is_refused(place: Place, bucket: Bucket) -> None:
    [name, _] = [
        row["name"]
        for row in place.select(
            "SELECT name FROM system.parts WHERE table = 'events' AND active AND partition_id = '2' ORDER BY name"
        )
    ]
    [process] = exported(place, bucket, parts=(name,))
    assert process.rows == 50
    with pytest.raises(RefusedError):
        exported(place, bucket, "2")


def test_doctor_writes_to_each_storage_and_tells_what_to_fix(place: Place, bucket: Bucket) -> None:
    before = bucket.every()
    part = f"storage:s3://{BUCKET}"
    with place.app() as app:
        well, rule = [finding for finding in examine(app, spark=False) if finding.part == part]
        assert well.ok and not well.warning and bucket.every() == before
        assert rule.ok and rule.warning and "incomplete multipart uploads" in rule.words
        assert "put-bucket-lifecycle-configuration --endpoint-url https://127.0.0.1" in rule.remedy
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/no/such/file")
        with place.app() as app:
            [ill] = [finding for finding in examine(app, spark=False) if finding.part == part]
    assert not ill.ok
    assert f"[storage.\"s3://{BUCKET}\"]: no AWS profile 'work'" in ill.words
    assert ill.remedy


def test_a_file_that_is_gone_is_found_by_verify(place: Place, bucket: Bucket) -> None:
    [process] = exported(place, bucket, "1")
    [file] = bucket.data()
    bucket.spoil(file)
    with place.app() as app, pytest.raises(PermanentError) as told:
        prove(app, process.id)
    assert told.value.code == "files_missing"
