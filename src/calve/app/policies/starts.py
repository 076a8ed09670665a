"""Policies at work: a worker looks on an interval, evaluates, and queues exports, releases and proofs as they are due.

Of many workers one looks; the store refuses what was started before or is more than a limit allows. An export of a
policy is an ordinary process; what it cannot export it says when it is planned.
"""

from collections.abc import Sequence

from calve.app.destination import parse_destination
from calve.app.exports import export_request
from calve.app.policies import approvals
from calve.app.policies.evaluation import Stood, evaluate
from calve.app.policies.look import look
from calve.app.policies.proofs import prove
from calve.app.policies.views import keep_views
from calve.app.values import Selection
from calve.app.wiring import App
from calve.clickhouse.sql.tokens import TableName
from calve.export.request import ExportOptions
from calve.export.submit import new_process, of_partition
from calve.model.access import Asked
from calve.model.errors import LockedError, RefusedError
from calve.model.process import NewProcess, Process, Start, Starts
from calve.model.tier import POLICY_HALT
from calve.policy.calendar import local_day
from calve.policy.policy import Policy
from calve.policy.release.plan import NAME, ReleaseRequest
from calve.policy.stand import STARTS, NextAction


def tick(app: App, policy: Policy) -> list[Process]:
    """Look if it is time, and start what is due; what was started."""
    looks = look(app, policy, again=policy.look_every)
    if looks is None or is_paused(app, policy):
        return []
    keep_views(app, policy, looks)
    stood = evaluate(app, policy, looks)
    approvals.note(app, policy, stood)
    begun: list[Process] = []
    if policy.window is None or policy.window.is_open(app.store.now()):
        begun = start(app, policy, stood)
    return begun + prove(app, policy, stood)


def is_paused(app: App, policy: Policy) -> bool:
    return any(one.kind == POLICY_HALT and one.source in ("", policy.name) for one in app.store.halts())


def start(app: App, policy: Policy, stood: Sequence[Stood]) -> list[Process]:
    """Queue the exports and releases that are due, oldest first, within the limits. A run takes no more once it has begun."""
    now = app.store.now()
    day = local_day(now, policy.zone).isoformat()
    live, spent = app.store.started(policy.name, day)
    if live:
        return []
    begun: list[Process] = []
    for one in stood:
        if one.standing.next not in STARTS:
            continue
        if len(begun) == policy.partitions_per_run:
            break
        if policy.bytes_per_day and spent + one.partition.bytes > policy.bytes_per_day:
            continue  # a smaller one may still fit
        process = begin(app, policy, one, day)
        if process is not None:
            begun.append(process)
            spent += one.partition.bytes
    return begun


def begin(app: App, policy: Policy, one: Stood, day: str) -> Process | None:
    """None where another was first, or the limits were reached meanwhile."""
    table, action = one.table, one.standing.next
    assert action is not None
    new = (
        _release(app, policy, one)
        if action is NextAction.RELEASE
        else _export_process(app, policy, one, action)
    )
    item = Start(
        policy=policy.name,
        hash=policy.hash,
        action=action.value,
        identity=table.identity,
        partition=one.partition.id,
        destination=table.destination,
        content=one.partition.content,
        attempt=one.attempt,
        bytes=one.partition.bytes,
        day=day,
        process_id=new.id,
    )
    starts = Starts(items=(item,), at_once=policy.partitions_per_run, bytes_a_day=policy.bytes_per_day)
    asked = Asked(who=f"policy {policy.name}", verb=new.kind, subject=table.source)
    try:
        # If we die here, the process and its start are there, or neither.
        return app.store.submit([new], asked=asked, starts=starts)[0]
    except LockedError:
        return None  # somebody exports it by hand
    except RefusedError as error:
        if error.code not in ("already_started", "over_limit"):
            raise
        return None


def _export_process(app: App, policy: Policy, one: Stood, action: NextAction) -> NewProcess:
    table = one.table
    name = TableName(
        source=policy.source or app.config.default_source, database=table.database, table=table.table
    )
    selection = Selection(partitions=(one.partition.id,))
    options = ExportOptions(force=action is NextAction.REPLACE, new_parts=action is NextAction.APPEND)
    request = export_request(app, str(name), table.destination, selection, options)
    return new_process(app, of_partition(request, one.partition.id), table.identity)


def _release(app: App, policy: Policy, one: Stood) -> NewProcess:
    """With the locks of an export of it, so that the two never meet."""
    table, address = one.table, parse_destination(one.table.destination, app.config)
    export = _export_process(app, policy, one, NextAction.EXPORT)
    request = ReleaseRequest(
        policy=policy.name,
        hash=policy.hash,
        export=one.partition.process,
        source=policy.source or app.config.default_source,
        database=table.database,
        table=table.table,
        identity=table.identity,
        partition=one.partition.id,
        destination=table.destination,
        catalog=address.catalog,
        identifier=address.identifier,
        storage=address.storage,
    )
    return request.process(
        NAME,
        needs=[app.source(request.source).need],
        locks=[lock.name for lock in export.locks],
        deadline_seconds=app.limits.process_hours * 3600,
    )
