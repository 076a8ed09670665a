"""A REST catalog that lends the keys of its tables' files: used, renewed, and kept nowhere.

The catalog is Apache's, its warehouse is in SeaweedFS, the accounts are SeaweedFS's own, and a key that
is revoked there is refused there. The configuration holds the catalog's address and nothing else.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from calve.export.kind import ExportKind
from calve.iceberg.catalogs.lent_keys import Lender
from calve.model.process import Process, ProcessId
from calve.model.states import ProcessState
from support.child_runner import ChildRunner
from support.iceberg_rest import IcebergRest, apache_rest
from support.outage_place import BUCKET, OutagePlace, make_table, until
from support.s3 import Keys, S3Server
from support.vending_proxy import VendingProxy

ROWS = [*range(10), *range(50, 60)]  # of partition 0
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def rest(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergRest]:
    folder = tmp_path_factory.mktemp("rest")
    with apache_rest(folder, f"s3://{BUCKET}/rest", s3.properties()) as server:
        yield server


@pytest.fixture
def catalog(rest: IcebergRest) -> Iterator[VendingProxy]:
    with VendingProxy(rest.uri) as proxy:
        yield proxy


class Scene:
    """An export into a catalog that lends keys, and the accounts behind them."""

    def __init__(self, place: OutagePlace, s3: S3Server, catalog: VendingProxy) -> None:
        self.place = place
        self.catalog = catalog
        self._s3 = s3
        self.table = f"lent.ns{next(_numbers)}.events"

    def lend(self) -> Keys:
        """A new account, whose keys are lent from now on."""
        name = f"lent-{next(_numbers)}"
        keys = Keys(access_key_id=name, secret_access_key=f"{name}-canary")
        self._s3.allow(keys, BUCKET)
        self.catalog.lend(
            {
                "s3.endpoint": self._s3.endpoint,
                "s3.access-key-id": keys.access_key_id,
                "s3.secret-access-key": keys.secret_access_key,
                "client.region": "us-east-1",
                "s3.path-style-access": "true",
            }
        )
        return keys

    def revoke(self, keys: Keys) -> None:
        self._s3.revoke(keys)

    def submit(self) -> list[ProcessId]:
        return self.place.submit("events", self.table, "0")

    def finish(self, ids: list[ProcessId]) -> Process:
        [process] = self.place.finish(ids)
        return process

    def told(self, process: Process) -> str:
        return self.place.told(process.id)


@pytest.fixture
def scene(
    tmp_path: Path,
    runner: ChildRunner,
    s3: S3Server,
    catalog: VendingProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Scene]:
    monkeypatch.setenv("HOME", str(tmp_path))  # no profile helps out
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    place = OutagePlace(tmp_path / "place", runner, {})
    config = place.place.folder / "calve.toml"
    config.write_text(f'{config.read_text()}\n[catalog.lent]\ntype = "rest"\nuri = "{catalog.uri}"\n')
    place.reopen()
    place.place.execute(*make_table("events", rows=10))
    yield Scene(place, s3, catalog)
    place.close()


@pytest.mark.services
@pytest.mark.parametrize("where", ["config", "storage-credentials"])
def test_lent_keys_are_used_by_driver_and_executors_and_stored_nowhere(scene: Scene, where: str) -> None:
    scene.catalog.as_storage_credentials = where == "storage-credentials"
    keys = scene.lend()
    with scene.place.worker():
        process = scene.finish(scene.submit())
    assert process.state is ProcessState.COMPLETED, scene.told(process)
    assert scene.place.ids_in(scene.table) == ROWS
    folder = scene.place.place.folder
    left = [file for file in folder.rglob("*") if file.is_file()]
    assert len(left) > 3
    assert [file for file in left if keys.secret_access_key.encode() in file.read_bytes()] == []


@pytest.mark.services
def test_executors_ask_for_new_keys_when_theirs_are_revoked(scene: Scene, runner: ChildRunner) -> None:
    first = scene.lend()
    with scene.place.worker():
        with runner.holding():
            ids = scene.submit()
            until(lambda: bool(runner.groups), "the orders, with the first keys in them")
            scene.lend()
            scene.revoke(first)
        process = scene.finish(ids)
    assert process.state is ProcessState.COMPLETED, scene.told(process)
    assert scene.place.ids_in(scene.table) == ROWS
    assert [task.attempt for task in scene.place.app.store.tasks(process.id)] == [1]


@pytest.mark.services
def test_a_publish_whose_keys_are_revoked_in_its_midst_is_done_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = scene.lend()
    revoked: list[Keys] = []

    def revoke(_number: int) -> None:
        """The first look at the table of the publish: its keys are good for nothing."""
        if not revoked:
            revoked.append(held)
            scene.lend()
            scene.revoke(held)

    publish = ExportKind.publish

    def publishing(*args: object) -> object:
        scene.catalog.after_answer = revoke
        return publish(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(ExportKind, "publish", publishing)
    with scene.place.worker():
        process = scene.finish(scene.submit())
    assert process.state is ProcessState.COMPLETED, scene.told(process)
    assert revoked
    assert process.publish_attempts == 2
    assert scene.place.ids_in(scene.table) == ROWS
    assert len(scene.place.place.table(scene.table).metadata.snapshots) == 1


@pytest.mark.services
def test_P9_keys_that_are_refused_and_not_replaced_end_the_export_at_once(
    scene: Scene, runner: ChildRunner
) -> None:
    keys = scene.lend()
    with scene.place.worker():
        with runner.holding():
            ids = scene.submit()
            until(lambda: bool(runner.groups), "the orders, with the keys in them")
            scene.revoke(keys)
        process = scene.finish(ids)
    assert process.state is ProcessState.FAILED
    assert process.error is not None
    assert process.error.code == "storage_denied"
    assert [task.attempt for task in scene.place.app.store.tasks(process.id)] == [1]


class Clock:
    def __init__(self) -> None:
        self.seconds = 1_000_000.0

    def __call__(self) -> float:
        return self.seconds


def lending(clock: Clock, lifetime_seconds: float | None) -> tuple[Lender, list[int]]:
    asked: list[int] = []

    def ask() -> dict[str, str]:
        asked.append(1)
        keys = {"s3.access-key-id": f"key-{len(asked)}"}
        if lifetime_seconds is not None:
            keys["s3.session-token-expires-at-ms"] = str(int((clock.seconds + lifetime_seconds) * 1000))
        return keys

    return Lender(ask, now=clock), asked


@pytest.mark.parametrize(("lifetime", "good_for"), [(3600.0, 3300.0), (900.0, 600.0), (60.0, 30.0)])
def test_keys_are_asked_for_once_and_again_before_they_end(lifetime: float, good_for: float) -> None:
    clock = Clock()
    lender, asked = lending(clock, lifetime)
    assert asked == []
    first = lender.properties()
    clock.seconds += good_for - 1
    assert lender.properties() == first and len(asked) == 1
    clock.seconds += 2
    assert lender.properties() != first and len(asked) == 2


def test_keys_whose_end_nobody_told_are_kept_until_they_are_refused() -> None:
    clock = Clock()
    lender, asked = lending(clock, None)
    first = lender.properties()
    clock.seconds += 1_000_000
    assert lender.properties() == first
    assert lender.renewed(first) and len(asked) == 2
    assert lender.renewed(first) and len(asked) == 2  # another that was refused with the same keys


def test_keys_that_come_again_are_no_new_keys() -> None:
    lender = Lender(lambda: {"s3.access-key-id": "same"})
    assert not lender.renewed(lender.properties())
