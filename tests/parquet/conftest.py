from collections.abc import Iterator
from pathlib import Path

import pytest
from plain_place import EVENTS, PlainPlace

from support.kept_source import KeptSource
from support.local_runner import LocalRunner


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, runner: LocalRunner) -> Iterator[PlainPlace]:
    """Two partitions of 50 rows. Each test exports to a folder of its own."""
    folder = tmp_path_factory.mktemp("place")
    with KeptSource(folder / "clickhouse") as source:
        place = PlainPlace(folder, runner, source)
        place.execute(*EVENTS)
        yield place


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"
