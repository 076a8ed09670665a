from collections.abc import Iterator

import pytest

from support.s3 import S3Server, s3_server

BUCKET = "calve-objects"


@pytest.fixture(scope="package")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("seaweed")) as server:
        server.create_bucket(BUCKET)
        yield server
