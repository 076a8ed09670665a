"""Temporary keys, with their session token, against a server that gives them out and asks for the token.

The executors were started before the environment was changed, as on a cluster.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from calve.model.errors import PermanentError
from calve.model.states import ProcessState
from calve.objects.storage import Storage
from support.child_runner import ChildRunner
from support.outage_place import BUCKET, OutagePlace, make_table
from support.s3 import Keys, S3Server, s3_server

pytestmark = pytest.mark.services

Way = Callable[[Keys, Path], tuple[dict[str, str], dict[str, str]]]  # properties and environment
EXPECTED = [*range(10), *range(50, 60)]


@pytest.fixture(scope="module")
def lender(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3"), has_roles=True) as server:
        server.create_bucket(BUCKET)
        yield server


@pytest.fixture(scope="module")
def keys(lender: S3Server) -> Keys:
    keys = lender.assume_role()
    assert keys.session_token and keys.access_key_id != lender.keys.access_key_id
    return keys


def by_config(keys: Keys, folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    return {
        "s3.access-key-id": keys.access_key_id,
        "s3.secret-access-key": keys.secret_access_key,
        "s3.session-token": keys.session_token,
    }, {}


def by_environment(keys: Keys, folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    return {}, {
        "AWS_ACCESS_KEY_ID": keys.access_key_id,
        "AWS_SECRET_ACCESS_KEY": keys.secret_access_key,
        "AWS_SESSION_TOKEN": keys.session_token,
    }


def by_profile(keys: Keys, folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    file = folder / "credentials"
    file.write_text(
        f"[default]\naws_access_key_id = {keys.access_key_id}\n"
        f"aws_secret_access_key = {keys.secret_access_key}\naws_session_token = {keys.session_token}\n"
    )
    return {}, {"AWS_SHARED_CREDENTIALS_FILE": str(file)}


WAYS = [
    pytest.param(by_config, "far.{}.events", id="config"),
    pytest.param(by_config, f"s3://{BUCKET}/{{}}/events/", id="config-parquet"),
    pytest.param(by_environment, "far.{}.events", id="environment"),
    pytest.param(by_profile, "far.{}.events", id="profile"),
]


@pytest.mark.parametrize(("way", "to"), WAYS)
def test_an_export_with_temporary_keys(
    way: Way, to: str, lender: S3Server, keys: Keys, runner: ChildRunner, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    given, environ = way(keys, tmp_path)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    place = OutagePlace(
        tmp_path / "place", runner, given | {"s3.endpoint": lender.endpoint, "s3.region": lender.region}
    )
    try:
        place.place.execute(*make_table("events", rows=10))
        to = to.format(tmp_path.name)
        with place.worker():
            [process] = place.finish(place.submit("events", to, "0"))
        assert process.state is ProcessState.COMPLETED, place.told(process.id)
        assert place.ids_in(to) == EXPECTED
        found = place.app.storage(to if "/" in to else "far")
        rules = found.upload_cleanup(f"s3://{BUCKET}")
        assert rules.automatic is False, "this request is signed with the token too"
        assert (
            keys.session_token not in f"{process}{place.app.store.plan(process.id)}{place.told(process.id)}"
        )
    finally:
        place.close()


@pytest.mark.parametrize("token", ["", "of-somebody-else"], ids=["missing", "wrong"])
def test_P9_a_missing_or_wrong_token_is_refused_at_once(token: str, lender: S3Server, keys: Keys) -> None:
    given, _ = by_config(keys, Path())
    storage = Storage(lender.properties() | given | {"s3.session-token": token})
    with pytest.raises(PermanentError) as refused:
        storage.list(f"s3://{BUCKET}/x")
    assert refused.value.code == "storage_denied"
    assert "403" in storage.upload_cleanup(f"s3://{BUCKET}/x").words
