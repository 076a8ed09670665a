"""P9: wrong credentials fail at once, wherever they are wrong; they are no outage."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from calve.model.errors import PermanentError
from calve.model.states import ProcessState
from support.outage_place import BUCKET, Executors, OutagePlace, make_table
from support.s3 import S3Server
from support.sparks import on_a_cluster_too

pytestmark = pytest.mark.services

WRONG = {"secret": {"s3.secret-access-key": "wrong"}, "key id": {"s3.access-key-id": "nobody"}}


@pytest.fixture(params=WRONG)
def place(
    request: pytest.FixtureRequest, tmp_path: Path, runner: Executors, s3: S3Server
) -> Iterator[OutagePlace]:
    place = OutagePlace(tmp_path, runner, s3.properties() | WRONG[request.param])
    place.place.execute(*make_table("events", rows=10))
    yield place
    place.close()


@on_a_cluster_too
def test_P9_a_catalog_s_wrong_keys_end_the_export_at_its_first_try(place: OutagePlace) -> None:
    with place.worker():
        [process] = place.finish(place.submit("events", "far.ns.events", "0"))
    assert process.state is ProcessState.FAILED
    assert process.plan_attempts == 1
    assert process.error is not None
    assert process.error.code == "catalog_credentials"
    assert place.breakers() == []


def test_P9_storage_with_wrong_keys_is_refused_and_not_unavailable(place: OutagePlace) -> None:
    with pytest.raises(PermanentError) as told:
        place.app.storage("far").put_if_absent(f"s3://{BUCKET}/x", b"1")
    assert told.value.code == "storage_denied"
    assert not told.value.service
