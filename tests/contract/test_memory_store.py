import pytest

from calve.testing.clock import FakeClock
from calve.testing.memory_store import MemoryStore
from calve.testing.store_contract import StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self, clock: FakeClock) -> MemoryStore:
        return MemoryStore(clock)
