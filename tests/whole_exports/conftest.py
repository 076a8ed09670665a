from collections.abc import Iterator
from pathlib import Path

import pytest
from whole_life import EVENTS, Life

from support.kept_source import KeptSource
from support.local_runner import LocalRunner


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptSource]:
    """150 rows in two partitions. Tests that change the source take `own_source`."""
    with KeptSource(tmp_path_factory.mktemp("source") / "clickhouse") as kept:
        kept.execute(*EVENTS)
        yield kept


@pytest.fixture
def own_source(tmp_path: Path) -> Iterator[KeptSource]:
    with KeptSource(tmp_path / "clickhouse") as kept:
        kept.execute(*EVENTS)
        yield kept


@pytest.fixture
def life(tmp_path: Path, source: KeptSource, runner: LocalRunner) -> Iterator[Life]:
    life = Life(tmp_path / "life", source, runner)
    yield life
    life.close()


@pytest.fixture
def own_life(tmp_path: Path, own_source: KeptSource, runner: LocalRunner) -> Iterator[Life]:
    life = Life(tmp_path / "life", own_source, runner)
    yield life
    life.close()
