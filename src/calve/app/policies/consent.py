"""What people say of releases: that a policy may begin them, and that a partition comes back."""

import hashlib
import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from calve.app import view
from calve.app.policies import evaluation
from calve.app.policies.evaluation import Stood
from calve.app.policies.release_backup import backup_line, backup_of
from calve.app.policies.releases import ReleaseReach
from calve.app.view import Json
from calve.app.wiring import App
from calve.clickhouse.parts.partitions import id_among
from calve.control.client import Submitted, submit_once
from calve.control.ports import Store
from calve.model.access import Asked
from calve.model.errors import NotFoundError, RefusedError, UsageError
from calve.model.process import NewProcess, Process
from calve.model.states import ReleaseState
from calve.model.tier import RELEASE, Approval, Release
from calve.policy.policy import Policy
from calve.policy.release.drop import NAME as DROP
from calve.policy.release.drop import DropRequest
from calve.policy.release.plan import BACK
from calve.policy.release.undo import ReturnRequest
from calve.policy.stand import State


def policy_approve(app: App, name: str, asked: Asked, *, dry_run: bool = False) -> Json:
    """Allow a policy, as it is in this configuration, to move partitions of the tables that it was seen to have. Another
    rule, table or destination is asked for again."""
    policy = app.config.policy(name)
    if not policy.releases:
        raise UsageError(
            f"policy {name} releases nothing",
            code="not_releasing",
            hint=f'[policy.{name}] release = "quarantine"',
        )
    stood = evaluation.standing_now(app, policy)
    tables = {(one.table.identity, one.table.destination): one.table for one in stood if one.table.identity}
    if not tables:
        raise NotFoundError(
            f"policy {name} has seen no table yet",
            code="source_unseen",
            hint=f"calve policy run {name} --dry-run",
        )
    made = [] if dry_run else [
        app.registry.approve(
            Approval(
                what=RELEASE, hash=policy.hash, identity=identity, destination=destination, who=asked.who, policy=name
            ),
            asked,
        )
        for identity, destination in tables
    ]  # fmt: skip
    return {
        "policy": name,
        "hash": policy.hash,
        "dry_run": dry_run,
        "approved": [view.plain_json(one) for one in made],
        "tables": [{"source": one.source, "destination": one.destination} for one in tables.values()],
        "leave": [leaving(policy, one) for one in stood if leaving_at(policy, one) is not None],
    }


def policy_revoke(app: App, name: str, asked: Asked) -> Json:
    """Withdraw what was approved of a policy, by whatever rules it had then. What was announced before may still be carried
    out; nothing after it is, and what is half-way goes back."""
    standing = [one for one in app.registry.approvals() if (one.what, one.policy) == (RELEASE, name)]
    if not standing:
        policy = app.config.policy(name)
        raise NotFoundError(
            f"nothing is approved of policy {name}",
            code="not_approved",
            hint=f"calve policy approve {name} --dry-run" if policy.releases else f"calve policy show {name}",
        )
    ended = [one for one in standing if app.registry.revoke_approval(one.seq, asked)]
    return {"policy": name, "revoked": [view.plain_json(one) for one in ended]}


def leaving_at(policy: Policy, one: Stood) -> Any:
    """When a partition leaves its table, if nothing else happens; None for never."""
    waits = one.standing.state is State.GRACE or one.standing.code == "not_approved"
    proven_at = one.facts.release.proven_at
    return proven_at + policy.release_after if waits and proven_at is not None else None


def leaving(policy: Policy, one: Stood) -> Json:
    return {
        "source": one.table.source,
        "partition": one.partition.id,
        "rows": one.partition.rows,
        "bytes": one.partition.bytes,
        "at": view.time_json(leaving_at(policy, one)),
    }


def policy_undo(app: App, store: Store, table: str, partition: str, *, force: bool = False) -> Submitted:
    """Queue the return of a partition from quarantine, or join the one under way. NotFoundError where this store moved
    none."""
    release = _quarantined(app, table, partition)
    reach = ReleaseReach(app)
    of = reach.plan_of(release.process_id).request
    moved = app.store.process(release.process_id)
    request = ReturnRequest(release=release.process_id, of=of, insist=force)
    new = request.process(
        needs=[app.source(of.source).need],
        locks=[lock.name for lock in moved.locks],
        deadline_seconds=app.limits.process_hours * 3600,
    )
    return submit_once(
        store,
        lambda process: process.kind == BACK and process.request == new.request,
        lambda joined: [] if joined else [new],
    )


def policy_drop(
    app: App, store: Store, table: str, partitions: Sequence[str], asked: Asked, *, approve: str = ""
) -> Json:
    """The plan of dropping partitions from quarantine, and its hash. With that hash as `approve`, it is allowed and begun."""
    drops = [_drop(app, _quarantined(app, table, one)) for one in dict.fromkeys(partitions)]
    plan = [
        {
            "release": release.process_id,
            "partition": release.partition,
            "rows": release.rows,
            "sums": release.sums,
            "place": release.place,
            "destination": release.destination,
            "backup": drop.backup or None,
            "grace_seconds": drop.grace_seconds,
        }
        for release, drop in drops
    ]
    hash = hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()[:16]
    if approve not in ("", hash):
        raise RefusedError(
            f"the plan is not {approve!r}: its hash is {hash}",
            code="plan_differs",
            hint=f"calve policy drop {shlex.join([table, *partitions])}",
        )
    begun: list[Process] = []
    if approve:
        new = []
        for release, drop in drops:
            approval = Approval(
                what=DROP,
                hash=hash,
                identity=release.identity,
                destination=release.destination,
                who=asked.who,
            )
            # If we die here, it is allowed, and nothing has begun.
            app.registry.approve(approval, asked)
            new.append(_process(app, release, replace(drop, hash=hash)))
        made = submit_once(
            store,
            lambda process: process.kind == DROP and process.request in {one.request for one in new},
            lambda joined: [one for one in new if one.request not in {each.request for each in joined}],
        )
        begun = list(made.processes)
    return {"hash": hash, "plan": plan, "processes": [view.process_json(one) for one in begun]}


def _drop(app: App, release: Release) -> tuple[Release, DropRequest]:
    """RefusedError while it is not due, or the lake would have the only copy and nobody accepted that."""
    plan = ReleaseReach(app).plan_of(release.process_id)
    policy = app.config.policy(plan.request.policy)
    due = dropped_from(policy, release)
    where = f"partition {release.partition} of {plan.request.name}"
    if due is None or app.store.now() < due:
        raise RefusedError(
            f"{where} stays in quarantine until {view.time_json(due)}",
            code="grace",
            hint=f"[policy.{policy.name}] release_after",
        )
    backup = "" if policy.only_copy else backup_of(app, plan, release)
    if not backup and not policy.only_copy:
        raise RefusedError(
            f"no backup has {where}, and the lake would have the only copy",
            code="no_backup",
            hint=f'{backup_line(release)}; or [policy.{policy.name}] only_copy = "accepted"',
        )
    request = DropRequest(
        release=release.process_id,
        of=plan.request,
        hash="",
        grace_seconds=policy.release_after.total_seconds(),
        backup=backup,
    )
    return release, request


def dropped_from(policy: Policy, release: Release) -> datetime | None:
    """From when on a person may drop it."""
    return release.settled_at and release.settled_at + policy.release_after


def _process(app: App, release: Release, request: DropRequest) -> NewProcess:
    moved = app.store.process(release.process_id)
    return request.process(
        needs=[app.source(request.of.source).need],
        locks=[lock.name for lock in moved.locks],
        deadline_seconds=app.limits.process_hours * 3600,
    )


def _ended(release: Release, where: str, table: str) -> RefusedError:
    """Of one that this store released, and that is not in quarantine."""
    if release.state in (ReleaseState.LOST, ReleaseState.DROPPED):
        lost = release.state is ReleaseState.LOST
        return RefusedError(
            f"{where} {'is gone' if lost else 'was dropped'} from quarantine, and only the lake is known to have its rows",
            code="released_rows_missing" if lost else "not_in_quarantine",
            hint=f"calve untier {shlex.quote(table)} {shlex.quote(release.partition)} brings them back from there",
        )
    return RefusedError(
        f"{where} is not in quarantine: what process {release.process_id} moved is back in the table",
        code="not_in_quarantine",
        hint=f"calve policy explain {shlex.quote(table)} {shlex.quote(release.partition)}",
    )


def _quarantined(app: App, table: str, partition: str) -> Release:
    """The last release of a partition, named by its id or its value."""
    name = app.table(table)
    source = name.source or app.config.default_source
    with app.source(source).visit() as session:
        info = session.describe(name.database, name.table)
        known = app.registry.releases(info.identity)
        partition = id_among(session, info, partition, {one.partition for one in known}) or partition
    found = [one for one in known if one.partition == partition]
    here = [one for one in found if one.state not in (ReleaseState.RETURNED, ReleaseState.LOST)]
    if not here and found:
        raise _ended(found[-1], f"partition {partition} of {source}:{name.database}.{name.table}", table)
    if not here:
        raise NotFoundError(
            f"partition {partition} of {source}:{name.database}.{name.table} was not released by this store",
            code="not_released",
            hint=f"calve policy explain {shlex.quote(table)} {shlex.quote(partition)}",
        )
    release = here[-1]
    if release.state is ReleaseState.DROPPED:
        raise _ended(release, f"partition {partition} of {source}:{name.database}.{name.table}", table)
    if release.state not in (ReleaseState.QUARANTINED, ReleaseState.RETURNING):
        raise RefusedError(
            f"partition {partition} of {name} is {release.state}",
            code="not_in_quarantine",
            hint=f"calve show {release.process_id}",
        )
    return release
