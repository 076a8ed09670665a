"""What servers and their clients need of a store beside `ports.Store`: the feed of events, requests, tokens,
halts, the audit, proofs, servers, notices and actions, and what pages show (`seen`). Workers need none of it.

Docstrings are obligations. Every writing call is one transaction, together with the audit row of `asked`
where it takes one. Times are the store's own. Calls are bounded, raise only `CalveError`s, and may be
made twice, by several programs at once, and after a crash.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from calve.control.ports import Store
from calve.control.seen import Seen
from calve.control.tiers import Tiers
from calve.model.access import (
    AccessToken,
    Action,
    ActionQuery,
    Alarm,
    Asked,
    AuditEntry,
    AuditOutcome,
    FeedState,
    Halt,
    KeyedRequest,
    Notice,
    Proof,
    Server,
    Totals,
)
from calve.model.process import Event, ProcessId


class Feed(Protocol):
    """All events in one order. A reader that saw a position has seen, or can read, all before it."""

    def number_events(self, limit: int = 1000) -> int:
        """Give the next positions to committed events that have none, oldest first; how many. Call it
        until it answers 0. A look at an index if there are none."""

    def feed(self, after: int, limit: int) -> list[Event]:
        """Numbered events with a position above `after`, in order."""

    def feed_state(self) -> FeedState: ...

    def event_at(self, position: int) -> Event | None: ...


class Registry(Feed, Seen, Tiers, Protocol):
    def request(self, who: str, key: str) -> KeyedRequest | None:
        """What came of a key; `Store.submit` writes it."""

    def answer_request(self, who: str, key: str, answer: str) -> None:
        """Keep the text of the first answer. Nothing if there is one already, if no submit used the
        key, or if the text is above 256 KB: then it is made again from the processes."""

    def keys(self, ids: Sequence[ProcessId]) -> dict[ProcessId, str]:
        """The key that each process was submitted with, as long as it is kept; not that of who joined it."""

    def put_token(self, token: AccessToken, asked: Asked) -> None:
        """RefusedError (code `token_exists`) if the id or the name was ever given."""

    def token(self, id: str) -> AccessToken | None: ...

    def tokens(self) -> list[AccessToken]: ...  # oldest first, revoked ones too

    def revoke_token(self, id: str, asked: Asked) -> AccessToken:
        """The row after. NotFoundError (code `token_not_found`). Twice is harmless."""

    def put_halt(self, halt: Halt, asked: Asked) -> Halt:
        """The halt that stands: where there was one already it stays, with its time and reason."""

    def lift_halt(self, kind: str, source: str, asked: Asked) -> bool:
        """Exactly that one; False if there was none."""

    def audit(self, asked: Asked, outcome: AuditOutcome, detail: str = "") -> None:
        """For effects outside of the store: ASKED before, DONE or FAILED after."""

    def audited(self, before: int | None, limit: int) -> list[AuditEntry]: ...  # newest first

    def audited_about(
        self, process_id: ProcessId, since: datetime, until: datetime, limit: int
    ) -> list[AuditEntry]:
        """What was asked about one process in that time, oldest first."""

    def record_proof(self, proof: Proof) -> None: ...

    def proofs(self, ids: Sequence[ProcessId]) -> list[Proof]: ...  # newest first

    def beat_server(self, server: Server) -> None:
        """Insert or refresh."""

    def servers(self) -> list[Server]: ...  # by id

    def forget_server(self, id: str) -> None: ...

    def totals(self) -> Totals:
        """Counts and ages, each by one statement; they need not agree with each other."""

    def follow_target(self, name: str) -> int:
        """The position up to which a target knows the feed. A new one starts at its end."""

    def alarms(self, target: str) -> list[Alarm]: ...  # by subject

    def add_notices(
        self,
        target: str,
        *,
        after: int,
        upto: int,
        notices: Sequence[Notice] = (),
        alarms: Sequence[Alarm] = (),
        cleared: Sequence[str] = (),
    ) -> bool:
        """Move a target from position `after` to `upto`, with what it is to be told and the alarms that
        this raises and clears (by subject). False, and nothing is written, if it is no longer at `after`.
        A notice whose id is there already is not added again."""

    def claim_notices(self, target: str, *, limit: int, lease_seconds: float) -> list[Notice]:
        """Notices that are due, oldest first, hidden from everybody for so long."""

    def record_notices(
        self, ids: Sequence[str], error: str = "", *, retry_seconds: float = 0.0, ends: bool = True
    ) -> None:
        """One more attempt: ended (with an error: given up), or due again later."""

    def given_up(self, limit: int) -> list[Notice]: ...  # ended with an error, newest first

    def put_actions(self, actions: Sequence[Action]) -> list[Action]:
        """Accept all or none, in order; the rows, numbered. An id that is there stays as it is."""

    def claim_actions(self, *, limit: int, lease_seconds: float, ids: Sequence[str] = ()) -> list[Action]:
        """Actions that are not done and that nobody holds, oldest first (of `ids`, if given); held for so
        long."""

    def hold_actions(self, ids: Sequence[str], lease_seconds: float) -> None:
        """Those of them that are not done are held for so long from now."""

    def record_action(self, id: str, processes: Sequence[ProcessId] = (), error: str = "") -> None:
        """It is done. The first record stays."""

    def actions(self, query: ActionQuery) -> list[Action]: ...


class ServedStore(Store, Registry, Protocol):
    """Both ports: what the SQL stores and the store in memory are."""
