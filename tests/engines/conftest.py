from collections.abc import Iterator

import pytest

from support.local_runner import LocalRunner
from support.place import Place, kept_place


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, runner: LocalRunner) -> Iterator[Place]:
    """One source for all tests of a file: each has tables of its own."""
    with kept_place(tmp_path_factory.mktemp("engines"), runner) as place:
        place.execute("CREATE DATABASE db")
        yield place
