from collections.abc import Iterator
from pathlib import Path

import pytest

from calve.clickhouse.embedded.source import EmbeddedSession, EmbeddedSource


@pytest.fixture
def source(tmp_path: Path) -> EmbeddedSource:
    return EmbeddedSource("main", tmp_path / "clickhouse", create=True)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedSession]:
    """One long visit for all tests of a file."""
    folder = tmp_path_factory.mktemp("shared") / "clickhouse"
    with EmbeddedSource("main", folder, create=True).visit() as visit:
        visit.execute("CREATE DATABASE db")
        yield visit
