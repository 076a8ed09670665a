"""What people do in a year: at the table, in the lake, at a terminal of Calve, and to its programs. A hostile operator is all of them."""

from datetime import date, timedelta
from random import Random
from typing import TYPE_CHECKING

from calve.app.exports import export_request
from calve.app.policies import consent, documents, holds, untier
from calve.app.values import Selection
from calve.control.client import cancel
from calve.export.request import ExportOptions
from calve.export.submit import submit_export, survey_export
from calve.model.access import Asked
from calve.model.errors import CalveError
from calve.model.states import PROCESS_LIVE, ReleaseState
from support.simulator.people import Action
from support.year import lake_hands
from support.year.clickhouse import OlderReader, YearTable
from support.year.installation import Installation, YearApp

if TYPE_CHECKING:
    from support.year.world import YearWorld

ASKED = Asked(who="anne", verb="year")
_DAY = 86_400.0


def act(world: "YearWorld", action: Action) -> None:
    chance = action.random
    tables = [one for one in world.server.year_tables.values() if one.database == "db"]
    tables = [one for one in tables if one.partition_ids]
    table = chance.choice(
        (*tables, *[one for one in tables if one.name == "events" or one.name in world.case.tables] * 3)
    )
    world.script.done.append(action.name)
    world.schedule.tell(f"{action.name} {action.verb} {table.name}")
    if action.verb == "meddle":
        _meddle(world, action)
        return
    if action.verb in _AT_TABLES:
        with world.ledger.theirs():
            _at_table(world, action.verb, table, chance)
    elif action.verb in _IN_LAKE:
        with world.ledger.theirs():
            _in_lake(world, action, table, chance)
    elif action.verb in _TO_PROGRAMS:
        _to_programs(world, action.verb, chance.choice(world.installations), chance)
    else:
        installation = chance.choice(world.installations)
        _at_terminal(world, action.verb, installation, installation.person(), table, chance)


_AT_TABLES = frozenset({"late", "merge", "mutate", "erase", "pending", "drop_partition", "future", "epoch"})
_IN_LAKE = frozenset({"compact", "lake_delete", "expire", "rollback"})
_TO_PROGRAMS = frozenset(
    {"kill", "skew", "reader", "copy", "restore", "die_inside", "outage", "edit", "remove_policy"}
)


_MOMENTS = ("still", "flip", "move", "rename")
_DEEDS = (
    "hold",
    "hold",
    "pause",
    "edit",
    "late",
    "mutate",
    "erase",
    "pending",
    "reader",
    "skew",
    "cancel",
    "revoke",
    "kill",
)


def _meddle(world: "YearWorld", action: Action) -> None:
    """Somebody does it in the very moment of a step."""
    chance = action.random
    allowed = [one for one in _DEEDS if not world.case.deeds or one in world.case.deeds] or list(_DEEDS)
    moment, deed = chance.choice(_MOMENTS), chance.choice(allowed)
    done = Action(name=f"{action.name}/{moment}", at=0.0, verb=deed, chance=chance.getrandbits(32))

    def work() -> None:
        with world.schedule.aside():
            try:
                act(world, done)
            except CalveError as error:
                world.schedule.tell(f"{done.name} is answered {error.code}")

    world.server.meddlers[moment] = work


def _at_table(world: "YearWorld", verb: str, table: YearTable, chance: Random) -> None:
    partition = chance.choice(table.partition_ids)
    match verb:
        case "late":
            world.insert(table, world.today - timedelta(days=chance.randint(20, 120)), chance.randint(1, 3))
        case "future":
            world.insert(table, date(2027, 6, 1), 1)
        case "epoch":
            world.insert(table, date(1970, 1, 5), 1)
        case "merge":
            table.merge(partition)
        case "drop_partition":
            world.ledger.dropped.add(partition)
            world.ledger.lake_lost |= set(table.rows_of(partition))  # no view was asked
            table.drop(partition)
            table.changed[partition] = world.now
        case "mutate":
            number = table.next_block
            old = set(chance.sample(table.rows_of(partition), k=1))
            new = {row: f"{row.rpartition(':')[0]}:{number}" for row in old}
            table.replace_rows(partition, lambda row: new.get(row, row), world.now)
            world.ledger.given_up(old)
            world.ledger.inserted(table, new.values())
        case "erase":
            here = set(chance.sample(table.rows_of(partition), k=1))
            table.replace_rows(partition, lambda row: None if row in here else row, world.now)
            world.ledger.given_up(here)
            for held in world.server.quarantined(table.uuid):
                for row in held.rows:
                    world.ledger.erased.setdefault(row, world.schedule.now)
        case "pending":
            table.pending.append(f"mutation_{table.next_block}.txt")
            table.next_block += 1
            world.later(chance.uniform(1.0, 15.0) * _DAY, lambda: _finish_mutations(table))


def _finish_mutations(table: YearTable) -> None:
    table.mutations += table.pending
    table.pending.clear()


def _in_lake(world: "YearWorld", action: Action, table: YearTable, chance: Random) -> None:
    name = ("ns", table.name)
    match action.verb:
        case "compact":
            lake_hands.compact(world, name, action.name, chance.randint(0, 99))
        case "lake_delete":
            lake_hands.delete(world, name, action.name, chance.randint(0, 99))
        case "expire":
            lake_hands.expire(world, name)
        case "rollback":
            lake_hands.rollback(world, name)


def _to_programs(world: "YearWorld", verb: str, installation: Installation, chance: Random) -> None:
    match verb:
        case "kill":
            if installation.members:
                world.schedule.kill(chance.choice(installation.members).program)
        case "skew":
            world.server.skewed_at = world.schedule.now
            world.server.skew = timedelta(minutes=chance.choice((-600, -7, 7, 60)))
            world.later(10 * _DAY, lambda: setattr(world.server, "skew", timedelta()))
        case "reader":
            now = world.schedule.now
            world.server.readers.append(
                OlderReader(id=f"q{now:.0f}", began=now, until=now + chance.choice((30.0, 200.0, 600.0)))
            )
        case "copy":
            world.copies[installation.name] = installation.remembered.copy()
        case "restore":
            if installation.name in world.copies:
                installation.restore(world.copies[installation.name])
        case "die_inside":
            world.server.dying = True
        case "outage":
            if world.weather.rate:
                service = chance.choice(("objects", "lake", "clickhouse"))
                world.weather.outages[service] = world.schedule.now + chance.choice((20.0, 120.0))
        case "edit":
            name, rule = next(iter(installation.rules.items()), ("tier", None))
            if rule is not None:
                installation.edit(name, rule | {"release_after": chance.choice(("3d", "10d", "25d"))})
        case "remove_policy":
            name, rule = next(iter(installation.rules.items()), ("tier", None))
            if rule is not None and chance.random() < 0.3:
                installation.edit(name, None)
                world.schedule.tell(f"policy {name} is gone for a while")
                world.later(chance.uniform(5.0, 20.0) * _DAY, lambda: installation.edit(name, rule))


def _at_terminal(
    world: "YearWorld", verb: str, installation: Installation, app: YearApp, table: YearTable, chance: Random
) -> None:
    name = f"main:db.{table.name}"
    partition = chance.choice(table.partition_ids)
    policy = next(iter(installation.rules), "")
    store = app.registry
    match verb:
        case "approve":
            consent.policy_approve(app, policy, ASKED)
        case "pause":
            documents.policy_pause(app, policy, "a pause", ASKED)
            world.later(
                chance.uniform(1.0, 12.0) * _DAY,
                lambda: documents.policy_resume(installation.person(), policy, ASKED),
            )
        case "resume":
            documents.policy_resume(app, policy, ASKED)
        case "hold":
            where = partition if chance.random() < 0.6 else ""
            until = chance.choice(("", "5d", "20d", "20d")) if where else "15d"
            holds.hold_add(app, name, where, reason="an audit", until=until, force=False, asked=ASKED)
        case "let_go":
            if standing := store.holds():
                holds.hold_release(app, chance.choice(standing).id, ASKED)
        case "undo" | "undo_force" | "drop" | "untier":
            _on_released(app, verb, table, chance)
        case "force" | "new_parts":
            options = ExportOptions(
                force=verb == "force", new_parts=verb == "new_parts", allow_shrink=chance.random() < 0.6
            )
            out = {one.partition for one in store.releases(table.identity)} & set(table.partition_ids)
            if out and chance.random() < 0.7:
                partition = chance.choice(sorted(out))
            selection = Selection(partitions=(partition,))
            request = export_request(app, name, f"lake.ns.{table.name}", selection, options)
            surveyed = survey_export(app, request, selection)
            submit_export(app, app.store, surveyed, sleep=world.schedule.sleep)
        case "revoke":
            for one in store.approvals():
                store.revoke_approval(one.seq, ASKED)
        case "cancel":
            live = [row for row in installation.processes() if row.state in PROCESS_LIVE]
            if live:
                cancel(app.store, chance.choice(live).id)


def _on_released(app: YearApp, verb: str, table: YearTable, chance: Random) -> None:
    name = f"main:db.{table.name}"
    out = [
        one.partition
        for one in app.registry.releases(table.identity)
        if one.state is ReleaseState.QUARANTINED
    ]
    if verb == "untier":
        known = sorted({one.partition for one in app.registry.releases(table.identity)})
        untier.untier(app, app.store, name, chance.choice(known or table.partition_ids))
        return
    if not out:
        return
    partition = chance.choice(out)
    if verb == "drop":
        seen = consent.policy_drop(app, app.store, name, [partition], ASKED)
        consent.policy_drop(app, app.store, name, [partition], ASKED, approve=seen["hash"])
    else:
        consent.policy_undo(app, app.store, name, partition, force=verb == "undo_force")
