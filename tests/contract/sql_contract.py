"""The contract of a store over SQL: inherit it and give `url`."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

from calve.store import SqlStore, open_store
from calve.testing.clock import FakeClock
from calve.testing.contracts.races import RACERS
from calve.testing.contracts.store import StoreContract


class SqlStoreContract(StoreContract):
    @pytest.fixture
    def store(self, url: str, clock: FakeClock) -> Iterator[SqlStore]:
        with open_store(url, clock_offset_seconds=clock.offset_seconds) as store:
            yield store

    @pytest.fixture
    def rivals(self, store: SqlStore, url: str, clock: FakeClock) -> Iterator[Sequence[SqlStore]]:
        """Each with connections and locks of its own, as other programs have."""
        with ExitStack() as stack:
            yield [
                stack.enter_context(open_store(url, clock_offset_seconds=clock.offset_seconds))
                for _ in range(RACERS)
            ]
