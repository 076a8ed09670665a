import pytest

from calve.model.limits import Limits
from calve.testing.clock import FakeClock
from calve.testing.memory_store import MemoryStore
from calve.testing.scene import Scene


@pytest.fixture
def scene() -> Scene:
    clock = FakeClock()
    return Scene(store=MemoryStore(clock), clock=clock, limits=Limits(slots=2))
