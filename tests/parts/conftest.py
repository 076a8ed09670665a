from collections.abc import Iterator
from pathlib import Path

import pytest
from executor import Executor

from calve.clickhouse.embedded.source import EmbeddedSession, EmbeddedSource


@pytest.fixture(scope="session")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    """One engine for all tests: the worker's session is opened once."""
    running = Executor.start(TMPDIR=str(tmp_path_factory.mktemp("executor")))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedSession]:
    """One long visit for all tests of a file."""
    folder = tmp_path_factory.mktemp("shared") / "clickhouse"
    with EmbeddedSource("main", folder, create=True).visit() as visit:
        yield visit


@pytest.fixture
def source(tmp_path: Path) -> EmbeddedSource:
    """A source of the test's own."""
    return EmbeddedSource("main", tmp_path / "clickhouse", create=True)
