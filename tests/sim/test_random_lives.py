"""Random lives over the store in memory and over SQL: each process ends, once, and nothing is left."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from calve.control.registry import ServedStore
from calve.store import open_store
from calve.testing.clock import FakeClock
from calve.testing.memory_store import MemoryStore
from calve.testing.simulation import Simulation

COMMON: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "print_blob": True,
}


class InMemory(Simulation):
    def make_store(self, clock: FakeClock) -> ServedStore:
        return MemoryStore(clock)


def test_random_lives_over_the_store_in_memory() -> None:
    run_state_machine_as_test(InMemory, settings=settings(max_examples=120, stateful_step_count=40, **COMMON))


def test_random_lives_over_sqlite(tmp_path: Path) -> None:
    class OverSqlite(Simulation):
        def make_store(self, clock: FakeClock) -> ServedStore:
            folder = tempfile.mkdtemp(dir=tmp_path)
            return open_store(f"sqlite:///{folder}/s.db", clock_offset_seconds=clock.offset_seconds)

    run_state_machine_as_test(
        OverSqlite, settings=settings(max_examples=15, stateful_step_count=25, **COMMON)
    )


@pytest.mark.services
def test_random_lives_over_postgresql(postgres_url: str) -> None:
    """One database for all lives: each finds what those before it left, which must not matter."""

    class OverPostgres(Simulation):
        def make_store(self, clock: FakeClock) -> ServedStore:
            return open_store(postgres_url, clock_offset_seconds=clock.offset_seconds)

    run_state_machine_as_test(
        OverPostgres, settings=settings(max_examples=8, stateful_step_count=20, **COMMON)
    )
