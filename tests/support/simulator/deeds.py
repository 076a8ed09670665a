"""What each verb of `people` does in a history."""

import random
from typing import TYPE_CHECKING

from calve.clickhouse.parts.partitions import Selection
from calve.control.client import cancel, retry
from calve.destination.names import DestinationAddress
from calve.export.request import ExportRequest
from calve.model.states import PROCESS_LIVE, PROCESS_TERMINAL
from support.simulator import archives, foreign, optimizes
from support.simulator.clickhouse import ModelledTable
from support.simulator.people import Action

if TYPE_CHECKING:
    from support.simulator.world import World

PARTITIONS = ("1", "2", "3")
FOLDER = "s3://plain/out"  # of plain Parquet


def do(world: "World", action: Action) -> None:
    """CalveError is an answer to the person."""
    chance = action.random
    table = world.source.tables["db", chance.choice(("events", "events", "clicks"))]
    partition = chance.choice(PARTITIONS)
    lake, name = world.lake
    match action.verb:
        case "insert":
            table.insert(partition, chance.randint(1, 7))
        case "merge":
            table.merge(partition)
        case "mutate":
            table.mutate(partition)
        case "drop":
            table.drop(partition)
        case "append":
            foreign.append(lake, world.objects, name, action.name)
        case "expire":
            foreign.expire(lake, name)
        case "sweep_tags":
            foreign.sweep_tags(lake, name)
        case "rollback":
            foreign.rollback(lake, name)
        case "drop_table":
            foreign.drop_table(lake, name)
        case "rename_table":
            foreign.rename_table(lake, name)
        case "optimize" | "optimize_full":
            optimizes.do(world, full=action.verb == "optimize_full")
        case "cancel" | "retry":
            _one(world, action.verb, chance)
        case verb if archives.do(world, verb, chance):
            pass
        case verb:
            _export(world, verb, table, partition, chance)


def _one(world: "World", verb: str, chance: random.Random) -> None:
    wanted = PROCESS_LIVE if verb == "cancel" else PROCESS_TERMINAL
    rows = sorted(world.processes(), key=lambda row: (row.state not in wanted, row.id))
    if rows:
        row = chance.choice(rows[: 1 + len(rows) // 2])
        (cancel if verb == "cancel" else retry)(world.holder(row.id), row.id)


def _export(world: "World", verb: str, table: ModelledTable, partition: str, chance: random.Random) -> None:
    if verb == "export_all":
        selection = Selection(all=True)
    elif verb == "export_parts" and (parts := table.of(partition)[:1]):
        selection = Selection(parts=tuple(part.facts.name for part in parts))
    else:
        selection = Selection(partitions=(partition,))
    catalog = world.other_catalog if chance.random() < 0.15 else world.lake[0].name
    identifier = world.lake[1]
    if world.storm.folders:
        address = DestinationAddress.folder(FOLDER)
        catalog, identifier = address.catalog, address.identifier
    request = ExportRequest(
        source="main",
        database=table.database,
        table=table.name,
        catalog=catalog,
        identifier=identifier,
        partitions=(),
        force=verb == "force",
        allow_shrink=verb == "force" and chance.random() < 0.5,
        new_parts=verb == "new_parts",
    )
    world.export(request, selection)
