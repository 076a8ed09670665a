"""The view that a policy keeps over each of its tables and that table's lake: the key `view`.

It is made by what `calve view` does, and again when what it stands on is another, or a day is over. What was made is kept in
the store, by a claim, so that one worker does it. Partitions that leave their table are turned by their own process; while
one does that, nothing is done here.
"""

import hashlib
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from calve.app.policies.look import LOOK_SECONDS, TableLook
from calve.app.policies.tier import view_create
from calve.app.wiring import App
from calve.clickhouse.sql.tokens import TableName
from calve.model.errors import CalveError, DamagedError
from calve.model.process import ProcessQuery
from calve.model.record import Record
from calve.model.seen import Sighting
from calve.model.states import PROCESS_LIVE
from calve.policy.policy import Policy
from calve.policy.release.plan import BACK, NAME
from calve.policy.untier import plan as untier_plan

WHAT = "policy_view"
_CHECKED = timedelta(
    days=1
)  # a view that is made again is counted again, and lets go of an old state of the lake
_RETRIED = timedelta(hours=1)
_TURNING = (NAME, BACK, untier_plan.NAME)


@dataclass(frozen=True, kw_only=True)
class KeptView(Record):
    table: str  # as processes name it
    view: str
    tried_at: datetime
    made_at: datetime | None = None  # None: never
    over: str = ""  # a digest of what the last try made it over
    cold: tuple[str, ...] = ()
    error: str = ""  # of the last try


def kept_views(app: App, policy: Policy) -> dict[str, KeptView]:
    """What was last made, by table."""
    seen = app.registry.sighting(policy.name, WHAT)
    if seen is None:
        return {}
    try:
        texts = app.registry.sighting_body(policy.name, WHAT, limit=max(seen.pieces, 1))
        return {one.table: one for one in map(KeptView.from_json, texts)}
    except DamagedError:
        return {}  # of another version: made again


def keep_views(app: App, policy: Policy, looks: Sequence[TableLook]) -> None:
    """Make what is missing or out of date. What cannot be made says why, and stops nothing but releases."""
    if not policy.view or not app.registry.claim_look(
        policy.name, WHAT, again_seconds=0.0, lease_seconds=LOOK_SECONDS
    ):
        return
    before = kept_views(app, policy)
    found = [_kept(app, policy, one, before.get(one.source)) for one in looks]
    bodies = [one.to_json() for one in found if one is not None]
    sighting = Sighting(
        subject=policy.name, what=WHAT, summary=f'{{"views": {len(bodies)}}}', seen_by=socket.gethostname()
    )
    # If we die here, the views are there, and are made once more.
    app.registry.put_sighting(sighting, bodies)


def _kept(app: App, policy: Policy, table: TableLook, last: KeptView | None) -> KeptView | None:
    """None while nothing is exported: there is no lake to read."""
    name, now = policy.view_of(table.database, table.table), app.store.now()
    if last is not None and last.view != name:
        last = None
    if table.error or not any(one.process for one in table.partitions):
        return last
    if last is not None and last.over == _over(table, last.cold):
        waits = _RETRIED if last.error else _CHECKED
        if (table.viewed or last.error) and now < last.tried_at + waits:
            return last
    if _is_turning(app, table):
        return last
    source = policy.source or app.config.default_source
    cold, made_at, error = (last.cold, last.made_at, "") if last else ((), None, "")
    try:
        shown = TableName(source=source, database=table.database, table=table.table)
        # If we die here, it is made or not; making it again finds out.
        cold = tuple(view_create(app, str(shown), table.destination, name)["cold"])
        made_at = now
    except CalveError as failed:
        error = f"{failed.code}: {failed.message}"
    return KeptView(
        table=table.source,
        view=name,
        tried_at=now,
        made_at=made_at,
        over=_over(table, cold),
        cold=cold,
        error=error,
    )


def _over(table: TableLook, cold: Sequence[str]) -> str:
    """Of the table's columns, and of the exports of everything that is read from the lake."""
    away = [
        (one.id, one.process)
        for one in table.partitions
        if one.process and (one.released or not one.there or one.id in cold)
    ]
    return hashlib.sha256(repr((table.shape, table.destination, sorted(away))).encode()).hexdigest()[:32]


def _is_turning(app: App, table: TableLook) -> bool:
    """Whether a process moves a partition of the table, and turns its view itself."""
    asked = ProcessQuery(source=table.source, destination=table.destination, states=PROCESS_LIVE, limit=1000)
    return any(one.kind in _TURNING for one in app.store.processes(asked))
