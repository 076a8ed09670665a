from collections.abc import Iterator
from pathlib import Path

import pytest

from support.child_runner import ChildRunner
from support.network_proxy import NetworkProxy
from support.outage_place import BUCKET, Executors, OutagePlace, behind
from support.s3 import S3Server, s3_server
from support.sparks import CLUSTER, Sparks
from support.watched_runner import WatchedRunner


@pytest.fixture(scope="module")
def runner(request: pytest.FixtureRequest, sparks: Sparks) -> Iterator[Executors]:
    """Children with engines of their own; for tests marked `on_a_cluster_too` also executors that are programs
    on other "machines", so that nothing of what frees the slots, and of what goes on afterwards, lives in the
    driver's memory (D16)."""
    if getattr(request, "param", "") == CLUSTER:
        spark = sparks.runner(CLUSTER)
        spark.warm()
        yield WatchedRunner(spark)
        return
    children = ChildRunner(slots=2)
    yield children
    children.close()


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
def place(tmp_path: Path, runner: Executors, s3: S3Server, network: NetworkProxy) -> Iterator[OutagePlace]:
    place = OutagePlace(tmp_path, runner, behind(s3, network.port))
    yield place
    print(place.everything_told())  # shown where the test failed
    place.close()
