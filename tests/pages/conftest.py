"""An installation with an empty store."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from page_scene import made

from calve.app.calve import Calve
from calve.store import SqlStore


@pytest.fixture
def calve(tmp_path: Path) -> Iterator[Calve]:
    with made(tmp_path) as opened:
        yield opened


@pytest.fixture
def store(calve: Calve) -> SqlStore:
    found = calve.registry
    assert isinstance(found, SqlStore)
    return found
