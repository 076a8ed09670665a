from collections.abc import Iterator
from pathlib import Path

import pytest
from plain_place import EVENTS, PlainPlace

from support.local_runner import LocalRunner


@pytest.fixture(scope="package")
def runner() -> Iterator[LocalRunner]:
    """One child with one engine for all tests: starting one takes seconds."""
    runner = LocalRunner(slots=1)
    yield runner
    runner.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, runner: LocalRunner) -> PlainPlace:
    """Two partitions of 50 rows. Each test exports to a folder of its own."""
    place = PlainPlace(tmp_path_factory.mktemp("place"), runner)
    place.execute(*EVENTS)
    return place


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"
