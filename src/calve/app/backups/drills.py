"""Proving backups: what a schedule reads back and restores after a backup was made, and a drill that a person asks for."""

from collections.abc import Sequence
from datetime import datetime

from calve.app.backups.requests import BackupReach
from calve.app.backups.schedules import DRILLS, begin_once, may_repeat, start_of, starts_of
from calve.app.wiring import App
from calve.archive import backups as archived
from calve.backup.drill import DrillKind
from calve.backup.drill_plan import NAME, DrillRequest
from calve.backup.request import BackupRequest
from calve.control.client import Submitted, submit_once
from calve.control.ports import Store
from calve.model.access import Proof
from calve.model.process import NewProcess, Process, Start
from calve.model.states import ProcessState
from calve.policy.schedule import Schedule

READ, RESTORE = "verify", "drill"  # actions


class DrillReach(BackupReach):
    """The application as drills see it."""

    def record_proof(self, proof: Proof) -> None:
        self._app.store.process(proof.process_id)
        self._app.registry.record_proof(proof)


def drill_kind(app: App) -> DrillKind:
    return DrillKind(DrillReach(app))


def drill(app: App, store: Store, name: str, *, restore_bytes: int) -> Submitted:
    """Queue a drill of one backup, or join the one that is under way."""
    manifest = archived.find(app.backups(), name)
    request = DrillRequest(
        backup=name,
        backup_process=manifest.process_id,
        location=app.config.backup_url,
        restore_bytes=restore_bytes,
    )

    def missing(joined: object) -> list[NewProcess]:
        return [] if joined else [_process(app, request)]

    return submit_once(store, lambda one: one.kind == NAME and one.request == request.to_json(), missing)


def _process(app: App, request: DrillRequest) -> NewProcess:
    return request.process(deadline_seconds=app.limits.process_hours * 3600)


def prove(app: App, schedule: Schedule, made: Process, now: datetime) -> list[Process]:
    """Queue what is to be read back of the newest backup, and the drill, as they are due."""
    begun: list[Process | None] = []
    if schedule.verify:
        read = starts_of(app, schedule, made.id)
        if not read or _is_unanswered(app, read, now):
            begun.append(_begin(app, schedule, made, READ, made.id, len(read) + 1))
    if schedule.drill_every:
        drills = starts_of(app, schedule, DRILLS)
        last = drills[0].made_at if drills else None
        if last is None or now - last >= schedule.drill_every or _is_unanswered(app, drills, now):
            of_this = [one for one in drills if one.content == made.id]
            begun.append(_begin(app, schedule, made, RESTORE, DRILLS, len(of_this) + 1))
    return [one for one in begun if one]


def is_read_back(app: App, schedule: Schedule, made: Process) -> bool:
    """Whether a backup was found whole, as far as the schedule says."""
    if not schedule.verify:
        return True
    starts = starts_of(app, schedule, made.id)
    return any(
        one.state is ProcessState.COMPLETED for one in app.store.known([one.process_id for one in starts])
    )


def _is_unanswered(app: App, starts: Sequence[Start], now: datetime) -> bool:
    """Whether the last one ended without saying if the backup is whole, and it is time to ask again."""
    last = next(iter(app.store.known([starts[0].process_id])), None)
    times = sum(one.content == starts[0].content for one in starts)
    answered = last is not None and last.error is not None and last.error.code == "drill_failed"
    return may_repeat(last, times, now) and not answered


def _begin(
    app: App, schedule: Schedule, made: Process, action: str, what: str, attempt: int
) -> Process | None:
    request = DrillRequest(
        backup=BackupRequest.from_json(made.request).name,
        backup_process=made.id,
        location=app.config.backup_url,
        read_share=schedule.verify if action == READ else 0.0,
        restore_bytes=schedule.drill_bytes if action == RESTORE else 0,
        schedule=schedule.name,
    )
    new = _process(app, request)
    item = start_of(app, schedule, new.id, action=action, what=what, attempt=attempt, content=made.id)
    return begin_once(app, schedule, new, item)
