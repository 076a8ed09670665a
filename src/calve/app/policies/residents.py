"""From where a view reads each partition: what each server has, what the lake has, and what was asked for.

A partition is read from the lake only if its export is there whole, or the table has lost it."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from calve.app.partitions import Exported, compared
from calve.app.policies.lake import Lake
from calve.app.view import Json
from calve.app.wiring import App
from calve.clickhouse.parts.partitions import PartitionInfo
from calve.clickhouse.tables import TableInfo
from calve.clickhouse.tier import residency
from calve.clickhouse.tier.residency import Resident
from calve.model.errors import RefusedError
from calve.policy.bounds import TimeKey, Unit, time_key
from calve.policy.calendar import zone_of


@dataclass(frozen=True, kw_only=True)
class TierServer:
    """What one server has."""

    table: TableInfo
    partitions: tuple[PartitionInfo, ...]
    residents: Mapping[str, Resident]
    about: Json  # of a view that is there


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Where partitions shall be read from."""

    cold: Mapping[str, Resident]
    rows: Mapping[str, int]  # that the lake has of them
    added: tuple[str, ...] = ()
    returned: tuple[str, ...] = ()
    late: Mapping[str, int] = field(default_factory=dict)  # rows in the table of partitions that are cold


def choose(
    app: App, servers: Sequence[TierServer], lake: Lake, cold: Sequence[str], hot: Sequence[str]
) -> Wanted:
    """What was cold stays so, and what the table lost joins it. The rest as asked, if that hides no row."""
    table = servers[0].table
    before = residency.newest(server.residents for server in servers)
    here = {one.id: one for server in servers for one in server.partitions}
    listed, gone = compared(app, table.identity, list(here.values()), lake.address)
    exports = {one.partition.id: one for one in listed}
    left = {one.input[1]: one for one in gone}
    released = {one.input[1] for one in lake.exports if one.released}
    for id in cold:
        stands = exports[id].exported if id in exports else Exported.GONE if id in left else Exported.NO
        if stands in _REASONS:
            raise RefusedError(
                f"partition {id} of {table} cannot be read from {lake.address}: {_REASONS[stands]}",
                code="not_exported",
                hint=f"calve export '{table}' --partition {id} --to {lake.address}",
            )
    for id in hot:
        if id in released or id not in here:
            raise RefusedError(
                f"partition {id} of {table} cannot be read from the table: its rows are not there",
                code="not_in_table",
            )
    was = {id for id, one in before.items() if one.cold}
    ids = (was | left.keys() | released | set(cold)) - set(hot)
    earlier = {**{id: one.earlier for id, one in exports.items()}, **left}
    lost = sorted(id for id in ids if (one := earlier.get(id)) is None or one.missing)
    if lost:
        raise RefusedError(
            f"partition {lost[0]} of {table} is read from {lake.address}, which no longer has it",
            code="no_longer_there",
            hint=f"calve export '{table}' --partition {lost[0]} --to {lake.address} --force, if the table has it",
        )
    key = time_key(table.partition_key, {one.name: one.type for one in table.columns}, table.timezone)
    return Wanted(
        cold={id: _resident(id, key, here.get(id)) for id in ids},
        rows={id: one.rows for id in ids if (one := earlier[id]) is not None},
        added=tuple(ids - was),
        returned=tuple(was & set(hot)),
        late={
            id: here[id].rows for id in ids & here.keys() if exports[id].exported is not Exported.UNCHANGED
        },
    )


_REASONS: Mapping[Exported | None, str] = {
    Exported.NO: "it is not exported there",
    Exported.CHANGED: "it has changed since its export",
    Exported.MISSING: "its export is no longer there",
}


def _resident(id: str, key: object, partition: PartitionInfo | None) -> Resident:
    bounds = None
    if isinstance(key, TimeKey):
        bounds = key.bounds(partition.value if partition is not None else partition_value(id, key))
    if bounds is None:
        return Resident(id=id, cold=True)
    return Resident(id=id, cold=True, lower=bounds.lower, upper=bounds.upper)


def partition_value(id: str, key: object) -> str:
    """The value that ClickHouse made an id of, where the table has it no longer. Other ids have no bounds."""
    if not isinstance(key, TimeKey):
        return id
    if len(id) == 8 and id.isdigit() and key.unit in (Unit.WEEK, Unit.MONTH, Unit.QUARTER, Unit.YEAR):
        return f"{id[:4]}-{id[4:6]}-{id[6:]}"  # the first day
    if len(id) in (9, 10) and id.isdigit() and key.zone:
        local = datetime.fromtimestamp(int(id), UTC).astimezone(zone_of(key.zone))
        return local.strftime("%Y-%m-%d %H:%M:%S")
    return id


def turn_hot(app: App, source: str, uuid: str, partition: str) -> None:
    """A view reads the partition from its table again, at every server that has one. The rows must be there: the caller
    has looked. So the lake is not asked and the pinned state stays as it is: rows that somebody deleted in the lake, of
    whatever partition, or a catalog that is away, keep nothing from coming back."""
    found = []
    for visit in app.source(source).visits():
        with visit as session:
            there = residency.comment_of(session, uuid) is not None
            found.append(residency.read(session, uuid) if there else None)
    state = residency.newest(one for one in found if one is not None)
    if all(not one[partition].cold for one in found if one is not None and partition in one):
        return
    stamped = residency.stamped([Resident(id=partition, cold=False)], state, secrets.token_hex(8))
    for visit, before in zip(app.source(source).visits(), found, strict=True):
        if before is not None:
            with visit as session:
                # If we die here, some servers read it from the table and some from the lake, which has the same rows.
                residency.put(session, uuid, stamped)
