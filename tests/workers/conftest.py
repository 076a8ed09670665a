from collections.abc import Iterator
from pathlib import Path

import pytest
from gate import Gate
from programs import Folder, served


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    path = tmp_path / "place"
    path.mkdir()
    with served(path) as made:
        yield made


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path / "gate")
    yield gate
    gate.open()
