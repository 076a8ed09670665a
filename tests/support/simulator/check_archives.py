"""What must hold of backups and restores, at every delete and at the end: read from the objects themselves."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from calve.model.process import Process, ProcessId
from calve.model.states import PROCESS_TERMINAL, ProcessState
from support.simulator.archives import URL
from support.simulator.copies import every_row, is_forgotten, pinned_then

if TYPE_CHECKING:
    from support.simulator.world import World

_MANIFEST = re.compile(rf"{URL}/backups/(\w+@\d+)\.json")


def standing(world: "World") -> dict[str, dict[str, Any]]:
    """The manifests that no mark of a delete is on, by key."""
    held = world.objects.held
    found = {key[1]: json.loads(held[uri]) for uri in held if (key := _MANIFEST.fullmatch(uri))}
    return {
        key: one["manifest"]
        for key, one in found.items()
        if f"{URL}/backups/{key}.deleted.json" not in held and not one.get("fenced")
    }


def places(manifest: dict[str, Any]) -> Iterator[str]:
    for table in manifest["tables"]:
        for part in table["parts"]:
            yield part["place"]


def refuse_needed(world: "World", uri: str) -> None:
    """Told of each object before it is deleted."""
    if not uri.startswith(f"{URL}/parts/"):
        return
    for key, manifest in standing(world).items():
        if any(uri.startswith(f"{URL}/parts/{place}") for place in places(manifest)):
            world.problems.append(f"{uri} was deleted, and backup {key} needs it")
            return


def check_archives(world: "World") -> Iterator[str]:
    manifests = standing(world)
    yield from _backups(world, manifests)
    yield from _restores(world)
    yield from _left(world, manifests)


def _rows(world: "World", place: str) -> list[str]:
    """Of a stored part."""
    held = world.objects.held
    if f"{URL}/parts/{place}.json" not in held:
        return [f"lost with {place}"]
    index = json.loads(held[f"{URL}/parts/{place}.json"])
    [data] = [one for one in index["files"] if one["name"] == "data.bin"]
    uri = f"{URL}/parts/{place}/{data['object']}"
    return list(json.loads(held[uri])) if uri in held else [f"lost with {uri}"]


def _pinned(world: "World", process_id: str, key: str) -> Counter[str]:
    """What that backup of the process was made of."""
    row = every_row(world).get(ProcessId(process_id))
    return pinned_then(world, row, world.objects.made_at[f"{URL}/backups/{key}.json"]) if row else Counter()


def _process(document: dict[str, Any]) -> str:
    return str(document.get("manifest", {}).get("process_id", ""))


def _backups(world: "World", manifests: dict[str, dict[str, Any]]) -> Iterator[str]:
    rows = {row.id: row for row in every_row(world).values() if row.kind == "backup"}
    for key, manifest in manifests.items():
        row = rows.get(manifest["process_id"])
        forgotten = is_forgotten(
            world, manifest["process_id"], world.objects.made_at[f"{URL}/backups/{key}.json"]
        )
        if row is None or (row.state is not ProcessState.COMPLETED and not forgotten):
            yield f"backup {key} stands, and its process is {row.state if row else 'unknown'}"
        found = Counter(text for place in places(manifest) for text in _rows(world, place))
        wanted = _pinned(world, manifest["process_id"], key)
        if found != wanted:
            missing, more = sorted(wanted - found)[:3], sorted(found - wanted)[:3]
            yield f"backup {key} has other rows than it pinned: missing {missing}, more {more}"
    for row in rows.values():
        if row.state is ProcessState.COMPLETED and not _was_published(world, row):
            yield f"backup process {row.id} is COMPLETED, and its manifest was never there"


def _was_published(world: "World", row: Process) -> bool:
    return any(_process(one) == row.id for one in world.objects.manifests.values())


def _restores(world: "World") -> Iterator[str]:
    """A table that only completed restores touched shows one backup's rows, whole; no row is ever there twice."""
    done: dict[tuple[str, str], list[Process]] = {}
    for row in world.processes():
        if row.kind == "restore":
            for item in json.loads(row.request)["items"]:
                done.setdefault((item["to_database"], item["to_name"]), []).append(row)
    for name, rows in done.items():
        table = world.source.tables.get(name)
        shown = Counter(text for part in table.parts.values() for text in part.rows) if table else Counter()
        twice = [text for text, count in shown.items() if count > 1]
        if twice:
            yield f"restored table {'.'.join(name)} shows {len(twice)} rows twice"
        completed = [row for row in rows if row.state is ProcessState.COMPLETED]
        if table is None and completed:
            yield f"restore {completed[0].id} is COMPLETED, and {'.'.join(name)} is not there"
        planned = any(
            row.planned for row in rows
        )  # one that ended before has no plan to undo: see docs/backup.md
        if table is not None and table.still and planned:
            yield f"restored table {'.'.join(name)} merges nothing for ever"
        if len(rows) == 1 and completed and shown != (wanted := _of_backup(world, rows[0], name)):
            missing, more = sorted(wanted - shown)[:3], sorted(shown - wanted)[:3]
            yield f"restore {rows[0].id} made other rows: missing {missing}, more {more}"
    lost = every_row(world).keys() - {row.id for row in world.processes()}  # known to no store any more
    for folder in (world.source.statements.disk / "calve_restore").glob("*/*"):
        if folder.parent.name in lost:
            continue
        yield f"{folder.relative_to(world.source.statements.disk)} is left on the disk"
    for gathering in [one for one in world.source.tables if one[0] == "calve_restore"]:
        if any(one in gathering[1] for one in lost):
            continue
        yield f"table {'.'.join(gathering)} is left"


def _of_backup(world: "World", row: Process, name: tuple[str, str]) -> Counter[str]:
    """The rows of one table that the backup's pins held."""
    request = json.loads(row.request)
    [origin] = [
        f"{item['database']}.{item['name']}/"
        for item in request["items"]
        if (item["to_database"], item["to_name"]) == name
    ]
    pinned = _pinned(world, request["backup_process"], f"{request['backup']}@{request['number']}")
    return Counter({text: count for text, count in pinned.items() if text.startswith(origin)})


def _left(world: "World", manifests: dict[str, dict[str, Any]]) -> Iterator[str]:
    needed = {place for manifest in manifests.values() for place in places(manifest)}
    ended = {row.id for row in world.processes() if row.state in PROCESS_TERMINAL}
    for uri in sorted(world.objects.held):
        if not uri.startswith(f"{URL}/parts/"):
            continue
        place = "/".join(uri.removeprefix(f"{URL}/parts/").split("/")[:3]).removesuffix(".json")
        process_id = place.split("/")[0]
        forgotten = is_forgotten(world, process_id, world.objects.made_at[uri])
        if place not in needed and process_id in ended and not forgotten:
            yield f"{uri} is left, and no backup needs it"
            return
