from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from support.served import Served

pytestmark = [pytest.mark.programs]


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all tests of a program that only ask."""
    yield from _served(tmp_path_factory)


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One that is left in whatever state: halted, say, and without tokens."""
    yield from _served(tmp_path_factory)


def _served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    made = Served(folder, settings=SETTINGS.format(folder=folder))
    yield made
    made.close()


@pytest.fixture
def admin(served: Served) -> Iterator[httpx.Client]:
    with served.client() as client:
        yield client


@pytest.fixture
def reader(served: Served) -> Iterator[httpx.Client]:
    with served.client("") as client:
        yield client


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


SETTINGS = """
[source.main]
url = "chdb://{folder}/clickhouse"
[catalog.lake]
type = "sql"
uri = "sqlite:///{folder}/catalog.db"
warehouse = "file://{folder}/warehouse"
[limits]
requests_per_second = 2000
wrong_tokens_per_minute = 100000
client_seconds = 5
"""
