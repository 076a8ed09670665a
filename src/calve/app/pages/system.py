"""The installation on a page: who works and serves, what is down or was, what is stopped, which errors come."""

from collections import Counter
from datetime import date, datetime, timedelta

from calve.app import processes as _processes
from calve.app import view
from calve.app.pages.document import head
from calve.app.view import Json
from calve.app.wiring import App
from calve.model.access import NAMED_HALTS
from calve.model.record import rows_of
from calve.model.states import ProcessState

ERRORS = 5000
_ERROR_DAYS = 14.0
_FIRST_DAY = date(1970, 1, 1)
_OUTAGE_DAYS = 7.0
_FAILED = 1000
_LIVE = 1000
_LOOKED_HOURS = 1.0
_LOOKS = 1000
_SHOWN_FAILING = 20


def system(app: App) -> Json:
    document = head(app)
    store, registry = app.store, app.registry
    now = store.now()
    live = store.live(_LIVE)
    errors, complete = _errors(app, now)
    return document | {
        "workers": [
            view.worker_json(one)
            | {
                "used": sum(each.tasks.running for each in live if each.owner == one.worker.id),
                "leases": [
                    {"id": each.id, "until": view.time_json(each.lease_until)}
                    for each in live
                    if each.owner == one.worker.id
                ],
            }
            for one in _processes.workers(app, live)
        ],
        "servers": [view.plain_json(one) for one in registry.servers()],
        "breakers": [view.breaker_json(one) for one in store.breakers()],
        "outages": [
            view.plain_json(one) for one in registry.outages(now - timedelta(days=_OUTAGE_DAYS), limit=200)
        ],
        "halts": [view.plain_json(one) for one in store.halts() if one.kind not in NAMED_HALTS],
        "doctor": _doctor(app),
        "lookout": _lookout(app, now),
        "errors": errors,
        "errors_complete": complete,
        "versions": dict(Counter(one.version or "0.1.0" for one in store.workers())),
        "commands": {"doctor": "calve doctor", "worker": "calve worker"},
        "subjects": [],
    }


def _errors(app: App, now: datetime) -> tuple[list[Json], bool]:
    """By day of UTC and code: attempts and processes that failed; and whether these are all."""
    since = now - timedelta(days=_ERROR_DAYS)
    attempts = app.registry.failed_attempts(since, ERRORS)
    failed = app.registry.ends(since, state=ProcessState.FAILED, limit=_FAILED)
    counts = Counter((one.finished_at.date().isoformat(), one.code) for one in failed)
    for day, code, count in attempts:
        counts[(_FIRST_DAY + timedelta(days=day)).isoformat(), code] += count
    found = [{"day": day, "code": code, "count": count} for (day, code), count in sorted(counts.items())]
    return found, sum(count for _, _, count in attempts) < ERRORS and len(failed) < _FAILED


def _lookout(app: App, now: datetime) -> Json:
    """What was looked at outside for pages within the last hour, and what of it failed."""
    found = app.registry.sightings("", after=now - timedelta(hours=_LOOKED_HOURS), limit=_LOOKS)
    failing = [one for one in reversed(found) if one.error]
    return {
        "looks": len(found),
        "every_minutes": app.limits.look_minutes,
        "failing": [
            {
                "what": one.what,
                "subject": one.subject,
                "error": one.error,
                "tried_at": view.time_json(one.tried_at),
                "seen_at": view.time_json(one.seen_at),
            }
            for one in failing[:_SHOWN_FAILING]
        ],
        "failing_count": len(failing),
    }


def _doctor(app: App) -> Json | None:
    """What `doctor` found when it was last run through a server."""
    seen = app.registry.sighting("installation", "doctor")
    if seen is None or seen.seen_at is None:
        return None
    body = app.registry.sighting_body("installation", "doctor")
    return {"seen_at": view.time_json(seen.seen_at), "findings": rows_of(body[:1])}
