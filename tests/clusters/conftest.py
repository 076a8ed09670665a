"""One cluster for all: a master and two workers whose executors share nothing with this program but S3 and HTTP.

They run as another user (where this one is root), in folders of their own, and cannot look into the folders of the test:
not the source's data, the catalog's database nor the configuration.
"""

from collections.abc import Iterator

import pytest
from cluster_place import ClusterPlace, cluster_conf

from calve.spark.runner import SparkRunner
from support.clickhouse_front import NO_USERS, FrontOptions, FrontUser, clickhouse_front
from support.s3 import s3_server
from support.sparks import Sparks
from support.standalone import Standalone

_UUID = {**NO_USERS, "serverUUID()": "toUUID('11111111-2222-3333-4444-777777777777')"}
# A task whose filter says so is slow: it is under way for as long as a test needs it to be.
FRONT = FrontOptions(users={"default": FrontUser()}, stand_ins=_UUID, delays={"slow": 3.0})


@pytest.fixture(scope="session")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with Standalone(tmp_path_factory.mktemp("standalone"), cores=2, workers=2, strangers=True) as cluster:
        yield cluster


@pytest.fixture
def spark(standalone: Standalone, sparks: Sparks) -> SparkRunner:
    """The same for all of these tests, which stand side by side."""
    return sparks.runner(standalone.url, cluster_conf(standalone))


@pytest.fixture
def place(shared: ClusterPlace, spark: SparkRunner) -> ClusterPlace:
    shared.spark = shared.runner = spark
    return shared


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, standalone: Standalone) -> Iterator[ClusterPlace]:
    folder = tmp_path_factory.mktemp("cluster-place")
    with s3_server(tmp_path_factory.mktemp("s3")) as s3, clickhouse_front(folder / "front", FRONT) as front:
        s3.create_bucket("far")
        yield ClusterPlace(folder, front.url, standalone, s3)
