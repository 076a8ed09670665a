"""From events to what a webhook receives. Pure, except that `Waits` remembers how processes stood.

The id of a notice is made of the store, the event's position, the target and the name: any program that
makes it, however often, makes the same one.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from calve.model.access import Alarm, Notice
from calve.model.change import CANCELLED, COMPLETED, FAILED, NOTHING_TO_DO, RESOLVED
from calve.model.errors import Outcome
from calve.model.process import Event, Process, ProcessId
from calve.model.states import ProcessState
from calve.notify.targets import Topic, Webhook

DONE_EVENTS = frozenset({COMPLETED, NOTHING_TO_DO})
END_EVENTS = DONE_EVENTS | {FAILED, CANCELLED}  # each process that ends writes one of them
_MOST_PARTITIONS = 20  # named in a message
_MOST_SUBJECT = 200

ProcessOf = Callable[[ProcessId], Process]


@dataclass(frozen=True, kw_only=True)
class News:
    """What a page of the feed means for a target."""

    notices: Sequence[Notice] = ()
    alarms: Sequence[Alarm] = ()
    cleared: Sequence[str] = ()


def news(
    target: Webhook, store_id: str, events: Iterable[Event], process_of: ProcessOf, standing: Iterable[Alarm]
) -> News:
    """`standing`: the alarms of this target. A failure raises one even if the target is not notified of it."""
    alarms = {alarm.subject: alarm for alarm in standing}
    raised: dict[str, Alarm] = {}
    cleared: set[str] = set()
    notices: list[Notice] = []
    for event in events:
        if event.name not in DONE_EVENTS | {FAILED, RESOLVED}:
            continue
        process = process_of(event.process_id)
        if not target.wants(process):
            continue
        subject = subject_of(process)
        told = _told(event, process, alarmed=subject in alarms)
        if Topic.FAILED in told or Topic.UNKNOWN in told:
            alarms[subject] = raised[subject] = Alarm(
                subject=subject, state=told[0].value, process_id=event.process_id
            )
            cleared.discard(subject)
        elif alarms.pop(subject, None):
            raised.pop(subject, None)
            cleared.add(subject)
        prefix = f"{store_id}-{event.position}"
        notices += [_notice(target, prefix, name, process, event) for name in told if name in target.on]
    return News(notices=notices, alarms=tuple(raised.values()), cleared=tuple(cleared))


def _told(event: Event, process: Process, *, alarmed: bool) -> tuple[Topic, ...]:
    """The outcome is the row's of now. Where it was found out meanwhile, its own event follows."""
    outcome = process.error.outcome if process.error else Outcome.NOT_APPLIED
    recovered = (Topic.RECOVERED,) if alarmed else ()
    if event.name in DONE_EVENTS:
        return (Topic.DONE, *recovered)
    if event.name == RESOLVED and outcome is Outcome.APPLIED:
        return recovered
    return (Topic.UNKNOWN if outcome is Outcome.UNKNOWN else Topic.FAILED,)


def subject_of(process: Process) -> str:
    """The same work, tried again, has the same subject. A backup has another destination every night."""
    destination = "" if process.kind == "backup" else process.destination
    text = " ".join((process.kind, process.source, destination, *process.partitions))
    if len(text) <= _MOST_SUBJECT:
        return text
    return f"{text[:100]} {hashlib.sha256(text.encode()).hexdigest()}"


@dataclass(frozen=True, kw_only=True)
class WantedNotice:
    """What a person must do, though no process says so. The same one has the same key: it is said once."""

    key: str
    kind: str  # of the work that it is about
    code: str
    message: str
    hint: str  # a command
    source: str = ""
    destination: str = ""
    since: datetime


def wanted(target: Webhook, store_id: str, want: WantedNotice) -> Notice:
    digest = hashlib.sha256(want.key.encode()).hexdigest()[:32]
    made = f"{store_id}-{digest}-{target.key}-{Topic.WANTED}"
    body = {
        "id": made,
        "event": Topic.WANTED.value,
        "at": want.since.isoformat(),
        "message": f"{want.message}: {want.hint}" if want.hint else want.message,
        "process": None,
        "error": None,
        "wanted": {
            "code": want.code,
            "kind": want.kind,
            "source": want.source,
            "destination": want.destination,
            "hint": want.hint,
        },
    }
    return Notice(
        id=made,
        target=target.key,
        name=Topic.WANTED.value,
        process_id=ProcessId(""),
        body=json.dumps(body, ensure_ascii=False),
    )


def stuck(target: Webhook, store_id: str, process: Process, since: datetime, why: str) -> Notice:
    """Said once of a process: the id has no position."""
    event = Event(process_id=process.id, at=since, name=Topic.STUCK.value, message=why)
    return _notice(target, f"{store_id}-{process.id}", Topic.STUCK, process, event)


class Waits:
    """Since when each live process has stood still, as far as this program has seen."""

    def __init__(self) -> None:
        self._seen: dict[ProcessId, tuple[int, datetime]] = {}

    def look(self, live: Iterable[Process], now: datetime) -> list[tuple[Process, datetime]]:
        """One that nobody began waits since it was submitted. One whose tasks run under a lease is at work,
        and a task has bounds of its own."""
        seen, found = {}, []
        for process in live:
            version, since = self._seen.get(process.id, (process.version, now))
            works = process.tasks.running and process.lease_until and process.lease_until > now
            if process.state is ProcessState.PENDING and process.fence == 0:
                since = process.created_at
            elif works or version != process.version:
                since = now
            seen[process.id] = (process.version, since)
            found.append((process, since))
        self._seen = seen
        return found


def past(
    target: Webhook, waits: Iterable[tuple[Process, datetime]], now: datetime
) -> list[tuple[Process, datetime]]:
    """Those that have stood still for too long."""
    until = now - timedelta(minutes=target.stuck_minutes)
    return [(process, since) for process, since in waits if since <= until and target.wants(process)]


def _notice(target: Webhook, prefix: str, name: Topic, process: Process, event: Event) -> Notice:
    made = f"{prefix}-{target.key}-{name}"
    body = json.dumps(document(made, name, event, process), ensure_ascii=False)
    return Notice(id=made, target=target.key, name=name.value, process_id=process.id, body=body)


def document(notice_id: str, name: str, event: Event, process: Process) -> dict[str, Any]:
    """What a receiver gets. Fields are added, never changed."""
    error = process.error
    return {
        "id": notice_id,
        "event": str(name),
        "at": event.at.isoformat(),
        "message": _sentence(name, event, process),
        "process": {
            "id": process.id,
            "kind": process.kind,
            "state": process.state.value,
            "source": process.source,
            "destination": process.destination,
            "partitions": list(process.partitions[:_MOST_PARTITIONS]),
            "partition_count": len(process.partitions),
            "rows": process.rows,
            "files": process.files,
            "bytes": process.bytes,
            "created_at": process.created_at.isoformat(),
            "finished_at": process.finished_at.isoformat() if process.finished_at else None,
        },
        "error": {
            "code": error.code,
            "message": error.message,
            "hint": error.hint,
            "outcome": error.outcome.value,
        }
        if error and process.state is not ProcessState.COMPLETED
        else None,
    }


def _sentence(name: str, event: Event, process: Process) -> str:
    work = f"{process.kind} of {process.source}"
    if process.partitions:
        count = len(process.partitions)
        work += f", partition {process.partitions[0]}," if count == 1 else f", {count} partitions,"
    if process.destination and process.destination != process.source:
        work += f" to {process.destination}"
    said = process.error.message if process.error else event.message
    match name:
        case Topic.FAILED:
            return f"{work} failed: {said}"
        case Topic.UNKNOWN:
            return f"{work} failed, and it is not known yet whether it was published: {said}"
        case Topic.RECOVERED:
            return f"{work} is done, after it had failed"
        case Topic.STUCK:
            return f"{work} has stood still since {event.at:%Y-%m-%d %H:%M} UTC: {event.message}"
    return f"{work} is done: {process.rows} rows" if process.rows else f"{work} is done"
