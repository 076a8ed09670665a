"""What may become of a commit, and catalogs in which it does.

A fault is three answers: what the caller is told, what became of the commit, and what a
reader sees next. `catalog_proxy` injects the same in front of a REST catalog.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from threading import local
from typing import Any

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    ServiceUnavailableError,
    UnauthorizedError,
)
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier
from requests import ConnectionError as RequestsConnectionError
from requests import ReadTimeout
from sqlalchemy.exc import OperationalError

from calve.iceberg.catalogs.catalog import BoundedSqlCatalog
from calve.model.limits import Limits
from support import tally


class Told(StrEnum):
    """What the caller is told."""

    OK = "ok"
    CONFLICT = "409"
    BAD_REQUEST = "400"
    SERVER_ERROR = "500"
    UNAVAILABLE = "503"
    TIMEOUT = "timeout"
    RESET = "reset"


class Landing(StrEnum):
    """What became of the commit."""

    LANDED = "landed"
    NOT = "not landed"
    LATER = "lands later"  # right before the next commit is applied: after its search
    LAST = "arrives when all is over"  # only when `release` is called
    BURIED = "lands under someone else's commit"


class Reading(StrEnum):
    """What the next looks at the table give."""

    AT_ONCE = "readable at once"
    STALE = "stale read"
    UNREADABLE = "unreadable for a while"
    REFUSED = "refused for a while"  # 401: a token that has just expired


@dataclass(frozen=True, kw_only=True)
class Fault:
    told: Told
    landing: Landing
    reading: Reading
    looks: int = 2  # how many looks are stale or fail


Updates = tuple[TableUpdate, ...]
Requirements = tuple[TableRequirement, ...]


class CatalogFaults(MetastoreCatalog):
    """Before a catalog of ours: its next commit meets the fault that was armed. Everything else is real."""

    def __init__(self, name: str, limits: Limits, properties: Mapping[str, str]) -> None:
        super().__init__(name, limits, properties)  # type: ignore[call-arg]  # that catalog's
        self.bury: Callable[[], None] = lambda: None  # somebody else's commit
        self.before_send: Callable[[], None] = lambda: None
        self.sends = 0
        self._fault: Fault | None = None
        self.held: list[tuple[Table, Requirements, Updates]] = []
        self._until_released = False
        self._bad_looks = 0
        self._reading = Reading.AT_ONCE
        self._old: dict[str | Identifier, Table] = {}
        self._inside = local()

    def arm(self, fault: Fault) -> None:
        self._fault = fault

    def release(self) -> None:
        """Let the commits that were held arrive; what the catalog says to them, nobody hears."""
        held, self.held = self.held, []
        for table, requirements, updates in held:
            try:
                self.really_commit(table, requirements, updates)
            except CommitFailedException:
                continue

    def _arrive_late(self) -> None:
        if not self._until_released:
            self.release()

    def load_table(self, identifier: str | Identifier) -> Table:
        if getattr(self._inside, "commit", False):
            return super().load_table(identifier)  # type: ignore[safe-super]
        if self._bad_looks > 0:
            self._bad_looks -= 1
            if self._reading is Reading.UNREADABLE:
                raise OperationalError("SELECT", {}, Exception("connection refused, injected"))
            if self._reading is Reading.REFUSED:
                raise UnauthorizedError("injected 401")
            if self._reading is Reading.STALE and identifier in self._old:
                return self._old[identifier]
        table = super().load_table(identifier)  # type: ignore[safe-super]  # that catalog's
        self._old[identifier] = table
        return table

    def commit_table(self, table: Table, requirements: Requirements, updates: Updates) -> CommitTableResponse:
        self.before_send()
        self.sends += 1
        self._arrive_late()
        fault, self._fault = self._fault, None
        if fault is None:
            return self.really_commit(table, requirements, updates)
        tally.count("commit", fault.told.value, fault.landing.value)
        answer: Any = None
        match fault.landing:
            case Landing.LANDED:
                answer = self.really_commit(table, requirements, updates)
            case Landing.BURIED:
                answer = self.really_commit(table, requirements, updates)
                self.bury()
            case Landing.LATER | Landing.LAST:
                self.held.append((table, requirements, updates))
                self._until_released = fault.landing is Landing.LAST
            case Landing.NOT:
                pass
        self._reading, self._bad_looks = fault.reading, fault.looks
        _tell(fault.told)
        return answer or CommitTableResponse.model_validate(
            {"metadata": table.metadata, "metadata-location": table.metadata_location}
        )

    def really_commit(
        self, table: Table, requirements: Requirements, updates: Updates
    ) -> CommitTableResponse:
        self._inside.commit = True
        try:
            return super().commit_table(table, requirements, updates)  # type: ignore[safe-super]  # that catalog's
        finally:
            self._inside.commit = False


class FaultySqlCatalog(CatalogFaults, BoundedSqlCatalog):
    """In a database."""


def _tell(told: Told) -> None:
    match told:
        case Told.OK:
            return
        case Told.CONFLICT:
            raise CommitFailedException("injected 409")
        case Told.BAD_REQUEST:
            raise BadRequestError("injected 400")
        case Told.SERVER_ERROR:
            raise CommitStateUnknownException("injected 500")
        case Told.UNAVAILABLE:
            raise ServiceUnavailableError("injected 503")
        case Told.TIMEOUT:
            raise ReadTimeout("injected timeout")
        case Told.RESET:
            raise RequestsConnectionError("injected reset")
