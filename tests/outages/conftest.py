from collections.abc import Iterator
from pathlib import Path

import pytest

from calve.testing.child_runner import ChildRunner
from calve.testing.network_proxy import NetworkProxy
from calve.testing.outage_place import BUCKET, OutagePlace, behind
from calve.testing.s3 import S3Server, s3_server


@pytest.fixture(scope="package")
def runner() -> Iterator[ChildRunner]:
    """Children with engines of their own; starting one takes seconds, so they are kept."""
    runner = ChildRunner(slots=2)
    yield runner
    runner.close()


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server. A test that kills it starts it again."""
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        server.create_bucket(BUCKET)
        yield server


@pytest.fixture
def network(s3: S3Server) -> Iterator[NetworkProxy]:
    """What stands between Calve and the S3 server."""
    with NetworkProxy(s3.port) as proxy:
        yield proxy


@pytest.fixture
def place(tmp_path: Path, runner: ChildRunner, s3: S3Server, network: NetworkProxy) -> Iterator[OutagePlace]:
    place = OutagePlace(tmp_path, runner, behind(s3, network.port))
    yield place
    place.close()
