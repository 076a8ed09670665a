import pytest

from calve.testing.clock import FakeClock
from calve.testing.contracts.store import StoreContract
from calve.testing.memory_store import MemoryStore


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self, clock: FakeClock) -> MemoryStore:
        return MemoryStore(clock)
