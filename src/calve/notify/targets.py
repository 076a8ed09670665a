"""Who is notified of what. A URL is a secret: it is in no `repr`, no error and no log; its host may be shown.

A target's `key` is its name in the store. The position up to which it knows the feed belongs to that name.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from calve.model.process import Process


class Topic(StrEnum):
    """What a webhook may receive."""

    FAILED = "failed"
    UNKNOWN = "unknown"  # failed, and whether it was published is not known yet
    RECOVERED = "recovered"  # the same work is done, after it had failed
    STUCK = "stuck"
    DONE = "done"
    WANTED = "wanted"  # a person must do something that no process stands for


@dataclass(frozen=True, kw_only=True)
class Webhook:
    """`[notify.NAME]`. Without kinds or tables it hears of all."""

    name: str
    url: str = field(repr=False)
    secret: str = field(default="", repr=False)
    form: str = "json"  # or "slack"
    on: Sequence[str] = tuple(Topic)
    kinds: Sequence[str] = ()
    tables: Sequence[str] = ()
    stuck_minutes: float = 60.0
    ca_file: str = ""

    @property
    def key(self) -> str:
        return f"notify.{self.name}"

    @property
    def host(self) -> str:
        return host_of(self.url)

    def wants(self, process: Process) -> bool:
        return _fits(process, self.kinds, self.tables)

    def hears_of(self, kind: str, *places: str) -> bool:
        return _is_among(kind, places, self.kinds, self.tables)


@dataclass(frozen=True, kw_only=True)
class Ping:
    """`[ping.NAME]`: a service that raises the alarm when it hears nothing. An empty URL is not called."""

    name: str
    kind: str = ""
    table: str = ""
    start: str = field(default="", repr=False)
    success: str = field(default="", repr=False)
    fail: str = field(default="", repr=False)
    ca_file: str = ""

    @property
    def key(self) -> str:
        return f"ping.{self.name}"

    @property
    def host(self) -> str:
        return host_of(self.success or self.fail or self.start)

    def url(self, name: str) -> str:
        return {"start": self.start, "success": self.success, "fail": self.fail}.get(name, "")

    def wants(self, process: Process) -> bool:
        return _fits(process, (self.kind,) if self.kind else (), (self.table,) if self.table else ())


Target = Webhook | Ping


def host_of(url: str) -> str:
    return urlsplit(url).hostname or ""


def _fits(process: Process, kinds: Sequence[str], tables: Sequence[str]) -> bool:
    return _is_among(process.kind, (process.source, process.destination), kinds, tables)


def _is_among(kind: str, places: Sequence[str], kinds: Sequence[str], tables: Sequence[str]) -> bool:
    """A place is a source, with or without its source's name, or a destination."""
    named = [name for place in places for name in (place, place.partition(":")[2])]
    found = any(fnmatchcase(name, pattern) for name in named for pattern in tables)
    return (not kinds or kind in kinds) and (not tables or found)
