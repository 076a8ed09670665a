"""The registry in memory: the same obligations, under the same lock as the rest of the store in memory."""

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from secrets import token_hex
from typing import TypeVar

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
    Latest,
    Notice,
    Proof,
    Replayed,
    Server,
    Tally,
    Totals,
)
from calve.model.errors import Outcome
from calve.model.process import Event, Pin, Process, ProcessId
from calve.model.refusals import key_reused, no_such_action, no_such_token, token_exists
from calve.model.states import PROCESS_LIVE, PinState, ProcessState
from calve.testing.memory_seen import MemorySeen

T = TypeVar("T")
_ANSWER_BYTES = 256 * 1024


@dataclass
class MemoryTables:
    """The tables. Dictionaries keep insertion order, so age is their order."""

    store_id: str = field(default_factory=lambda: token_hex(16))
    last_position: int = 0
    forgotten_position: int = 0
    requests: dict[tuple[str, str], KeyedRequest] = field(default_factory=dict)
    tokens: dict[str, AccessToken] = field(default_factory=dict)
    halts: dict[tuple[str, str], Halt] = field(default_factory=dict)
    servers: dict[str, Server] = field(default_factory=dict)
    proofs: list[Proof] = field(default_factory=list)
    audit: list[AuditEntry] = field(default_factory=list)
    last_audit: int = 0
    targets: dict[str, int] = field(default_factory=dict)
    alarms: dict[tuple[str, str], Alarm] = field(default_factory=dict)
    notices: dict[str, Notice] = field(default_factory=dict)
    actions: dict[str, Action] = field(default_factory=dict)
    last_action: int = 0


class MemoryRegistry(MemorySeen):
    """Mixed into `MemoryStore`, which has the events, the processes and the lock."""

    _transaction: threading.RLock
    _kept: MemoryTables

    @abstractmethod
    def now(self) -> datetime: ...

    @abstractmethod
    def _all_events(self) -> list[Event]: ...

    @abstractmethod
    def _replace_event(self, event: Event) -> None: ...

    @abstractmethod
    def _all_processes(self) -> Iterable[Process]: ...

    @abstractmethod
    def _forget_starts(self, before: datetime, limit: int) -> int: ...

    @abstractmethod
    def pins(
        self, process_id: ProcessId | None = None, states: frozenset[PinState] = frozenset()
    ) -> list[Pin]: ...

    # -- the feed -----------------------------------------------------------------------------------

    def number_events(self, limit: int = 1000) -> int:
        with self._transaction:
            new = [event for event in self._all_events() if not event.position][:limit]
            for event in new:
                self._kept.last_position += 1
                self._replace_event(replace(event, position=self._kept.last_position))
            return len(new)

    def feed(self, after: int, limit: int) -> list[Event]:
        with self._transaction:
            numbered = [event for event in self._all_events() if event.position > max(after, 0)]
        return sorted(numbered, key=lambda event: event.position)[:limit]

    def feed_state(self) -> FeedState:
        kept = self._kept
        with self._transaction:
            return FeedState(
                store_id=kept.store_id,
                last_position=kept.last_position,
                forgotten_position=kept.forgotten_position,
            )

    def event_at(self, position: int) -> Event | None:
        return next((event for event in self.feed(position - 1, 1) if event.position == position), None)

    def _forgotten(self, events: Sequence[Event]) -> None:
        if any(not event.position for event in events):
            self._kept.last_position += 1
            self._kept.forgotten_position = self._kept.last_position
        positions = (event.position for event in events)
        self._kept.forgotten_position = max([self._kept.forgotten_position, *positions])

    # -- requests -----------------------------------------------------------------------------------

    def request(self, who: str, key: str) -> KeyedRequest | None:
        with self._transaction:
            return self._kept.requests.get((who, key))

    def answer_request(self, who: str, key: str, answer: str) -> None:
        with self._transaction:
            known = self._kept.requests.get((who, key))
            if known is not None and known.answer is None and len(answer.encode()) <= _ANSWER_BYTES:
                self._kept.requests[who, key] = replace(known, answer=answer)

    def keys(self, ids: Sequence[ProcessId]) -> dict[ProcessId, str]:
        with self._transaction:
            made = {
                (process.id, process.created_at) for process in self._all_processes() if process.id in ids
            }
            found: dict[ProcessId, str] = {}
            for request in self._kept.requests.values():
                for process in request.processes:
                    if (process, request.made_at) in made:
                        found.setdefault(process, request.key)
            return found

    def _check_key(self, asked: Asked | None) -> None:
        first = self._kept.requests.get((asked.who, asked.key)) if asked and asked.key else None
        if asked is not None and first is not None:
            raise Replayed.of(first) if first.hash == asked.hash else key_reused(asked.key)

    def _take_key(self, asked: Asked | None, ids: Sequence[ProcessId]) -> None:
        if asked is not None and asked.key:
            self._kept.requests[asked.who, asked.key] = KeyedRequest(
                who=asked.who,
                key=asked.key,
                verb=asked.verb,
                hash=asked.hash,
                processes=tuple(ids),
                answer=None,
                made_at=self.now(),
            )

    def forget_requests(self, *, hours: float, audit_days: float, limit: int) -> int:
        with self._transaction:
            kept, week = self._kept, self.now() - timedelta(days=7)
            asked_before, noted_before = (
                self.now() - timedelta(hours=hours),
                self.now() - timedelta(days=audit_days),
            )
            gone = [
                _drop(kept.requests, lambda item: item.made_at, asked_before, limit),
                _drop(kept.notices, lambda item: item.ended_at, week, limit),
                _drop(kept.actions, lambda item: item.done_at, week, limit),
                _drop(kept.servers, lambda item: item.heartbeat_at, self.now() - timedelta(days=1), limit),
            ]
            old = [entry for entry in kept.audit if entry.at < noted_before][:limit]
            kept.audit = kept.audit[len(old) :]
            return max(*gone, len(old), self._forget_seen(limit), self._forget_starts(noted_before, limit))

    # -- tokens and halts ---------------------------------------------------------------------------

    def put_token(self, token: AccessToken, asked: Asked) -> None:
        with self._transaction:
            known = self._kept.tokens
            if token.id in known or any(other.name == token.name for other in known.values()):
                raise token_exists(token.name)
            known[token.id] = replace(token, created_at=self.now())
            self._note(asked)

    def token(self, id: str) -> AccessToken | None:
        with self._transaction:
            return self._kept.tokens.get(id)

    def tokens(self) -> list[AccessToken]:
        with self._transaction:
            return list(self._kept.tokens.values())

    def revoke_token(self, id: str, asked: Asked) -> AccessToken:
        with self._transaction:
            token = self._kept.tokens.get(id)
            if token is None:
                raise no_such_token(id)
            if token.revoked_at is None:
                token = self._kept.tokens[id] = replace(token, revoked_at=self.now())
                self._note(asked)
            return token

    def halts(self) -> list[Halt]:
        with self._transaction:
            return [halt for _, halt in sorted(self._kept.halts.items())]

    def put_halt(self, halt: Halt, asked: Asked) -> Halt:
        with self._transaction:
            place = halt.kind, halt.source
            if place not in self._kept.halts:
                self._kept.halts[place] = replace(halt, made_at=self.now())
                self._note(asked)
            return self._kept.halts[place]

    def lift_halt(self, kind: str, source: str, asked: Asked) -> bool:
        with self._transaction:
            lifted = self._kept.halts.pop((kind, source), None) is not None
            if lifted:
                self._note(asked)
            return lifted

    # -- the audit, proofs, servers, totals ---------------------------------------------------------

    def audit(self, asked: Asked, outcome: AuditOutcome, detail: str = "") -> None:
        with self._transaction:
            self._note(asked, outcome=outcome, detail=detail)

    def _note(
        self,
        asked: Asked | None,
        processes: Sequence[ProcessId] = (),
        outcome: AuditOutcome = AuditOutcome.DONE,
        detail: str = "",
    ) -> None:
        if asked is None:
            return
        self._kept.last_audit += 1
        self._kept.audit.append(
            AuditEntry(
                number=self._kept.last_audit,
                at=self.now(),
                who=asked.who,
                verb=asked.verb,
                subject=asked.subject,
                outcome=outcome,
                processes=tuple(processes),
                detail=detail,
            )
        )

    def audited(self, before: int | None, limit: int) -> list[AuditEntry]:
        with self._transaction:
            newest = list(reversed(self._kept.audit))
        return [entry for entry in newest if before is None or entry.number < before][:limit]

    def audited_about(
        self, process_id: ProcessId, since: datetime, until: datetime, limit: int
    ) -> list[AuditEntry]:
        with self._transaction:
            found = [
                one for one in self._kept.audit if since <= one.at <= until and process_id in one.processes
            ]
        return found[:limit]

    def record_proof(self, proof: Proof) -> None:
        with self._transaction:
            self._kept.proofs.append(replace(proof, made_at=self.now()))

    def proofs(self, ids: Sequence[ProcessId]) -> list[Proof]:
        with self._transaction:
            return [proof for proof in reversed(self._kept.proofs) if proof.process_id in ids]

    def beat_server(self, server: Server) -> None:
        with self._transaction:
            known = self._kept.servers.get(server.id)
            started_at = known.started_at if known else self.now()
            self._kept.servers[server.id] = replace(server, started_at=started_at, heartbeat_at=self.now())

    def servers(self) -> list[Server]:
        with self._transaction:
            return sorted(self._kept.servers.values(), key=lambda server: server.id)

    def forget_server(self, id: str) -> None:
        with self._transaction:
            self._kept.servers.pop(id, None)

    def totals(self) -> Totals:
        with self._transaction:
            processes = list(self._all_processes())
            held = self.pins(states=frozenset(PinState) - {PinState.RELEASED})
            tasks = [row.tasks for row in processes if row.state in PROCESS_LIVE]
            return Totals(
                at=self.now(),
                tallies=_tallies(processes),
                tasks_running=sum(each.running for each in tasks),
                tasks_waiting=sum(each.total - each.done - each.failed - each.running for each in tasks),
                unknown_outcomes=sum(_is_unknown(row) for row in processes),
                pins_held=len(held),
                oldest_pin_at=min((pin.created_at for pin in held if pin.created_at), default=None),
                notices_waiting=sum(notice.ended_at is None for notice in self._kept.notices.values()),
                latest=_latest(processes, self._kept.proofs),
            )

    # -- notices and actions ------------------------------------------------------------------------

    def follow_target(self, name: str) -> int:
        with self._transaction:
            if name not in self._kept.targets:
                while self.number_events():
                    pass
            return self._kept.targets.setdefault(name, self._kept.last_position)

    def alarms(self, target: str) -> list[Alarm]:
        with self._transaction:
            return [alarm for (of, _), alarm in sorted(self._kept.alarms.items()) if of == target]

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
        with self._transaction:
            kept, now = self._kept, self.now()
            if kept.targets.get(target) != after:
                return False
            kept.targets[target] = upto
            for subject in cleared:
                kept.alarms.pop((target, subject), None)
            for alarm in alarms:
                kept.alarms[target, alarm.subject] = replace(alarm, made_at=now)
            for notice in notices:
                kept.notices.setdefault(notice.id, replace(notice, target=target, made_at=now))
            return True

    def claim_notices(self, target: str, *, limit: int, lease_seconds: float) -> list[Notice]:
        with self._transaction:
            now = self.now()
            due = [
                notice
                for notice in self._kept.notices.values()
                if notice.target == target
                and notice.ended_at is None
                and (notice.not_before is None or notice.not_before <= now)
            ]
            until = now + timedelta(seconds=lease_seconds)
            claimed = [replace(notice, not_before=until) for notice in due[:limit]]
            self._kept.notices |= {notice.id: notice for notice in claimed}
            return claimed

    def record_notices(
        self, ids: Sequence[str], error: str = "", *, retry_seconds: float = 0.0, ends: bool = True
    ) -> None:
        with self._transaction:
            now = self.now()
            for notice in [self._kept.notices[id] for id in ids if id in self._kept.notices]:
                if notice.ended_at is None:
                    self._kept.notices[notice.id] = replace(
                        notice,
                        attempts=notice.attempts + 1,
                        error=error,
                        ended_at=now if ends else None,
                        not_before=None if ends else now + timedelta(seconds=retry_seconds),
                    )

    def given_up(self, limit: int) -> list[Notice]:
        with self._transaction:
            found = [notice for notice in self._kept.notices.values() if notice.ended_at and notice.error]
            found.reverse()
            return sorted(found, key=lambda notice: notice.ended_at or self.now(), reverse=True)[:limit]

    def put_actions(self, actions: Sequence[Action]) -> list[Action]:
        with self._transaction:
            for action in actions:
                if action.id not in self._kept.actions:
                    self._kept.last_action += 1
                    self._kept.actions[action.id] = replace(
                        action, number=self._kept.last_action, made_at=self.now()
                    )
            put = {action.id: self._kept.actions[action.id] for action in actions}
            return sorted(put.values(), key=lambda action: action.number)

    def claim_actions(self, *, limit: int, lease_seconds: float, ids: Sequence[str] = ()) -> list[Action]:
        with self._transaction:
            now = self.now()
            free = [
                action
                for action in self._kept.actions.values()
                if action.done_at is None
                and (action.claimed_until is None or action.claimed_until <= now)
                and (not ids or action.id in ids)
            ]
            until = now + timedelta(seconds=lease_seconds)
            claimed = [replace(action, claimed_until=until) for action in free[:limit]]
            self._kept.actions |= {action.id: action for action in claimed}
            return claimed

    def hold_actions(self, ids: Sequence[str], lease_seconds: float) -> None:
        with self._transaction:
            until = self.now() + timedelta(seconds=lease_seconds)
            for id in ids:
                action = self._kept.actions.get(id)
                if action is not None and action.done_at is None:
                    self._kept.actions[id] = replace(action, claimed_until=until)

    def record_action(self, id: str, processes: Sequence[ProcessId] = (), error: str = "") -> None:
        with self._transaction:
            action = self._kept.actions.get(id)
            if action is None:
                raise no_such_action(id)
            if action.done_at is None:
                self._kept.actions[id] = replace(
                    action, done_at=self.now(), claimed_until=None, processes=tuple(processes), error=error
                )

    def actions(self, query: ActionQuery) -> list[Action]:
        with self._transaction:
            newest = list(reversed(self._kept.actions.values()))
        return [
            action
            for action in newest
            if (not query.ids or action.id in query.ids)
            and (query.before is None or action.number < query.before)
        ][: query.limit]


def _drop(
    table: dict[str, T] | dict[tuple[str, str], T],
    at: Callable[[T], datetime | None],
    before: datetime,
    limit: int,
) -> int:
    old = [key for key, item in table.items() if (time := at(item)) is not None and time < before][:limit]
    for key in old:
        del table[key]  # type: ignore[arg-type]
    return len(old)


def _is_unknown(row: Process) -> bool:
    return row.cleanup_at is not None and row.error is not None and row.error.outcome is Outcome.UNKNOWN


def _tallies(processes: Sequence[Process]) -> tuple[Tally, ...]:
    found: dict[tuple[str, ProcessState], list[datetime]] = {}
    for row in processes:
        found.setdefault((row.kind, row.state), []).append(row.created_at)
    return tuple(
        Tally(kind=kind, state=state, count=len(times), oldest_at=min(times))
        for (kind, state), times in sorted(found.items())
    )


def _latest(processes: Sequence[Process], proofs: Sequence[Proof]) -> tuple[Latest, ...]:
    ends = {ProcessState.COMPLETED: "completed_at", ProcessState.FAILED: "failed_at"}
    proven = {proof.process_id: proof.made_at for proof in proofs if proof.ok}
    found: dict[tuple[str, str, str], dict[str, datetime]] = {}
    for row in processes:
        times = found.setdefault((row.kind, row.source, row.destination), {})
        for name, at in ((ends.get(row.state), row.finished_at), ("proven_at", proven.get(row.id))):
            if name is not None and at is not None:
                times[name] = max(at, times.get(name, at))
    newest = sorted(
        ((work, times) for work, times in found.items() if times),
        key=lambda item: (max(item[1].values()), item[0]),
        reverse=True,
    )
    return tuple(
        Latest(kind=kind, source=source, destination=destination, **times)
        for (kind, source, destination), times in newest
    )
