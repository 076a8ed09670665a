"""What must hold of exports into a folder of plain Parquet, read from its commit objects."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from calve.destination.names import CommitName
from calve.model.process import Process
from calve.model.states import ProcessState
from support.simulator.clickhouse import row_id
from support.simulator.copies import every_row, is_forgotten, pinned_then
from support.simulator.deeds import FOLDER

if TYPE_CHECKING:
    from support.simulator.world import World

_COMMIT = re.compile(rf"{FOLDER}/_calve/commits/.+\.json")


def commits(world: "World") -> list[dict[str, Any]]:
    """In their order: by key and generation."""
    held = world.objects.held
    found = [json.loads(held[uri]) for uri in held if _COMMIT.fullmatch(uri)]
    return sorted(found, key=lambda one: (one["key"], one["generation"]))


def shown(world: "World") -> list[dict[str, Any]]:
    """What readers take: the newest commit of each key that is no tombstone."""
    return list({one["key"]: one for one in commits(world) if not one["tombstone"]}.values())


def listed_files(world: "World") -> set[str]:
    return {file["path"] for one in shown(world) for file in one["files"]}


def refuse_listed(world: "World", uri: str) -> None:
    """Told of each object before it is deleted."""
    if uri.startswith(f"{FOLDER}/") and uri in listed_files(world):
        world.problems.append(f"{uri} was deleted, and a commit lists it")


def check_folder(world: "World") -> Iterator[str]:
    by_process: dict[str, list[dict[str, Any]]] = {}
    for one in commits(world):
        if not one["tombstone"]:
            by_process.setdefault(one["process"], []).append(one)
    for row in every_row(world).values():
        if row.kind == "export":
            yield from _export(world, row, by_process.get(row.id, []))
    everything = Counter(row_id(text) for one in shown(world) for text in _rows(world, one))
    if twice := sorted(text for text, count in everything.items() if count > 1):
        yield f"the folder shows {len(twice)} rows twice, {twice[0]} among them"


def _export(world: "World", row: Process, published: list[dict[str, Any]]) -> Iterator[str]:
    if len(published) > 1:
        yield f"process {row.id} was published {len(published)} times"
    said = row.state is ProcessState.COMPLETED and row.files > 0
    if said and not published:
        yield f"process {row.id} is COMPLETED with {row.files} files, and was never published"
    applied = row.error is not None and row.error.outcome == "applied"
    if not (said or applied) and not all(is_forgotten(world, row.id, _at(world, one)) for one in published):
        yield f"process {row.id} is {row.state}, and was published"
    for one in published:
        if one not in shown(world):
            continue  # replaced since, and its files deleted
        found, wanted = Counter(_rows(world, one)), pinned_then(world, row, _at(world, one))
        if found != wanted:
            missing, more = sorted(wanted - found)[:3], sorted(found - wanted)[:3]
            yield f"process {row.id} published other rows than it pinned: missing {missing}, more {more}"


def _at(world: "World", commit: dict[str, Any]) -> float:
    name = CommitName(key=commit["key"], generation=commit["generation"])
    return world.objects.made_at[f"{FOLDER}/_calve/commits/{name}"]


def _rows(world: "World", commit: dict[str, Any]) -> Iterator[str]:
    for file in commit["files"]:
        if file["path"] in world.objects.held:
            yield from json.loads(world.objects.held[file["path"]])
        else:
            yield f"lost with {file['path']}"
