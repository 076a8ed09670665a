"""Workers that look at one schedule at the same moment begin its occurrence once, whatever the store."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from calve.app.backups import schedules
from calve.app.wiring import App
from calve.model.states import ProcessState
from calve.policy.schedule import Schedule, TimeOfDay
from calve.store import open_store
from calve.testing.clock import FakeClock
from calve.testing.contracts.contract import claim_one, move, new
from calve.testing.contracts.races import RACERS, race, winners
from calve.testing.memory_store import MemoryStore

NOW = datetime(2026, 11, 19, 12, tzinfo=UTC)
SCHEDULE = Schedule(
    name="nightly", source="main", tables=("db.*",), every=timedelta(days=1), clock=TimeOfDay.parse("02:00")
)


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.services)])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sequence[Any]]:
    """One for each worker, over the same rows."""
    if request.param == "memory":
        yield [MemoryStore(FakeClock())] * RACERS
        return
    url = f"sqlite:///{tmp_path / 'calve.db'}"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_server").new_database()
    with ExitStack() as stack:
        yield [stack.enter_context(open_store(url)) for _ in range(RACERS)]


def test_one_of_them_begins_it(stores: Sequence[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calve.app.backups.requests.scheduled", lambda *_: new(kind="backup"))
    config = SimpleNamespace(backup_url="file:///backups")
    apps = [cast(App, SimpleNamespace(store=store, config=config)) for store in stores]
    for day in range(3):
        now = NOW + timedelta(days=day)
        outcomes = race([partial(schedules.start, app, SCHEDULE, NOW, now) for app in apps])
        assert len(winners(outcomes)) == RACERS  # the others are not in error
        begun = [process for one in winners(outcomes) for process in one]
        assert len(begun) == (1 if day else 0)  # the first occurrence is older than the schedule
        for process in begun:
            move(stores[0], claim_one(stores[0], process.id), ProcessState.CANCELLED)
