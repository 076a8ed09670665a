"""A card, and what the cards read of the store, each once."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from calve.app import view
from calve.app.pages.document import Remembered
from calve.app.view import Json
from calve.app.wiring import App
from calve.model.process import Process, ProcessId, Worker
from calve.model.states import ProcessState

_FAILED_DAYS = 14.0
FAILURES = 200
_LATER = 1000  # newest ends that are looked through for what replaced a failure
_LIVE = 1000
SHOWN_IDS = 20


@dataclass(frozen=True, kw_only=True)
class Card:
    kind: str
    title: str
    why: str
    since: datetime | None
    ids: tuple[ProcessId, ...] = ()
    count: int = 1
    code: str = ""
    source: str = ""
    destination: str = ""
    action: str | None = None  # a verb, or what pages call it
    arguments: Json = field(default_factory=dict)
    command: str = ""
    href: tuple[str, Json] | None = None  # a page and its arguments
    work: str = ""  # which kind of it webhooks are told that it is about
    state: str = ""  # what makes it news again, beside kind, source and destination

    def to_json(self, urgency: int) -> Json:
        return {
            "kind": self.kind,
            "urgency": urgency,
            "title": self.title,
            "why": self.why,
            "since": view.time_json(self.since),
            "count": self.count,
            "ids": list(self.ids[:SHOWN_IDS]),
            "code": self.code,
            "source": self.source,
            "destination": self.destination,
            "action": self.action,
            "arguments": self.arguments,
            "command": self.command,
            "href": list(self.href) if self.href else None,
        }


class Glance:
    """What the cards read, each once."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.reader = Remembered(app.store)
        self.now = self.reader.now()

    @cached_property
    def live(self) -> list[Process]:
        return self.app.store.live(_LIVE)

    @cached_property
    def alive(self) -> list[Worker]:
        fresh = timedelta(seconds=self.app.limits.lease_seconds)
        return [one for one in self.reader.workers() if self.now - one.heartbeat_at <= fresh]

    @cached_property
    def unknown(self) -> list[Process]:
        return self.app.registry.unknown_outcomes(FAILURES)

    @cached_property
    def failed(self) -> list[Process]:
        """That nobody has dealt with, newest first."""
        registry = self.app.registry
        since = self.now - timedelta(days=_FAILED_DAYS)
        found = registry.ended(since, failed=True, limit=FAILURES)
        if not found:
            return []
        retried = registry.retried([one.id for one in found])
        oldest = min(one.finished_at for one in found if one.finished_at)
        later: dict[tuple[str, str, str, str], datetime] = {}
        for one in registry.ends(oldest, state=ProcessState.COMPLETED, limit=_LATER):
            for name in one.partitions or ("",):
                later.setdefault((one.kind, one.source, one.destination, name), one.finished_at)
        return [one for one in found if one.id not in retried and not _replaced(one, later)]


def _replaced(process: Process, later: dict[tuple[str, str, str, str], datetime]) -> bool:
    if process.finished_at is None:
        return False
    places = [
        (process.kind, process.source, process.destination, name) for name in process.partitions or ("",)
    ]
    return all(place in later and later[place] > process.finished_at for place in places)
