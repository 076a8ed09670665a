"""What the rest of Calve asks of a ClickHouse source, embedded or a server.

A visit is a short, bounded time at the source. Every call is bounded by a timeout of its
own, raises only `CalveError`s, and touches nothing but what its statement says.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True, kw_only=True)
class Disk:
    """A disk of the source that this machine sees as a folder."""

    name: str
    path: Path


class Session(Protocol):
    """One visit. From one thread at a time."""

    source: str  # the name in the configuration
    configured_id: str | None  # an identity given by the user, in place of the derived one
    embedded: bool  # while inside, nobody else changes anything there
    patience_seconds: float  # how long one thing at the source may take

    def rows(
        self, sql: str, settings: Mapping[str, str] = ..., what: str = ..., seconds: float | None = None
    ) -> list[dict[str, Any]]:
        """The rows of a query, exact. `what` names the object in an error's message."""

    def execute(
        self, sql: str, settings: Mapping[str, str] = ..., what: str = ..., seconds: float | None = None
    ) -> None:
        """A statement for its effect. When this returns or raises, it is no longer under way."""

    def disks(self) -> tuple[Disk, ...]:
        """The disks whose files can be read and removed from here."""


class Source(Protocol):
    """One entry of `[source.…]`."""

    name: str

    def visit(self) -> AbstractContextManager[Session]:
        """Go there. `SourceBusyError` when an embedded source stays open elsewhere."""
