"""What every group of verbs stands on: one configuration, opened, and who asks."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from calve.app.config import Config
from calve.app.wiring import App
from calve.control.ports import Store
from calve.model.access import Asked, AuditOutcome, Proof
from calve.model.errors import CalveError
from calve.model.process import ProcessId

if TYPE_CHECKING:
    from calve.app.pages.overview import Overview
    from calve.control.registry import ServedStore
    from calve.notify.notices import WantedNotice

_MOST_DETAIL = 2000


class Opened(ABC):
    config: Config
    _app: App

    @property
    def registry(self) -> "ServedStore":
        """What servers keep in the store."""
        return self._app.registry

    @property
    def overview(self) -> "Overview":
        """What all work adds up to, as pages show it."""
        return self._app.overview

    def wants(self) -> "list[WantedNotice]":
        """What webhooks receive though no process stands for it."""
        from calve.app.notices import wants

        return wants(self._app)

    @abstractmethod
    def _asking(self, verb: str, subject: str = "") -> Asked: ...

    @abstractmethod
    def _store(self, verb: str, subject: str = "") -> Store:
        """The store, for a change: who asked is written with it."""

    @contextmanager
    def _audited(self, verb: str, subject: str) -> Iterator[None]:
        """A change that no row of the store holds: noted before it and after."""
        asked = self._asking(verb, subject)
        # If we die in here, the audit has "asked" and no outcome: it may have happened.
        self.registry.audit(asked, AuditOutcome.ASKED)
        try:
            yield
        except CalveError as error:
            self.registry.audit(asked, AuditOutcome.FAILED, error.message)
            raise
        self.registry.audit(asked, AuditOutcome.DONE)

    def _proven(self, id: str, faults: Sequence[str], *, depth: str) -> None:
        detail = "; ".join(faults)[:_MOST_DETAIL]
        # If we die here, it was proven and nobody knows: it can be proven again.
        self.registry.record_proof(Proof(process_id=ProcessId(id), ok=not faults, depth=depth, detail=detail))
