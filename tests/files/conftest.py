from collections.abc import Iterator

import pytest
from exporting import Child


@pytest.fixture(scope="session")
def child() -> Iterator[Child]:
    child = Child()
    yield child
    child.close()
