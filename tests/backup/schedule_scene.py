"""A place with a schedule, and a clock that a test moves."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from backup_place import BackupPlace

from calve.app.backups import schedules
from calve.app.wiring import App
from calve.model.process import Process
from calve.policy.schedule import Schedule

RULES = {"at": "02:00 Europe/Berlin", "jitter": "0m", "tables": "db.*"}


class MovedStore:
    """The store at another time."""

    def __init__(self, store: Any, at: str) -> None:
        self.store = store
        self.move(at)

    def move(self, at: str) -> None:
        self.at = datetime.fromisoformat(at).replace(tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


@contextmanager
def scheduled(place: BackupPlace, at: str, **rules: str) -> Iterator[tuple[App, Schedule, MovedStore]]:
    given = {
        f"CALVE_BACKUP__SCHEDULE__NIGHTLY__{key.upper()}": value for key, value in (RULES | rules).items()
    }
    before, place.settings = place.settings, place.settings | given
    try:
        with place.app() as app:
            clock = app.__dict__["store"] = MovedStore(app.store, at)
            yield app, app.config.schedule("nightly"), clock
    finally:
        place.settings = before


def look(place: BackupPlace, app: App, schedule: Schedule) -> list[Process]:
    """One look of a worker, and the work that it begins."""
    begun = schedules.tick(app, schedule)
    return finish(place, begun)


def finish(place: BackupPlace, begun: Sequence[Process]) -> list[Process]:
    """By a worker whose clock nobody moves: its deadlines are real."""
    with place.app() as app:
        return place.finish(app, [one.id for one in begun]) if begun else []


def names(processes: list[Process]) -> list[str]:
    return [one.destination.rpartition("/")[2] for one in processes]
