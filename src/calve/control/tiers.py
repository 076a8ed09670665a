"""What a store keeps about rows that may leave a table. Docstrings are obligations, as in `registry`.

A hold and an intent (`model.change.Intend`) take the same guard, in one transaction each: of two that are made at the
same moment, either the intent is refused, or the hold's answer names it. What cannot be read is a refusal. None of it
is ever forgotten, but for what programs announced.
"""

from collections.abc import Sequence
from typing import Protocol

from calve.model.access import Asked
from calve.model.process import GuardedTable, ProcessId
from calve.model.states import ReleaseState
from calve.model.tier import Announced, Approval, Hold, HoldAdded, Intent, Release


class Tiers(Protocol):
    def guard(self, table: GuardedTable) -> int:
        """Its version, to be read before the conditions of a step are; raised by every hold and intent."""

    def add_hold(self, hold: Hold, asked: Asked) -> HoldAdded:
        """With the steps that were announced before it and have not ended. An id that is there stays as it is."""

    def holds(self, *, every: bool = False) -> list[Hold]:
        """Those that stand, oldest first; `every`: also released and expired ones."""

    def release_hold(self, id: str, asked: Asked) -> Hold:
        """The row after. NotFoundError (code `hold_not_found`). Twice is harmless, and the first stays."""

    def intents(self, process_id: ProcessId) -> list[Intent]: ...  # in order

    def releases(self, identity: str, destination: str = "") -> list[Release]: ...  # by attempt

    def releases_in(self, states: frozenset[ReleaseState]) -> list[Release]:
        """Of all tables, those that are in one of these states; in the order in which they were made."""

    def approve(self, approval: Approval, asked: Asked) -> Approval:
        """The approval that stands: where there was one already it stays."""

    def approvals(self, *, every: bool = False) -> list[Approval]:
        """Oldest first; `every`: revoked ones too."""

    def revoke_approval(self, seq: int, asked: Asked) -> bool:
        """False if it is not there or was revoked before."""

    def announce(self, program: str, said: Sequence[Announced]) -> None:
        """What this program's configuration says now, in place of what it said before. One that cannot read its
        configuration announces a policy without a name, so that no policy is as it was planned."""

    def announced(self, *, live_seconds: float) -> list[Announced]: ...  # lately, by program and name
