"""What must hold at the end of a history, of what the services saw and the store says. Knows no step of the product."""

import json
from collections import Counter
from collections.abc import Iterator

from calve.destination.names import DataFileName
from calve.export.request import ExportRequest
from calve.model.process import Process, ProcessId
from calve.model.states import PIN_HELD, PROCESS_TERMINAL, ProcessState
from support.simulator.catalog import Landed, rows_of
from support.simulator.check_archives import check_archives
from support.simulator.check_folder import check_folder, listed_files
from support.simulator.clickhouse import row_id
from support.simulator.copies import every_row, is_forgotten, pinned_then
from support.simulator.world import World

_ENDS = {state.lower(): state for state in PROCESS_TERMINAL} | {"nothing_to_do": ProcessState.COMPLETED}


def check(world: World) -> list[str]:
    """Every promise that was broken."""
    with world.schedule.aside():
        return [
            *world.problems,
            *(f"{type(error).__name__}: {error}" for error in world.schedule.failures),
            *_states(world),
            *(check_folder(world) if world.storm.folders else _exports(world)),
            *_table(world),
            *_left(world),
            *(check_archives(world) if world.storm.archives else ()),
        ]


def _states(world: World) -> Iterator[str]:
    for row in world.processes():
        if row.state not in PROCESS_TERMINAL:
            yield f"process {row.id} is {row.state} for ever"
        if row.lease_until is not None and row.lease_until > world.schedule.clock():
            yield f"process {row.id} ended and is still leased to {row.owner}"
        if row.damaged:
            yield f"process {row.id} has a damaged row: {row.damaged}"
        events = world.store.events(row.id)
        if broken := [event.message for event in events if event.message.startswith("internal: ")]:
            yield f"process {row.id} met a defect: {broken[0]}"
        names = [event.name for event in events]
        ends = [_ENDS[name] for name in names if name in _ENDS]
        if ends != [row.state]:
            yield f"process {row.id} is {row.state}, and its events say {ends}"


def _exports(world: World) -> Iterator[str]:
    landed: dict[str, list[Landed]] = {}
    for one in _all_landed(world):
        if one.process_id and (one.added or one.removed):
            landed.setdefault(one.process_id, []).append(one)
    everyone = every_row(world)
    rows = {row.id: row for row in everyone.values() if row.kind == "export"}
    optimizes = {row.id for row in everyone.values() if row.kind == "optimize"}
    for process_id in sorted(landed.keys() & optimizes):
        for one in landed[process_id]:
            yield from _rewritten(world, one)
    for process_id in landed.keys() - rows.keys() - optimizes:
        yield f"{process_id} was published, and the store does not know it"
    for row in rows.values():
        yield from _export(world, row, landed.get(row.id, []))


def _export(world: World, row: Process, landed: list[Landed]) -> Iterator[str]:
    if len(landed) > 1:
        yield f"process {row.id} was published {len(landed)} times"
    said = row.state is ProcessState.COMPLETED and row.files > 0
    if said and not landed:
        yield f"process {row.id} is COMPLETED with {row.files} files, and was never published"
    if landed and not said:
        outcome = row.error.outcome if row.error else ""
        forgotten = all(is_forgotten(world, row.id, one.at) for one in landed)
        if outcome != "applied" and not forgotten and not any(one.uuid in _dropped(world) for one in landed):
            yield f"process {row.id} is {row.state} ({outcome}) with {row.files} files, and was published"
    for one in landed:
        if str(one.snapshot_id) != row.snapshot_id and said:
            yield f"process {row.id} says snapshot {row.snapshot_id}, and published {one.snapshot_id}"
        yield from _removed(world, row, one)
        found = Counter(text for uri in one.added for text in _rows(world, uri))
        wanted = pinned_then(world, row, one.at)
        if found != wanted:
            missing, more = sorted(wanted - found), sorted(found - wanted)
            yield f"process {row.id} published other rows than it pinned: missing {missing[:3]}, more {more[:3]}"


def _dropped(world: World) -> set[str]:
    """Tables that somebody dropped: what was published there cannot be found any more."""
    return {str(table.table_uuid) for catalog in world.catalogs.values() for table in catalog.dropped}


def _rewritten(world: World, landed: Landed) -> Iterator[str]:
    """Another shape of the very same rows."""
    ever = world.objects.ever
    before = Counter(text for uri in landed.removed for text in json.loads(ever[uri]))
    after = Counter(text for uri in landed.added for text in json.loads(ever[uri]))
    if before != after:
        lost, more = sorted(before - after)[:3], sorted(after - before)[:3]
        yield f"optimize {landed.process_id} changed rows: lost {lost}, more {more}"


def _removed(world: World, row: Process, landed: Landed) -> Iterator[str]:
    """Only a forced export takes anything out: what earlier exports of the same table put in."""
    rows = every_row(world)
    rewrites = {one.id for one in rows.values() if one.kind == "optimize"}
    writers = {uri: one.process_id for one in _all_landed(world) for uri in one.added}
    sources = {one.id: one.source for one in rows.values()}
    forced = ExportRequest.from_json(row.request).force
    for uri in sorted(landed.removed):
        if forced and writers.get(uri) in rewrites:
            continue  # a rewritten file; its rows are compared with the rest of the table
        if not forced or sources.get(ProcessId(writers.get(uri, ""))) != row.source:
            yield f"process {row.id} took {uri} out of the table"
            return


def _rows(world: World, uri: str) -> list[str]:
    if uri in world.objects.held:
        return rows_of(world.objects, uri)
    return [f"lost with {uri}"]


def _table(world: World) -> Iterator[str]:
    for catalog in world.catalogs.values():
        for name in catalog.tables:
            rows = Counter(row_id(text) for uri in catalog.shown(name) for text in _rows(world, uri))
            twice = sorted(row for row, count in rows.items() if count > 1)
            if twice:
                yield f"table {'.'.join(name)} shows {len(twice)} rows twice, {twice[0]} among them"
        for uri in sorted(catalog.referenced()):
            if uri not in world.objects.held:
                yield f"{uri} is gone, and a snapshot refers to it"


def _all_landed(world: World) -> list[Landed]:
    return [one for catalog in world.catalogs.values() for one in catalog.landed]


def _left(world: World) -> Iterator[str]:
    for pin in world.source.frozen:
        taker = world.source.late.get(pin)
        told = world.forgotten is not None and pin in world.forgotten.pins
        if not told and (
            taker is None or taker.alive
        ):  # otherwise `calve doctor` names it: see docs/simulator.md
            yield f"pin {pin} is still held"
    for kept in world.store.pins(states=PIN_HELD):
        yield f"pin {kept.name} is {kept.state} in the store"
    known = {uri for one in _all_landed(world) for uri in one.added} | listed_files(world)
    for uri in sorted(world.objects.held if not _dropped(world) else ()):  # nothing proves its files unused
        name = DataFileName.parse(uri)
        if name is None or uri in known:
            continue
        if not is_forgotten(world, name.process_id, world.objects.made_at[uri]):
            yield f"{uri} is left, and nothing ever referred to it"
