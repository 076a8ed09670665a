"""Policies as documents: what each does, where its partitions stand, why one does, and what comes in the next days.

All but `run` is answered from the store: what was last seen, with its age. Nothing shown here decides anything.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from calve.app import view
from calve.app.policies import approvals, evaluation, starts
from calve.app.policies.evaluation import Stood
from calve.app.policies.guard import standing
from calve.app.policies.look import WHAT, TableLook, last_look, look
from calve.app.policies.views import KeptView, keep_views, kept_views
from calve.app.processes import source_table
from calve.app.view import Json
from calve.app.wiring import App
from calve.model.access import Asked, Halt
from calve.model.errors import NotFoundError, RefusedError
from calve.model.tier import POLICY_HALT
from calve.policy.calendar import local_day
from calve.policy.policy import Policy
from calve.policy.stand import STARTS, State, stand

FORECAST_DAYS = 30
_ASIDE = (State.CHANGED, State.HELD, State.BLOCKED)
_MOST = 200
# What a person can do about a partition that stands aside.
HINTS = {
    "source_unseen": "no look succeeded lately: run a worker whose configuration has this policy, or `calve policy run`",
    "clock_skew": "the clocks of the source and the store differ by more than five minutes: set them",
    "shared_destination": "another table of the policy has the same destination: put a sign between {database} and {table} in"
    " `to` that no name has, or name the tables apart",
    "two_policies": "two policies export this table to one destination: remove one of them",
    "mutation": "an ALTER has not reached every part: it is exported once that is done",
    "no_longer_there": "its rows are gone from the destination: `calve export … --force` puts them back",
    "late_rows": "rows came after the export: export it with --force, or set on_late_rows",
    "hold": "somebody holds its rows: `calve hold list` says who and why; `calve hold release` ends it",
    "released": "rows came after the partition was released, which is never replaced: `calve export … --new-parts` adds"
    " them, or set on_late_rows = 'append'",
    "mixed_merge": "a merge put old and new rows into one part: export it with --force",
    "parts_came_back": "a part that was exported is there again: compare before you use --force",
    "blocks_unknown": "the export does not say which blocks it covers: export it with --force once",
    "rows_gone": "rows that were exported are gone at the source, or may be: compare before you use --force",
    "proof_failed": "the destination does not have the source's rows: `calve verify ID --deep` says which columns differ",
    "unknown_process": "another store exported it, which can prove it: `calve verify` there",
    "not_approved": "its release waits for a person: `calve policy approve NAME` says what leaves, and allows it",
    "came_back": "it left its table, differed from the destination and went back: `calve policy explain` says why. Export it"
    " again with --force",
    "undone": "a person brought it back; export it again with --force, and it may leave again",
    "halfway": "its release failed, and its rows did not come back: `calve doctor` says why. `calve policy undo … --force` brings them"
    " back, with what a mutation has deleted since",
    "released_elsewhere": "another store released it, which can bring it back",
    "released_rows_missing": "rows that left the table are not where they should be: `calve policy explain`, `calve doctor`",
    "not_by_value": "its rows cannot be compared as they are stored, so they stay; the proof says which columns",
    "newest_partition": "the newest partition of a table stays",
    "not_over": "its time is not over",
    "no_time_key": "its partition key gives no time, so it stays",
    "cyclic_key": "its partition key repeats, so it stays",
    "no_bounds": "its value is not a time after 1970, so it stays",
    "gone_at_source": "the source no longer has it",
    "no_view": "the view of the policy is not there yet, so it stays: `calve policy show` says why",
    "over_limit": "it has more bytes than bytes_per_day allows in a day: raise it, or export it by hand",
}


def policy_list(app: App) -> list[Json]:
    found = []
    for policy in app.config.policies:
        looks = last_look(app, policy)
        found.append(summary(app, policy, looks, evaluation.evaluate(app, policy, looks)))
    return found


def summary(app: App, policy: Policy, looks: Sequence[TableLook], stood: Sequence[Stood]) -> Json:
    seen = app.registry.sighting(policy.name, WHAT)
    comes = _forecast(policy, stood, app.store.now())
    return {
        "name": policy.name,
        "source": f"{policy.source or app.config.default_source}:{policy.tables}",
        "to": policy.to,
        "paused": starts.is_paused(app, policy),
        "tables": len(looks),
        "tables_failed": sum(bool(one.error) for one in looks),
        "states": dict(Counter(one.standing.state.value for one in stood)),
        "next": comes[0] if comes else None,
        "seen_at": view.time_json(seen.seen_at) if seen else None,
        "error": seen.error if seen else "",
    }


def policy_show(app: App, name: str) -> Json:
    policy = app.config.policy(name)
    looks = last_look(app, policy)
    return shown(app, policy, looks, evaluation.evaluate(app, policy, looks))


def shown(app: App, policy: Policy, looks: Sequence[TableLook], stood: Sequence[Stood]) -> Json:
    """Tables that could not be looked at, or have no partitions, are shown as well."""
    now = app.store.now()
    live, spent = app.store.started(policy.name, local_day(now, policy.zone).isoformat())
    halt = next(
        (one for one in app.store.halts() if one.kind == POLICY_HALT and one.source == policy.name), None
    )
    guarded = {one.destination: one.summary for one in standing(app)}
    kept = kept_views(app, policy)
    return summary(app, policy, looks, stood) | {
        "hash": policy.hash,
        "export_after_seconds": policy.export_after.total_seconds(),
        "quiet_seconds": policy.quiet.total_seconds(),
        "on_late_rows": policy.on_late_rows.value,
        "verify": policy.verify.value,
        "window": str(policy.window) if policy.window else "",
        "zone": policy.zone,
        "partitions_per_run": policy.partitions_per_run,
        "bytes_per_day": policy.bytes_per_day or None,
        "release": policy.release.value,
        "release_after_seconds": policy.release_after.total_seconds(),
        "look_every_seconds": policy.look_every.total_seconds(),
        "halt": view.plain_json(halt) if halt else None,
        "under_way": live,
        "bytes_today": spent,
        "of_tables": [
            {
                "source": one.source,
                "destination": one.destination,
                "looked_at": view.time_json(one.looked_at),
                "error": one.error,
                "no_time_key": one.key,
                "partitions": len(one.partitions),
                "released": guarded.get(one.destination),
                "view": _kept_json(policy, one, kept),
            }
            for one in looks
        ],
        "aside": [_partition(policy, one) for one in stood if is_aside(policy, one)][:_MOST],
        "forecast": _forecast(policy, stood, now),
    }


def _kept_json(policy: Policy, table: TableLook, kept: Mapping[str, KeptView]) -> Json | None:
    """The view that the policy keeps over a table. Without `made_at` there is none yet."""
    if not policy.view:
        return None
    one = kept.get(table.source)
    return {
        "name": policy.view_of(table.database, table.table),
        "made_at": view.time_json(one.made_at) if one else None,
        "cold": len(one.cold) if one else 0,
        "error": one.error if one else "",
    }


def is_aside(policy: Policy, one: Stood) -> bool:
    return one.standing.state in _ASIDE or bool(code_of(policy, one))


def code_of(policy: Policy, one: Stood) -> str:
    """Of its standing, or that it is too much for one day."""
    starts = one.standing.next in STARTS
    if starts and policy.bytes_per_day and one.partition.bytes > policy.bytes_per_day:
        return "over_limit"
    return one.standing.code


def _partition(policy: Policy, one: Stood) -> Json:
    code = code_of(policy, one)
    return {
        "source": one.table.source,
        "destination": one.table.destination,
        "partition": one.partition.id,
        "value": one.partition.value,
        "state": one.standing.state.value,
        "code": code,
        "hint": HINTS.get(code, "").replace("NAME", policy.name),
        "until": view.time_json(one.standing.until),
        "next": one.standing.next.value if one.standing.next else None,
        "process": one.facts.live or one.partition.process or None,
        "bytes": one.partition.bytes,
        "rows": one.partition.rows,
        "holds": [
            {"id": hold.id, "who": hold.who, "reason": hold.reason, "until": view.time_json(hold.until_at)}
            for hold in one.holds
        ],
    }


def _forecast(policy: Policy, stood: Sequence[Stood], now: datetime) -> list[Json]:
    """What begins in the next days if nothing else happens: `stand` at the time when each becomes due."""
    end = now + timedelta(days=FORECAST_DAYS)
    found = []
    for one in stood:
        at, standing = now, one.standing
        if (
            standing.next is None
            and standing.until is not None
            and standing.state in (State.HOT, State.CHANGED, State.GRACE)
        ):
            at = max(standing.until, now)
            standing = stand(replace(one.facts, now=at, looked_at=at))
        if standing.next in STARTS and code_of(policy, one) != "over_limit":
            at = policy.window.opens_at(at) if policy.window else at
            if at <= end:
                found.append((at, one, standing.next))
    found.sort(key=lambda item: (item[0], item[1].order))
    return [
        {
            "date": local_day(at, policy.zone).isoformat(),
            "at": view.time_json(at),
            "action": action.value,
            "source": one.table.source,
            "partition": one.partition.id,
            "bytes": one.partition.bytes,
        }
        for at, one, action in found
    ]


def policy_explain(app: App, table: str, partition: str) -> list[Json]:
    """One answer for each policy that names the table. NotFoundError where none saw the partition."""
    wanted, found = source_table(app, table), []
    for policy in app.config.policies:
        for one in evaluation.standing_now(app, policy):
            if one.table.source == wanted and partition in (one.partition.id, one.partition.value):
                found.append(_partition(policy, one) | {"policy": policy.name, "facts": _facts(one)})
    if not found:
        raise NotFoundError(
            f"no policy has seen partition {partition} of {wanted}",
            code="no_partition",
            hint="`calve policy list` shows the policies and when they last looked",
        )
    return found


def _facts(one: Stood) -> Json:
    facts, part = one.facts, one.partition
    failure = facts.failure
    return {
        "now": view.time_json(facts.now),
        "looked_at": view.time_json(facts.looked_at),
        "skew_seconds": facts.skew.total_seconds(),
        "covers_from": view.time_json(part.lower),
        "closed_at": view.time_json(facts.closed_at),
        "no_time_key": one.table.key,
        "changed_at": view.time_json(facts.changed_at),
        "mutating": facts.mutating,
        "at_source": facts.there,
        "exported_by": part.process or None,
        "unchanged": part.unchanged if part.process else None,
        "only_grew": part.grows if part.process else None,
        "missing": part.missing,
        "released": part.released,
        "proven": facts.export.proven if facts.export else None,
        "proof": view.plain_json(one.proof) if one.proof else None,
        "released_state": facts.release.state or None,
        "released_by": facts.release.live or None,
        "came_back": facts.release.error or None,
        "release_approved": facts.release.approved if one.facts.policy.releases else None,
        "proving": (facts.export.proving or None) if facts.export else None,
        "held_by": ", ".join(f"{hold.id} of {hold.who}: {hold.reason}" for hold in one.holds) or None,
        "attempts": one.attempt - 1,
        "failed": {"code": failure.code, "at": view.time_json(failure.at)} if failure else None,
    }


def policy_run(app: App, name: str, *, dry_run: bool = False) -> Json:
    """Look now and start what is due, whatever the window says; limits and a pause hold."""
    policy = app.config.policy(name)
    looks = look(app, policy, again=timedelta())
    if looks is None:
        raise RefusedError(
            f"a look at the tables of policy {name} is under way",
            code="look_under_way",
            hint=f"it is evaluated after that; or repeat: calve policy run {name}",
        )
    stood = evaluation.evaluate(app, policy, looks)
    approvals.note(app, policy, stood)
    if not dry_run and starts.is_paused(app, policy):
        raise RefusedError(f"policy {name} is paused", code="paused", hint=f"calve policy resume {name}")
    if not dry_run:
        keep_views(app, policy, looks)
    begun = [] if dry_run else starts.start(app, policy, stood)
    due = [one for one in stood if one.standing.next in STARTS]
    return {
        "policy": name,
        "dry_run": dry_run,
        "due": [_partition(policy, one) for one in due],
        "started": [view.served_json(one) for one in begun],
        "states": dict(Counter(one.standing.state.value for one in stood)),
        "aside": [_partition(policy, one) for one in stood if is_aside(policy, one)][:_MOST],
    }


def policy_pause(app: App, name: str, reason: str, asked: Asked) -> Json:
    app.config.policy(name)
    return view.plain_json(
        app.registry.put_halt(Halt(kind=POLICY_HALT, source=name, who=asked.who, reason=reason), asked)
    )


def policy_resume(app: App, name: str, asked: Asked) -> Json:
    return {"name": name, "resumed": app.registry.lift_halt(POLICY_HALT, name, asked)}
