from collections.abc import Iterator

import pytest

from support.azurite import Azurite, azurite
from support.fake_gcs import FakeGcs, fake_gcs
from support.s3 import S3Server, s3_server

BUCKET = "calve-objects"


@pytest.fixture(scope="package")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("seaweed")) as server:
        server.create_bucket(BUCKET)
        yield server


@pytest.fixture(scope="package")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    with azurite(tmp_path_factory.mktemp("azurite")) as server:
        server.create_container(BUCKET)
        yield server


@pytest.fixture(scope="package")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeGcs]:
    with fake_gcs(tmp_path_factory.mktemp("google")) as server:
        server.create_bucket(BUCKET)
        yield server
