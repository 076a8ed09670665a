"""The storage dies under executors that are programs of their own, on other "machines": nothing of what frees the
slots, and of what goes on afterwards, lives in the driver's memory (D16)."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from storage_scene import ten_parts_go_through_the_death_of_their_storage

from calve.runner.spark import SparkRunner
from calve.testing.network_proxy import NetworkProxy
from calve.testing.outage_place import OutagePlace, behind
from calve.testing.s3 import S3Server
from calve.testing.watched_runner import WatchedRunner

pytestmark = [pytest.mark.services, pytest.mark.spark]


@pytest.fixture(scope="module")
def cluster() -> Iterator[WatchedRunner]:
    runner = SparkRunner(master="local-cluster[2,1,1024]", conf={})
    runner.warm()
    yield WatchedRunner(runner)
    runner.close()


@pytest.fixture
def place(
    tmp_path: Path, cluster: WatchedRunner, s3: S3Server, network: NetworkProxy
) -> Iterator[OutagePlace]:
    place = OutagePlace(tmp_path, cluster, behind(s3, network.port))
    yield place
    place.close()


def test_L1_to_L6_ten_parts_on_a_cluster_go_through_the_death_of_their_storage_exactly_once(
    place: OutagePlace, s3: S3Server, network: NetworkProxy, cluster: WatchedRunner
) -> None:
    try:
        ten_parts_go_through_the_death_of_their_storage(place, s3, network, cluster)
    finally:
        if not s3.program.running:
            s3.start()
