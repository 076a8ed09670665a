"""Holds, intents, approvals, announcements and releases in memory: the same obligations, under the store's one lock."""

import threading
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from calve.model.access import Asked, Halt
from calve.model.change import ANNOUNCED, Achieved, Change, Intend, NewEvent, NewRelease, ReleaseTo
from calve.model.process import GuardedTable, Process, ProcessId
from calve.model.refusals import conflict
from calve.model.states import ReleaseState
from calve.model.tier import (
    Announced,
    Approval,
    Hold,
    HoldAdded,
    Intent,
    Release,
    Situation,
    check_intent,
    check_shape,
    new_release,
    no_such_hold,
    release_after,
)


@dataclass
class KeptTiers:
    guards: Counter[str] = field(default_factory=Counter)
    holds: dict[str, Hold] = field(default_factory=dict)
    intents: list[Intent] = field(default_factory=list)
    approvals: list[Approval] = field(default_factory=list)
    announced: dict[str, list[Announced]] = field(default_factory=dict)
    releases: dict[ProcessId, Release] = field(default_factory=dict)


class MemoryTiers:
    """Mixed into `MemoryStore`."""

    _transaction: threading.RLock
    _tiers: KeptTiers

    @abstractmethod
    def now(self) -> datetime: ...

    @abstractmethod
    def halts(self) -> list[Halt]: ...

    @abstractmethod
    def _note(self, asked: Asked | None) -> None: ...

    def guard(self, table: GuardedTable) -> int:
        with self._transaction:
            return sum(self._tiers.guards[subject] for subject in table.subjects)

    def add_hold(self, hold: Hold, asked: Asked) -> HoldAdded:
        with self._transaction:
            kept = self._tiers
            kept.guards.update(hold.table.subjects)
            if hold.id not in kept.holds:
                kept.holds[hold.id] = replace(hold, made_at=self.now(), released_at=None, released_by="")
                self._note(asked)
            begun = [
                one for one in kept.intents if one.done_at is None and hold.matches(one.table, one.partition)
            ]
            return HoldAdded(hold=kept.holds[hold.id], open=tuple(begun))

    def holds(self, *, every: bool = False) -> list[Hold]:
        with self._transaction:
            return [one for one in self._tiers.holds.values() if every or one.stands(self.now())]

    def release_hold(self, id: str, asked: Asked) -> Hold:
        with self._transaction:
            hold = self._tiers.holds.get(id)
            if hold is None:
                raise no_such_hold(id)
            if hold.released_at is None:
                hold = replace(hold, released_at=self.now(), released_by=asked.who)
                self._tiers.holds[id] = hold
                self._note(asked)
            return hold

    def intents(self, process_id: ProcessId) -> list[Intent]:
        with self._transaction:
            return [one for one in self._tiers.intents if one.process_id == process_id]

    def releases(self, identity: str, destination: str = "") -> list[Release]:
        with self._transaction:
            found = [one for one in self._tiers.releases.values() if one.identity == identity]
        wanted = [one for one in found if destination in ("", one.destination)]
        return sorted(wanted, key=lambda one: one.attempt)

    def releases_in(self, states: frozenset[ReleaseState]) -> list[Release]:
        with self._transaction:
            found = [one for one in self._tiers.releases.values() if one.state in states]
        return sorted(found, key=lambda one: (one.made_at, one.process_id))

    def approve(self, approval: Approval, asked: Asked) -> Approval:
        with self._transaction:
            kept = self._tiers.approvals
            for one in kept:
                if one.revoked_at is None and _approves(one) == _approves(approval):
                    return one
            made = replace(approval, seq=len(kept) + 1, made_at=self.now(), revoked_at=None, revoked_by="")
            kept.append(made)
            self._note(asked)
            return made

    def approvals(self, *, every: bool = False) -> list[Approval]:
        with self._transaction:
            return [one for one in self._tiers.approvals if every or one.revoked_at is None]

    def revoke_approval(self, seq: int, asked: Asked) -> bool:
        with self._transaction:
            for number, one in enumerate(self._tiers.approvals):
                if one.seq == seq and one.revoked_at is None:
                    revoked = replace(one, revoked_at=self.now(), revoked_by=asked.who)
                    self._tiers.approvals[number] = revoked
                    self._note(asked)
                    return True
            return False

    def announce(self, program: str, said: Sequence[Announced]) -> None:
        with self._transaction:
            self._tiers.announced[program] = [
                replace(one, program=program, seen_at=self.now()) for one in said
            ]

    def announced(self, *, live_seconds: float) -> list[Announced]:
        since = self.now() - timedelta(seconds=live_seconds)
        with self._transaction:
            said = [one for of in self._tiers.announced.values() for one in of]
        lately = [one for one in said if one.seen_at is not None and one.seen_at > since]
        return sorted(lately, key=lambda one: (one.program, one.name))

    def _apply_tier(self, process: Process, change: Change) -> list[NewEvent]:
        """All of it or, where it raises, nothing: what is refused is refused before the first write."""
        check_shape(process, change)
        kept, now = self._tiers, self.now()
        intents, releases = list(kept.intents), dict(kept.releases)
        events: list[NewEvent] = []
        raised: list[str] = []
        for item in change.all(Intend):
            check_intent(process, item, self._situation(item))
            raised += item.table.subjects
            intents.append(_intent(process, item, len(intents) + 1, now))
            said = f"{item.step} of partition {item.partition} of {item.table.name}"
            events.append(NewEvent(name=ANNOUNCED, message=said))
        for done in change.all(Achieved):
            at = next((n for n, one in enumerate(intents) if one.seq == done.intent), None)
            if at is None or intents[at].process_id != process.id or intents[at].done_at is not None:
                raise conflict(process.id, f"it has no open intent {done.intent}")
            intents[at] = replace(intents[at], done_at=now, result=done.result)
        for new in change.all(NewRelease):
            others = [one for one in releases.values() if one.identity == new.identity]
            releases[process.id] = new_release(process, new, others, now)
        for to in change.all(ReleaseTo):
            id = to.release or process.id
            releases[id] = release_after(process, to, releases.get(id), now)
        kept.intents, kept.releases = intents, releases
        kept.guards.update(raised)
        return events

    def _situation(self, intend: Intend) -> Situation:
        version, permit = self.guard(intend.table), intend.permit
        if permit is None:
            return Situation(version=version)
        wanted = (permit.what, permit.hash, intend.table.identity, permit.destination)
        return Situation(
            version=version,
            holds=[one for one in self.holds() if one.matches(intend.table, intend.partition)],
            halts=self.halts(),
            announced=self.announced(live_seconds=permit.live_seconds),
            approved=any(_approves(one) == wanted for one in self.approvals()),
        )


def _approves(one: Approval) -> tuple[str, ...]:
    return one.what, one.hash, one.identity, one.destination


def _intent(process: Process, item: Intend, seq: int, now: datetime) -> Intent:
    return Intent(
        seq=seq,
        process_id=process.id,
        identity=item.table.identity,
        uuid=item.table.uuid,
        name=item.table.name,
        partition=item.partition,
        step=item.step,
        query_id=item.query_id,
        detail=item.detail,
        made_at=now,
    )
