"""One policy as its page shows it: where its partitions stand, what waits for a person, what left its table, what comes.

Answered from the store: what was last seen. Nothing shown here decides anything.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from calve.app import view
from calve.app.policies import evaluation
from calve.app.policies.consent import dropped_from, leaving, leaving_at
from calve.app.policies.documents import FORECAST_DAYS, HINTS, code_of, is_aside, shown
from calve.app.policies.evaluation import Stood
from calve.app.policies.look import TableLook, last_look
from calve.app.view import Json
from calve.app.wiring import App
from calve.model.states import ReleaseState
from calve.model.tier import Release
from calve.policy.calendar import local_day
from calve.policy.policy import Policy

MOST = 200  # of each list
_LEFT = frozenset(
    {ReleaseState.QUARANTINED, ReleaseState.DROPPING, ReleaseState.DROPPED, ReleaseState.RETURNING}
)


def policy_document(app: App, policy: Policy) -> Json:
    looks = last_look(app, policy)
    stood = evaluation.evaluate(app, policy, looks)
    document = shown(app, policy, looks, stood)
    leave = [one for one in stood if leaving_at(policy, one) is not None]
    left = list(_left(app, policy, _tables(stood)))
    aside = Counter(
        (one.standing.state.value, code_of(policy, one)) for one in stood if is_aside(policy, one)
    )
    return document | {
        "why_aside": [
            {"state": state, "code": code, "hint": HINTS.get(code, ""), "count": count}
            for (state, code), count in aside.most_common()
        ],
        "only_copy": policy.only_copy,
        "view": policy.view,
        "asks": _asks(policy, stood),
        "aside_total": aside.total(),
        "leave": [leaving(policy, one) for one in leave[:MOST]],
        "leave_total": len(leave),
        "left": left[:MOST],
        "left_total": len(left),
        "forecast": document["forecast"][:MOST],
        "forecast_total": len(document["forecast"]),
        "days": _days(policy, document["forecast"], app.store.now()),
    }


def _asks(policy: Policy, stood: Sequence[Stood]) -> bool:
    """Whether a person has to approve, before anything leaves one of its tables."""
    return policy.releases and any(not one.facts.release.approved for one in stood)


def _tables(stood: Sequence[Stood]) -> list[TableLook]:
    return list({one.table.source: one.table for one in stood}.values())


def _left(app: App, policy: Policy, tables: Sequence[TableLook]) -> list[Json]:
    """The partitions that are out of their tables, those that left first as the first."""
    now, found = app.store.now(), list[tuple[Release, TableLook]]()
    for table in tables:
        last = {one.partition: one for one in app.registry.releases(table.identity, table.destination)}
        found += [(one, table) for one in last.values() if one.state in _LEFT]
    found.sort(key=lambda item: (item[0].settled_at or now, item[0].partition))
    return [_out(policy, one, table, now) for one, table in found]


def _out(policy: Policy, one: Release, table: TableLook, now: datetime) -> Json:
    stays_until = dropped_from(policy, one)
    quarantined = one.state is ReleaseState.QUARANTINED
    return {
        "source": table.source,
        "destination": table.destination,
        "partition": one.partition,
        "state": one.state.value,
        "rows": one.rows,
        "process": one.process_id,
        "place": one.place,
        "backup": one.backup,
        "settled_at": view.time_json(one.settled_at),
        "stays_until": view.time_json(stays_until),
        "may_be_dropped": quarantined and stays_until is not None and stays_until <= now,
    }


def _days(policy: Policy, forecast: Sequence[Json], now: datetime) -> list[Json]:
    """How much begins on each of the next days, in the policy's zone."""
    found = {
        local_day(now + timedelta(days=ahead), policy.zone).isoformat(): {"starts": 0, "bytes": 0}
        for ahead in range(FORECAST_DAYS + 1)
    }
    for one in forecast:
        if one["date"] in found:
            found[one["date"]]["starts"] += 1
            found[one["date"]]["bytes"] += one["bytes"]
    return [{"date": day, **of} for day, of in found.items()]
