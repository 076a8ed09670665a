"""What a schedule deletes: its own backups that its rules do not keep, and never one that somebody still needs.

A backup that a proof found damaged counts for no rule and stays: it may be all there is of some rows. So does one of
which a table is held, and one that a process reads. Parts that other backups share stay in any case.
"""

from datetime import datetime

from calve.app.backups import requests
from calve.app.policies.holds import matching
from calve.app.wiring import App
from calve.archive import backups as archived
from calve.archive.manifest import Manifest
from calve.backup import deletion
from calve.backup.deletion import Keep
from calve.model.access import Asked, AuditOutcome
from calve.model.errors import CalveError, RefusedError
from calve.model.process import GuardedTable, ProcessId
from calve.model.tier import Hold
from calve.policy.calendar import zone_of
from calve.policy.schedule import Schedule

Json = dict[str, object]
_ALL = f"{1:.0%} of the data"  # as a proof names it: a sample takes nothing back


def prune(app: App, schedule: Schedule) -> Json:
    """Delete, oldest first, and take up deletes that did not come to their end; names of what was kept and deleted."""
    location = app.backups()
    own = [
        one.manifest
        for one in archived.listed(location)
        if one.manifest and one.manifest.schedule == schedule.name
    ]
    whole = [one for one in own if not _is_damaged(app, one)]
    zone = zone_of(schedule.clock.zone)
    standing = deletion.kept(
        whole,
        lambda one: datetime.fromisoformat(one.created_at).astimezone(zone),
        Keep(**dict(schedule.keep)),
    )
    holds = app.registry.holds()
    deleted, spared = [], [one.name for one in own if one not in whole]
    for one in whole:
        if one in standing:
            continue
        if _is_held(one, holds) or not _delete(app, schedule, one.name):
            spared.append(one.name)
        else:
            deleted.append(one.name)
    for key in deletion.unfinished(location):
        deletion.sweep(location, key)
    return {"kept": [one.name for one in standing], "deleted": deleted, "spared": spared}


def _is_damaged(app: App, one: Manifest) -> bool:
    """As a proof said, and none that read all of it since. Of a backup that another store made nothing is known here."""
    for proof in app.registry.proofs([ProcessId(one.process_id)]):  # newest first
        if not proof.ok or proof.depth == _ALL:
            return not proof.ok
    return False


def _is_held(one: Manifest, holds: list[Hold]) -> bool:
    """Any of its tables, or any partition that it has."""
    for table in one.tables:
        guarded = GuardedTable(
            identity=table.identity, uuid=table.uuid, name=f"{one.source}:{table.database}.{table.name}"
        )
        partitions = {part.partition_id for part in table.parts} or {""}
        if any(matching(holds, guarded, partition) for partition in partitions):
            return True
    return False


def _delete(app: App, schedule: Schedule, name: str) -> bool:
    """False for one that a process reads."""
    asked = Asked(who=schedule.subject, verb="backup_delete", subject=name)
    try:
        requests.refuse_used(app, name)
    except RefusedError:
        return False
    app.registry.audit(asked, AuditOutcome.ASKED)
    try:
        # If we die here, it is marked or not: the next prune goes on, and nobody reads what is marked.
        deletion.delete(app.backups(), name)
    except CalveError as error:
        app.registry.audit(asked, AuditOutcome.FAILED, error.message)
        raise
    app.registry.audit(asked, AuditOutcome.DONE)
    return True
