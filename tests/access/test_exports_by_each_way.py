"""A whole export to S3 over https, its keys given in each way: executors are handed what was found.

The executors of these tests were started before the environment was changed, as on a cluster.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from calve.model.errors import PermanentError
from calve.model.states import ProcessState
from support.child_runner import ChildRunner
from support.outage_place import BUCKET, OutagePlace, make_table
from support.s3 import S3Server
from support.tls import Authority, TlsFront

pytestmark = pytest.mark.services

ROWS = list(range(10))
AWS = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION"),
    *("AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE"),
    *("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"),
)


class Scene:
    """What differs between the ways."""

    def __init__(self, folder: Path, s3: S3Server, front: TlsFront, authority: Authority) -> None:
        self.folder = folder
        self.ca_file = str(authority.ca_file)
        self.endpoint = front.url
        self.id, self.secret = s3.keys.access_key_id, s3.keys.secret_access_key

    def by_config(self) -> tuple[dict[str, str], dict[str, str]]:
        keys = {"s3.access-key-id": self.id, "s3.secret-access-key": self.secret}
        # A token of the environment belongs to other keys, and must not be sent with these.
        return keys | {"s3.endpoint": self.endpoint, "s3.ca-file": self.ca_file}, {"AWS_SESSION_TOKEN": "x"}

    def by_environment(self) -> tuple[dict[str, str], dict[str, str]]:
        return {}, {
            "AWS_ACCESS_KEY_ID": self.id,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_CA_BUNDLE": self.ca_file,
        }

    def by_profile(self) -> tuple[dict[str, str], dict[str, str]]:
        given = {"s3.profile-name": "work", "s3.endpoint": self.endpoint, "s3.ca-file": self.ca_file}
        wrong = {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "x"}
        return given, self._profiles("work") | wrong

    def by_profile_of_the_environment(self) -> tuple[dict[str, str], dict[str, str]]:
        given = {"s3.endpoint": self.endpoint, "ca_file": self.ca_file}
        return given, self._profiles("work") | {"AWS_PROFILE": "work"}

    def _profiles(self, name: str) -> dict[str, str]:
        file = self.folder / "credentials"
        file.write_text(
            f"[{name}]\naws_access_key_id = {self.id}\naws_secret_access_key = {self.secret}\n"
            "[default]\naws_access_key_id = nobody\naws_secret_access_key = x\n"
        )
        return {"AWS_SHARED_CREDENTIALS_FILE": str(file)}


@pytest.fixture
def scene(
    tmp_path: Path,
    s3: S3Server,
    front: TlsFront,
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
) -> Scene:
    for name in AWS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return Scene(tmp_path, s3, front, authority)


@pytest.fixture
def place(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    scene: Scene,
    runner: ChildRunner,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[OutagePlace]:
    given, environ = getattr(scene, request.param)()
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    place = OutagePlace(tmp_path / "place", runner, given)
    place.place.execute(*make_table("events", rows=10))
    yield place
    place.close()


WAYS = ("by_config", "by_environment", "by_profile", "by_profile_of_the_environment")


@pytest.mark.parametrize("place", WAYS, indirect=True)
def test_an_export_over_https_with_keys_given(place: OutagePlace) -> None:
    table = f"far.{place.place.folder.parent.name}.events"  # the bucket is shared
    with place.worker():
        [process] = place.finish(place.submit("events", table, "0"))
    assert process.state is ProcessState.COMPLETED, place.told(process.id)
    assert place.ids_in(table) == [*ROWS, *range(50, 60)]


@pytest.mark.parametrize("given", ["none", "another"])
def test_an_endpoint_that_nobody_vouches_for_is_refused_at_once(
    given: str, tmp_path: Path, scene: Scene, runner: ChildRunner, stranger: Authority
) -> None:
    properties, _ = scene.by_config()
    del properties["s3.ca-file"]
    if given == "another":
        properties["s3.ca-file"] = str(stranger.ca_file)
    place = OutagePlace(tmp_path / "place", runner, properties)
    try:
        place.place.execute(*make_table("events", rows=10))
        with place.worker():
            [process] = place.finish(place.submit("events", "far.refused.events", "0"))
        assert process.state is ProcessState.FAILED
        assert process.error is not None
        assert (process.error.code, process.plan_attempts) == ("catalog_certificate", 1)
        assert "ca_file under [catalog.far]" in process.error.hint
        assert place.breakers() == []
        with pytest.raises(PermanentError) as told:
            place.app.storage("far").put_if_absent(f"s3://{BUCKET}/x", b"1")
        assert told.value.code == "storage_certificate"
        assert "ca_file" in told.value.hint
    finally:
        place.close()
