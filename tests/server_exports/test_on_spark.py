"""The same on Spark executors that are processes of their own: nothing lives in the driver's memory (D16)."""

from collections.abc import Callable
from pathlib import Path

import pytest
from killing import export_through_the_death_of_its_server
from served import Served, at_the_source, events, in_the_lake

from calve.model.states import ProcessState
from calve.spark.runner import SparkRunner
from support.sparks import CLUSTER, Sparks

pytestmark = [pytest.mark.services, pytest.mark.spark]


@pytest.fixture
def spark(sparks: Sparks) -> SparkRunner:
    return sparks.runner(CLUSTER)


def test_D16_executors_read_a_server_live(today: Served, tmp_path: Path, spark: SparkRunner) -> None:
    place = today.place(tmp_path, spark)
    table = events(place)
    [process] = place.export(table, "202401")
    assert process.state is ProcessState.COMPLETED, process.error
    assert in_the_lake(place) == at_the_source(place, table)
    assert place.pins == []


def test_a_server_killed_in_mid_read_by_a_cluster_costs_attempts_and_nothing_else(
    own_front: Callable[[], Served], tmp_path: Path, spark: SparkRunner
) -> None:
    export_through_the_death_of_its_server(own_front(), tmp_path, spark)
