"""What may leave a table, come back, or be deleted for good, said of the world as it is at the moment of the statement."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from calve.model.process import GuardedTable, Process
from calve.model.record import fields_of
from support.year.clickhouse import YearTable
from support.year.statements import full

if TYPE_CHECKING:
    from support.year.installation import Installation
    from support.year.world import YearWorld

SETTLE_SECONDS = 300.0  # what happens between a look and a statement is found after it, and undone
LEAST_GRACE = timedelta(days=3)  # of all rules that a year has
_SKEW = timedelta(minutes=5)
_TTL = timedelta(hours=47)


def broken(world: "YearWorld", kind: str, names: Mapping[str, str], query: str) -> list[str]:
    if kind == "move" and full(names["into"])[0] == "calve_released":
        table, partition = world.server.year_tables.get(full(names["of"])), names["partition"]
        if table is None or not table.rows_of(partition):
            return []
        if full(names["into"]) not in world.server.year_tables:
            return []
        found = _process(world, query)
        who = (
            [f"by process {query}, which no store knows"]
            if found is None
            else _permitted(world, *found, table, partition)
        )
        return [
            f"partition {partition} of {table.name} leaves {why}"
            for why in (*_may_not_leave(world, table, partition), *who)
        ]
    if kind == "move" and full(names["into"])[0] == "db":
        return list(_may_not_return(world, names, query))
    if kind == "drop" and "_drop_" in names["table"]:
        table = world.server.year_tables.get(full(names["table"]))
        rows = table.rows if table else []
        return (
            [
                f"quarantine {names['table']} is deleted {why}"
                for why in _may_not_go(world, names["table"], rows)
            ]
            if rows
            else []
        )
    return []


def _process(world: "YearWorld", text: str) -> "tuple[Installation, Process] | None":
    for one in world.installations:
        for row in one.processes():
            if row.id in text:
                return one, row
    return None


def _may_not_leave(world: "YearWorld", table: YearTable, partition: str) -> Iterator[str]:
    if table.engine not in ("MergeTree", "ReplicatedMergeTree"):
        yield f"though merges of {table.engine} combine rows"
    if table.engine.startswith("Replicated"):
        yield "though a replica is missing"
    if table.policies:
        yield "though row policies hide its rows"
    if table.version.startswith("23.1"):
        yield f"though version {table.version} loses parts"
    if table.pending:
        yield "though a mutation is pending"
    if abs(world.server.skew) > _SKEW and world.server.skewed_at < world.schedule.now - SETTLE_SECONDS:
        yield "though the clocks differ"
    end = table.end_of(partition)
    if end is None:
        yield "though its key says no time"
        return
    now = min(world.now, world.server.now())
    if end.year < 1971:
        yield "though its time is 1970"
    if end > now.date():
        yield "though its time is not over"
    if partition == max(table.partition_ids):
        yield "though it is the newest"
    days = [world.known.day(row) for row in table.rows_of(partition)]
    if table.ttl_days and min(days) + timedelta(days=table.ttl_days) < (world.server.now() + _TTL).date():
        yield "though a TTL removes its rows first"
    lake = world.ledger.lake(table.name)
    settled = world.schedule.now - SETTLE_SECONDS
    rows = [row for row in table.rows_of(partition) if world.ledger.born[row] < settled]
    if any(row not in lake for row in rows) and world.ledger.lake_changed.get(table.name, -1.0) < settled:
        yield "with rows that are not in the lake"
    if table.uuid in world.server.views.values():
        if partition not in world.server.cold_ids(table.uuid):
            yield "while the view reads it from there"
        elif any(
            one.until > world.schedule.now and one.began < _turned(world, table, partition)
            for one in world.server.readers
        ):
            yield "under a query that still reads it from there"
    from support.year.ledger import released_partitions

    metadata = world.catalog.tables["ns", table.name]
    if partition not in set(released_partitions(metadata)):
        yield "without a mark in the lake"


def _turned(world: "YearWorld", table: YearTable, partition: str) -> float:
    """When it became cold, and was not hot since: a view that is made again says it once more."""
    at = 0.0
    found = world.server.residencies["calve_views", f"{table.uuid}_residency"].rows
    for one in sorted((one for one in found if one.id == partition), key=lambda one: -one.generation):
        if not one.cold:
            break
        at = min(at or one.at, one.at)  # an INSERT that arrives twice says the same
    return at


def _permitted(
    world: "YearWorld", store: "Installation", row: Process, table: YearTable, partition: str
) -> Iterator[str]:
    """As that store has it: who allowed it, and who forbade it before it was announced."""
    announced = [one for one in store.store.intents(row.id) if one.step == "move"]
    if not announced:
        yield "without an announcement"
        return
    at = announced[-1].made_at
    guarded = GuardedTable(
        identity=f"server:modelled/{table.uuid}", uuid=table.uuid, name=f"main:db.{table.name}"
    )
    for hold in store.store.holds(every=True):
        stood = hold.released_at is None or hold.released_at > at
        stood = stood and (hold.until_at is None or hold.until_at > at)
        if hold.matches(guarded, partition) and hold.made_at is not None and hold.made_at < at and stood:
            yield f"though hold {hold.id} stood"
    request = fields_of(row.request)
    hash, identity = request.get("hash"), guarded.identity
    approvals = [
        one
        for one in store.store.approvals(every=True)
        if (one.what, one.hash, one.identity) == ("release", hash, identity)
    ]
    if not any(
        one.made_at and one.made_at <= at and (one.revoked_at is None or one.revoked_at > at)
        for one in approvals
    ):
        yield "without approval"
    for halt in store.store.halts():
        if halt.kind == "policy" and halt.made_at is not None and halt.made_at < at:
            yield "while its policy is paused"
    configured = {one.name: one.hash for member in store.members[:1] for one in member.app.config.policies}
    edited = world.schedule.clock() - timedelta(seconds=world.schedule.now - store.edited_at)
    if configured.get(str(request.get("policy"))) != hash and at > edited + timedelta(seconds=90):
        yield "by a policy that was edited or deleted"


def _may_not_return(world: "YearWorld", names: Mapping[str, str], query: str) -> Iterator[str]:
    found, of = _process(world, query), world.server.year_tables.get(full(names["of"]))
    if found is None or of is None or fields_of(found[1].request).get("insist"):
        return
    settled = world.schedule.now - SETTLE_SECONDS
    erased = [
        row for row in of.rows_of(names["partition"]) if world.ledger.erased.get(row, settled) < settled
    ]
    if erased:
        yield f"row {min(erased)}, which was deleted meanwhile, comes back"


def _may_not_go(world: "YearWorld", name: str, rows: list[str]) -> Iterator[str]:
    found = _process(world, name)
    if found is None:
        yield "by nobody"
        return
    store, row = found
    asked = fields_of(row.request)
    of = fields_of(str(asked.get("of"))) if isinstance(asked.get("of"), str) else asked.get("of")
    assert isinstance(of, dict)
    table = str(of["table"])
    release = next(
        one for one in store.store.releases(str(of["identity"])) if one.process_id == asked["release"]
    )
    if release.settled_at is None or world.now < release.settled_at + LEAST_GRACE:
        yield "before its grace is over"
    approved = [one for one in store.store.approvals() if one.what == "drop" and one.hash == asked["hash"]]
    if not approved:
        yield "without approval"
    lake = world.ledger.lake(table)
    settled = world.schedule.now - SETTLE_SECONDS
    if any(one not in lake for one in rows) and world.ledger.lake_changed.get(table, -1.0) < settled:
        yield "with rows that are not in the lake"
    if not asked["backup"] and not any(rule.get("only_copy") for rule in store.rules.values()):
        yield "though no backup has it, and nobody accepted that"
    guarded = GuardedTable(identity=str(of["identity"]), uuid="", name=f"main:db.{table}")
    at = [one.made_at for one in store.store.intents(row.id)]
    for hold in store.store.holds():
        if (
            hold.matches(guarded, release.partition)
            and at
            and hold.made_at is not None
            and hold.made_at < at[-1]
        ):
            yield f"though hold {hold.id} stands"
