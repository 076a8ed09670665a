from collections.abc import Iterator

import pytest

from support.local_runner import LocalRunner
from support.place import Place


@pytest.fixture(scope="package")
def runner() -> Iterator[LocalRunner]:
    runner = LocalRunner(slots=1)
    yield runner
    runner.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, runner: LocalRunner) -> Place:
    """One source for all tests of a file: each has tables of its own."""
    place = Place(tmp_path_factory.mktemp("engines"), runner)
    place.execute("CREATE DATABASE db")
    return place
