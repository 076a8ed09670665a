"""Schedules at work: a worker looks on an interval and queues the backups that are due, what proves them, and deletes
what is no longer kept.

What was begun is read from the store, as for policies, and any number of workers may do this at once: one of them
looks, and the store refuses an occurrence that was started before. A backup of a schedule is an ordinary backup.
"""

import json
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from calve.app.wiring import App
from calve.model.access import Asked
from calve.model.errors import CalveError, LockedError, RefusedError
from calve.model.process import NewProcess, Process, ProcessId, ProcessQuery, Start, Starts
from calve.model.record import fields_of
from calve.model.seen import Sighting
from calve.model.states import ProcessState
from calve.policy.schedule import Occurrence, Schedule
from calve.policy.stand import again_at

HALT = "schedule"  # the kind of a halt that pauses a schedule, whose name is its source
WHAT = "schedule"  # of the sighting
LOOKED = 30  # occurrences
_AGAIN_SECONDS = 30.0
_LEASE_SECONDS = 600.0  # a claim: who looks for longer has died
_NEWEST = 50
_REFUSED = ("already_started", "over_limit")
BACKUP = "backup"  # an action
DRILLS = "drills"  # what the starts of drills are about: the last of them says when that was

Json = dict[str, object]


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One occurrence, and what the store knows of it."""

    occurrence: Occurrence
    attempts: int = 0
    process: Process | None = None  # of the last attempt

    def next_attempt(self, now: datetime) -> int:
        """0: there is nothing to start. Who cancels a backup means it; one that failed is tried again."""
        if not self.attempts:
            return 1
        return self.attempts + 1 if may_repeat(self.process, self.attempts, now) else 0


def may_repeat(last: Process | None, attempts: int, now: datetime) -> bool:
    """Whether the time has come to try again what failed."""
    if last is None or last.state is not ProcessState.FAILED:
        return False
    return now >= again_at(last.finished_at or last.created_at, attempts)


def recent(app: App, schedule: Schedule, now: datetime, count: int = LOOKED) -> list[Tried]:
    """The last occurrences, newest first."""
    found = list(islice(schedule.before(now), count))
    last: dict[str, list[Start]] = {}
    for one in app.store.starts(schedule.subject, app.config.backup_url, [one.name for one in found]):
        if one.action == BACKUP:
            last.setdefault(one.partition, []).append(one)
    ids = [some[0].process_id for some in last.values()]
    known = {process.id: process for process in app.store.known(ids)}
    return [
        Tried(
            occurrence=one,
            attempts=len(last.get(one.name, ())),
            process=known.get(last[one.name][0].process_id) if one.name in last else None,
        )
        for one in found
    ]


def made(app: App, schedule: Schedule) -> Process | None:
    """The newest backup of the schedule that completed, also one started by hand."""
    done = ProcessQuery(
        kind="backup",
        source=f"{schedule.source}:{','.join(schedule.tables)}",
        states=frozenset({ProcessState.COMPLETED}),
        limit=_NEWEST,
    )
    of_it = (one for one in app.store.processes(done) if is_of(one, schedule))
    return next(of_it, None)


def is_of(process: Process, schedule: Schedule) -> bool:
    return fields_of(process.request).get("schedule") == schedule.name


def is_paused(app: App, schedule: Schedule) -> bool:
    return any(one.kind == HALT and one.source in ("", schedule.name) for one in app.store.halts())


def begin_once(
    app: App, schedule: Schedule, new: NewProcess, item: Start, *, at_once: int = 1
) -> Process | None:
    """None where another was first."""
    asked = Asked(who=schedule.subject, verb=item.action, subject=new.source)
    with suppress(LockedError):  # somebody does the same by hand
        try:
            # If we die here, the process and its start are there, or neither.
            return app.store.submit([new], asked=asked, starts=Starts(items=(item,), at_once=at_once))[0]
        except RefusedError as error:
            if error.code not in _REFUSED:
                raise
    return None


def start_of(
    app: App,
    schedule: Schedule,
    process_id: ProcessId,
    *,
    action: str,
    what: str,
    attempt: int,
    content: str = "",
) -> Start:
    """`what`: the occurrence, or the backup. The same attempt at the same is never started again."""
    return Start(
        policy=schedule.subject if action == BACKUP else f"{action}s of {schedule.subject}",
        hash="",
        action=action,
        identity=schedule.subject,
        partition=what,
        destination=app.config.backup_url,
        content=content,
        attempt=attempt,
        bytes=0,
        day=what,
        process_id=process_id,
    )


def starts_of(app: App, schedule: Schedule, what: str) -> list[Start]:
    """Newest first."""
    return app.store.starts(schedule.subject, app.config.backup_url, [what])


def last_restore(app: App, schedule: Schedule) -> datetime | None:
    """When a drill of the schedule last proved that its backups restore."""
    newest = [start.process_id for start in starts_of(app, schedule, DRILLS)[:_NEWEST]]
    done = [one for one in app.store.known(newest) if one.state is ProcessState.COMPLETED]
    return max((one.finished_at for one in done if one.finished_at), default=None)


def start(app: App, schedule: Schedule, since: datetime, now: datetime) -> list[Process]:
    """Queue the last occurrence, if nobody has. One that began before anybody knew the schedule is not due."""
    tried = recent(app, schedule, now)
    last = next((one for one in tried if one.occurrence.begins_at <= now), None)
    if last is None or (last.occurrence.begins_at < since and not any(one.attempts for one in tried)):
        return []
    if any(one.process and not one.process.finished_at for one in tried):
        return []  # one at a time: what comes meanwhile is missed, and run once after it
    attempt = last.next_attempt(now)
    if not attempt:
        return []
    from calve.app.backups import requests  # which needs all that backups are made of

    name = last.occurrence.name
    new = requests.scheduled(app, schedule, schedule.backup(last.occurrence))
    item = start_of(app, schedule, new.id, action=BACKUP, what=name, attempt=attempt)
    process = begin_once(app, schedule, new, item)
    return [process] if process else []


def tick(app: App, schedule: Schedule) -> list[Process]:
    """Look if it is time, and do what is due; what was started."""
    if is_paused(app, schedule):
        return []
    if not app.registry.claim_look(
        schedule.name, WHAT, again_seconds=_AGAIN_SECONDS, lease_seconds=_LEASE_SECONDS
    ):
        return []
    now = app.store.now()
    noted = notes(app, schedule)
    noted.setdefault("since", now.isoformat())
    begun: list[Process] = []
    errors: list[CalveError] = []
    for work in _WORK:
        try:
            begun += work(app, schedule, noted, now)
        except CalveError as error:  # a source that is down keeps nobody from proving what there is
            errors.append(error)
    # If we die here, all of it is looked at again once the claim is over.
    app.registry.put_sighting(
        Sighting(subject=schedule.name, what=WHAT, summary=json.dumps(noted), seen_by=socket.gethostname())
    )
    if errors:
        app.registry.fail_look(schedule.name, WHAT, errors[0].message)
        raise errors[0]
    return begun


def notes(app: App, schedule: Schedule) -> Json:
    """What workers noted of the schedule: since when they know it, and what was deleted last."""
    seen = app.registry.sighting(schedule.name, WHAT)
    return fields_of(seen.summary) if seen else {}


def _start(app: App, schedule: Schedule, noted: Json, now: datetime) -> list[Process]:
    return start(app, schedule, datetime.fromisoformat(str(noted["since"])), now)


def _prove(app: App, schedule: Schedule, _: Json, now: datetime) -> Sequence[Process]:
    newest = made(app, schedule)
    if newest is None or not (schedule.verify or schedule.drill_every):
        return []
    from calve.app.backups import drills

    return drills.prove(app, schedule, newest, now)


def _prune(app: App, schedule: Schedule, noted: Json, now: datetime) -> list[Process]:
    """Once for each new backup, and only after it was found whole, if it is read back at all."""
    newest = made(app, schedule)
    if not schedule.keep or newest is None or noted.get("pruned_for") == newest.id:
        return []
    from calve.app.backups import drills, retention

    if not drills.is_read_back(app, schedule, newest):
        return []

    noted.update(retention.prune(app, schedule), pruned_for=newest.id, pruned_at=now.isoformat())
    return []


Work = Callable[[App, Schedule, Json, datetime], Sequence[Process]]
_WORK: tuple[Work, ...] = (_start, _prove, _prune)


def upcoming(schedule: Schedule, now: datetime, count: int) -> Iterator[Occurrence]:
    return islice(schedule.after(now), count)


def run_now(app: App, schedule: Schedule, asked: Asked) -> Process:
    """One more backup, whatever the time is. It is the schedule's own: its rules keep it or not."""
    from calve.app.backups import requests

    name = f"{schedule.name}-{app.store.now():%Y-%m-%dT%H%M%SZ}"
    new = requests.scheduled(app, schedule, name)
    # If we die here, it is queued or not: `calve ps` says.
    return app.store.submit([new], asked=asked)[0]
