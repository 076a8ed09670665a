"""Announcing what takes rows out of a table: its guard, the conditions, the intent and the release, in the transaction
of the process's own change.

The guard's rows are locked by raising them, always in the same order, before anything else is read. Another
transaction that raises them (a hold, an intent) comes before this one, which then sees it, or after it, and sees this one.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, insert, or_, select, update

from calve.model.access import Halt
from calve.model.change import ANNOUNCED, Achieved, Change, Intend, NewEvent, NewRelease, ReleaseTo
from calve.model.process import GuardedTable, Process
from calve.model.refusals import conflict
from calve.model.states import ReleaseState
from calve.model.tier import (
    Announced,
    Hold,
    Release,
    Situation,
    check_intent,
    check_shape,
    new_release,
    release_after,
)
from calve.store import rows
from calve.store.database import inserting, seconds_to_us, time_from_us
from calve.store.rows import columns, plain
from calve.store.tables import approvals, guards, halts, holds, intents, policies, releases


def apply_tier(connection: Connection, process: Process, change: Change, now_us: int) -> list[NewEvent]:
    """The part of a change that announces, ends and records; the events that it makes. `process` is as it was before."""
    check_shape(process, change)
    announced = [_announce(connection, process, item, now_us) for item in change.all(Intend)]
    for item in change.all(Achieved):
        _achieve(connection, process, item, now_us)
    for new in change.all(NewRelease):
        made = new_release(process, new, _releases(connection, new.identity), time_from_us(now_us))
        connection.execute(insert(releases).values(columns(made) | {"state": made.state.value}))
    for to in change.all(ReleaseTo):
        _release(connection, process, to, now_us)
    return announced


def raise_guard(connection: Connection, table: GuardedTable) -> int:
    """Lock the guard until the transaction ends; its version before."""
    version = 0
    for subject in table.subjects:
        made = inserting(connection.dialect.name, guards).values(subject=plain(subject), version=1)
        raised = made.on_conflict_do_update(
            index_elements=[guards.c.subject], set_={"version": guards.c.version + 1}
        ).returning(guards.c.version)
        version += int(connection.execute(raised).scalar_one()) - 1
    return version


def guard_version(connection: Connection, table: GuardedTable) -> int:
    """The sum of its rows' versions: each only grows, so the sum stays only if all do."""
    wanted = select(guards.c.version).where(guards.c.subject.in_(list(map(plain, table.subjects))))
    return sum(connection.execute(wanted).scalars())


def of_table(table: Any, wanted: GuardedTable) -> ColumnElement[bool]:
    """Rows of a table by any of its names."""
    names = {"identity": wanted.identity, "uuid": wanted.uuid, "name": wanted.name}
    return or_(*(table.c[column] == plain(name) for column, name in names.items() if name))


def standing(now_us: Any) -> ColumnElement[bool]:
    """Holds that stand. A time that cannot be read is later than any: it counts as a hold."""
    c = holds.c
    return and_(c.released_at.is_(None), or_(c.until_at.is_(None), c.until_at > now_us))


def _announce(connection: Connection, process: Process, intend: Intend, now_us: int) -> NewEvent:
    version = raise_guard(connection, intend.table)
    check_intent(process, intend, _situation(connection, intend, version, now_us))
    named = {"identity": intend.table.identity, "uuid": intend.table.uuid, "name": intend.table.name}
    connection.execute(
        insert(intents).values(
            **{name: plain(text) for name, text in named.items()},
            partition=plain(intend.partition),
            process_id=process.id,
            step=intend.step,
            query_id=plain(intend.query_id),
            detail=plain(intend.detail),
            made_at=now_us,
            result="",
        )
    )
    return NewEvent(
        name=ANNOUNCED, message=f"{intend.step} of partition {intend.partition} of {intend.table.name}"
    )


def _situation(connection: Connection, intend: Intend, version: int, now_us: int) -> Situation:
    permit = intend.permit
    if permit is None:
        return Situation(version=version)
    matching = holds.c.partition.in_(["", plain(intend.partition)])
    met = select(holds).where(standing(now_us), of_table(holds, intend.table), matching)
    live = select(policies).where(policies.c.seen_at > now_us - seconds_to_us(permit.live_seconds))
    c = approvals.c
    approved = select(c.seq).where(
        c.what == permit.what, c.hash == permit.hash, c.identity == plain(intend.table.identity),
        c.destination == plain(permit.destination), c.revoked_at.is_(None),
    )  # fmt: skip
    return Situation(
        version=version,
        holds=[_any_hold(row) for row in connection.execute(met.order_by(holds.c.made_at)).mappings()],
        halts=[rows.value(Halt, row) for row in connection.execute(select(halts)).mappings()],
        announced=[rows.value(Announced, row) for row in connection.execute(live).mappings()],
        approved=connection.execute(approved).first() is not None,
    )


def _any_hold(row: rows.Row) -> Hold:
    """Without its times, which may be damaged: that it is there is enough."""
    return Hold(id=row["id"], name=row["name"], who=row["who"], reason=row["reason"])


def _achieve(connection: Connection, process: Process, item: Achieved, now_us: int) -> None:
    c = intents.c
    mine = (c.seq == item.intent) & (c.process_id == process.id) & c.done_at.is_(None)
    done = update(intents).where(mine).values(done_at=now_us, result=plain(item.result))
    if connection.execute(done).rowcount != 1:
        raise conflict(process.id, f"it has no open intent {item.intent}")


def release_of(row: rows.Row) -> Release:
    return rows.value(Release, dict(row) | {"state": ReleaseState(row["state"])})  # type: ignore[arg-type]


def _releases(connection: Connection, identity: str) -> Sequence[Release]:
    wanted = select(releases).where(releases.c.identity == plain(identity))
    return [release_of(row) for row in connection.execute(wanted).mappings()]


def _release(connection: Connection, process: Process, item: ReleaseTo, now_us: int) -> None:
    this = releases.c.process_id == (item.release or process.id)
    row = connection.execute(select(releases).where(this).with_for_update()).mappings().one_or_none()
    before = None if row is None else release_of(row)
    after = release_after(process, item, before, time_from_us(now_us))
    values = columns(after, "process_id") | {"state": after.state.value}
    changed = connection.execute(update(releases).where(this).values(values))
    if changed.rowcount != 1:
        raise conflict(process.id, "its release changed while this change was made")
