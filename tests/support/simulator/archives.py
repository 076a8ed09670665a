"""Backups and restores in the simulator: the real kinds over modelled storage and a modelled server, their tasks as
executors run them, and what people do with backups."""

import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from calve.archive import backups, parts
from calve.archive.location import Location
from calve.backup import deletion, verification
from calve.backup import submit as backing_up
from calve.backup import task as backup_task
from calve.clickhouse.source import LiveSource
from calve.model.errors import NotFoundError, RefusedError
from calve.model.limits import Limits
from calve.model.record import fields_of
from calve.model.states import PROCESS_LIVE
from calve.parquet import folder
from calve.restore import submit as restoring
from calve.restore import task as restore_task
from calve.tasks import attempts
from support.simulator.clickhouse import ModelledSource
from support.simulator.objects import ModelledObjects

if TYPE_CHECKING:
    from support.simulator.world import World

URL = "s3://backups/calve"
NAMES = ("b1", "b2", "b3", "b4")
_TARGETS = ("db2", "db3")


@dataclass
class ReachedBackups:
    """`archive.ports.BackupPorts` of one worker."""

    limits: Limits
    modelled: ModelledSource
    objects: ModelledObjects
    hard_links: bool = False

    def source(self, name: str) -> LiveSource:
        return self.modelled.as_source()

    def disks_are_near(self, source: str) -> bool:
        return False

    def location(self) -> Location:
        return Location(URL, self.objects.storage())

    def location_properties(self) -> dict[str, str]:
        return {}

    def bucket_properties(self, source: str) -> dict[str, dict[str, str]]:
        return {}


@dataclass
class ArchiveTask:
    """What an executor does for a backup or a restore: the product's own code, over modelled storage."""

    objects: ModelledObjects

    @property
    def _location(self) -> Location:
        return Location(URL, self.objects.storage())

    def back_up(self, text: str) -> str:
        payload = backup_task.BackupPayload.from_json(text)
        receipt = backup_task.attempt_at(self._location, payload)
        return attempts.answer(receipt, files=len(receipt.parts))

    def restore(self, text: str) -> str:
        payload = restore_task.RestorePayload.from_json(text)
        with patch.object(restore_task.RestorePayload, "open", lambda _: self._location):
            opened = payload.open()
        object.__setattr__(payload, "open", lambda: opened)
        receipt = restore_task.attempt(payload)
        return attempts.answer(receipt, files=len(receipt.folders))


class _Inline:
    """A pool of threads whose work is done by whoever asks for it: in the simulator nobody else runs."""

    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> "_Inline":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, work: Callable[..., Any], *items: Any) -> list[Any]:
        return [work(*some) for some in zip(*items, strict=False)]

    def submit(self, work: Callable[..., Any], *args: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        done.set_result(work(*args))
        return done


@contextmanager
def in_one_thread() -> Iterator[None]:
    with (
        patch.object(parts, "ThreadPoolExecutor", _Inline),
        patch.object(verification, "ThreadPoolExecutor", _Inline),
        patch.object(folder, "ThreadPoolExecutor", _Inline),
    ):
        yield


def do(world: "World", verb: str, chance: random.Random) -> bool:
    """Whether the verb is one of these."""
    ports = world.backup_ports()
    name = _name(world, chance)
    match verb:
        case "backup":
            patterns = chance.choice((("db.*",), ("db.events",)))
            request = backing_up.request_of(ports, chance.choice(NAMES), "main", patterns)
            backing_up.submit(ports, world.anyone, request)
        case "delete_backup":
            _delete(world, ports, name)
        case "prune":
            prune(world, ports)
        case "verify_backup":
            _verify(world, ports, name)
        case "restore":
            options = restoring.RestoreOptions(
                into=chance.choice(_TARGETS),
                existing=chance.choice(("refuse", "refuse", "replace")),
            )
            wanted = restoring.request_of(ports, name, "main", options)
            restoring.submit(ports, world.anyone, wanted)
        case _:
            return False
    return True


def _name(world: "World", chance: random.Random) -> str:
    """Mostly one that stands."""
    below = f"{URL}/backups/"
    objects = [uri.removeprefix(below) for uri in world.objects.held if uri.startswith(below)]
    marked = {name.removesuffix(".deleted.json") for name in objects if name.endswith(".deleted.json")}
    keys = sorted({name.removesuffix(".json") for name in objects if "deleted" not in name} - marked)
    if keys and chance.random() < 0.8:
        return chance.choice(keys).partition("@")[0]
    return chance.choice(NAMES)


def _delete(world: "World", ports: ReachedBackups, name: str) -> None:
    """As the command: not what a process of this store reads."""
    for row in world.processes():
        if row.state in PROCESS_LIVE and fields_of(row.request).get("backup") == name:
            raise RefusedError(f"process {row.id} reads backup {name}", code="backup_in_use")
    deletion.delete(ports.location(), name)


def prune(world: "World", ports: ReachedBackups) -> None:
    """As the command does it: the newest two stay, and deletes that died are taken up."""
    location = ports.location()
    whole = [one.manifest for one in backups.listed(location) if one.manifest]
    standing = deletion.kept(whole, lambda one: datetime.fromisoformat(one.created_at), deletion.Keep(last=2))
    for one in whole:
        if one not in standing:
            _delete(world, ports, one.name)
    for key in deletion.unfinished(location):
        deletion.sweep(location, key)


def sweep(world: "World") -> None:
    """What deletes that died, or waited for a backup under way, have left."""
    location = world.backup_ports().location()
    for key in deletion.unfinished(location):
        deletion.sweep(location, key)


def _verify(world: "World", ports: ReachedBackups, name: str) -> None:
    location = ports.location()
    manifest = backups.find(location, name)
    found = verification.verify(location, manifest)
    if found.whole:
        return
    try:
        now = backups.find(location, name)
    except NotFoundError:
        return  # deleted meanwhile
    if now.process_id == manifest.process_id:
        world.problems.append(f"backup {name} stands and is not whole: {found.flaws[0].problem}")
