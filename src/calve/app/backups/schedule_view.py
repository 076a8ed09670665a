"""Schedules as documents: what each does, what became of its last occurrences, and which come next.

All is answered from the store. Nothing shown here decides anything.
"""

from datetime import datetime

from calve.app import view
from calve.app.backups import schedules
from calve.app.backups.schedules import HALT, WHAT, Tried
from calve.app.view import Json
from calve.app.wiring import App
from calve.model.access import Asked, Halt
from calve.model.states import ProcessState
from calve.policy.schedule import Schedule

_NEXT = 10
_STATES = {ProcessState.COMPLETED: "made", ProcessState.FAILED: "failed", ProcessState.CANCELLED: "cancelled"}


def schedule_list(app: App) -> list[Json]:
    now = app.store.now()
    return [_summary(app, one, now) for one in app.config.schedules]


def _summary(app: App, schedule: Schedule, now: datetime) -> Json:
    seen = app.registry.sighting(schedule.name, WHAT)
    made = schedules.made(app, schedule)
    [coming] = schedules.upcoming(schedule, now, 1)
    return {
        "name": schedule.name,
        "source": schedule.source,
        "tables": list(schedule.tables),
        "every_seconds": schedule.every.total_seconds(),
        "at": f"{schedule.clock.at:%H:%M}",
        "zone": schedule.clock.zone,
        "paused": schedules.is_paused(app, schedule),
        "last": view.process_json(made) if made else None,
        "drilled_at": view.time_json(schedules.last_restore(app, schedule)),
        "next": _coming(schedule, coming.name, coming.begins_at),
        "seen_at": view.time_json(seen.seen_at) if seen else None,
        "error": seen.error if seen else "",
    }


def _coming(schedule: Schedule, occurrence: str, begins_at: datetime) -> Json:
    return {
        "occurrence": occurrence,
        "backup": f"{schedule.name}-{occurrence}",
        "at": view.time_json(begins_at),
    }


def schedule_show(app: App, name: str) -> Json:
    schedule, now = app.config.schedule(name), app.store.now()
    noted = schedules.notes(app, schedule)
    halt = next((one for one in app.store.halts() if one.kind == HALT and one.source == name), None)
    return _summary(app, schedule, now) | {
        "jitter_seconds": schedule.jitter.total_seconds(),
        "keep": dict(schedule.keep),
        "verify": schedule.verify,
        "drill_seconds": schedule.drill_every.total_seconds() if schedule.drill_every else None,
        "drill_bytes": schedule.drill_bytes,
        "halt": view.plain_json(halt) if halt else None,
        "pruned": {key: noted[key] for key in ("pruned_at", "kept", "deleted", "spared") if key in noted},
        "occurrences": [
            _occurrence(schedule, one, newest=at == 0, since=str(noted.get("since") or ""), now=now)
            for at, one in enumerate(schedules.recent(app, schedule, now))
        ],
        "upcoming": [
            _coming(schedule, one.name, one.begins_at) for one in schedules.upcoming(schedule, now, _NEXT)
        ],
    }


def _occurrence(schedule: Schedule, one: Tried, *, newest: bool, since: str, now: datetime) -> Json:
    process = one.process
    if process is not None:
        state = _STATES.get(process.state, "running")
    elif one.occurrence.begins_at > now:
        state = "waiting"
    elif not since or one.occurrence.begins_at < datetime.fromisoformat(since):
        state = "before"  # nobody knew the schedule then
    else:
        state = "due" if newest else "missed"
    return {
        "occurrence": one.occurrence.name,
        "at": view.time_json(one.occurrence.begins_at),
        "backup": schedule.backup(one.occurrence),
        "state": state,
        "attempts": one.attempts,
        "process": process.id if process else None,
        "error": process.error.to_json() if process and process.error else None,
    }


def schedule_pause(app: App, name: str, reason: str, asked: Asked) -> Json:
    app.config.schedule(name)
    return view.plain_json(
        app.registry.put_halt(Halt(kind=HALT, source=name, who=asked.who, reason=reason), asked)
    )


def schedule_resume(app: App, name: str, asked: Asked) -> Json:
    return {"name": name, "resumed": app.registry.lift_halt(HALT, name, asked)}
