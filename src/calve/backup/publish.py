"""The one atomic step of a backup: its manifest, put if-none-match under a name used once.

A tombstone in the manifest's place is how a backup is given up: a put that comes late then meets
a taken name, and a backup without data can never appear (P15).
"""

import json
import logging
from collections.abc import Callable, Sequence

from calve.archive import backups
from calve.archive.backups import Tombstone
from calve.archive.left_out import left_out
from calve.archive.location import Key, Location, LocationChangedError
from calve.archive.manifest import Manifest
from calve.backup.deletion import remove_parts
from calve.backup.plan import BackupPlan, BackupReceipt, placed
from calve.control.kind import Fenced, Published
from calve.model.change import Result
from calve.model.errors import NotFoundError, RefusedError, TemporaryError

_log = logging.getLogger("calve.backup")


def publish(
    location: Location, plan: BackupPlan, receipts: Sequence[BackupReceipt], note: Callable[[str], None]
) -> Published:
    """Look first, whatever the receipts say; then put once, and look again."""
    key = plan.backup_key
    if (found := _ours(location, plan, key)) is not None:
        return _done(location, found)
    location.refuse_another(plan.location_id)
    manifest = _filled(plan, plan.draft(location.vault), receipts)
    note(json.dumps({"manifest": location.manifest(key)}))
    # If we die here, the manifest is there or not; the next attempt looks before it does anything.
    location.storage.put_if_absent(location.manifest(key), backups.to_put(location, key, manifest))
    found = _ours(location, plan, key)
    if found is None:
        raise TemporaryError(
            f"the manifest of backup {key.name} was written and is not there", code="manifest_lost"
        )
    return _done(location, found)


def fence(location: Location, plan: BackupPlan) -> Fenced | Published:
    """Take the manifest's place, unless it is ours already."""
    found = _decided(location, plan)
    return Fenced() if found is None else Published(result=result_of(found), message=_sentence(found))


def _decided(location: Location, plan: BackupPlan) -> Manifest | None:
    """Our manifest; None once it can no longer be put."""
    tombstone = Tombstone(process_id=plan.process_id).to_json().encode()
    # If we die here, the tombstone stands or does not; fencing again finds out.
    location.storage.put_if_absent(location.manifest(plan.backup_key), tombstone)
    found = backups.read(location, plan.backup_key)
    return found if isinstance(found, Manifest) and found.process_id == plan.process_id else None


def undo(location: Location, plan: BackupPlan) -> str:
    """Remove what the process stored and no backup names. Fenced first: a manifest that came late
    would name what is being removed. Of a backup that is complete, what attempts that lost have left (T13): no
    manifest ever named it, so nobody relies on it."""
    try:
        location.refuse_another(plan.location_id)
    except LocationChangedError as error:
        return f"nothing: {error.message}"
    complete = _decided(location, plan)
    own = (
        complete.places if complete else {}
    )  # which a backup under way may rely on, even if it is marked by now
    places = [place for place in _places_of(location, plan.process_id) if place not in own]
    needed = backups.needed(location)
    if places and not complete:
        needed.refuse_unreadable(f"what process {plan.process_id} stored is kept")
    remove_parts(location, [place for place in places if place not in needed.places])
    _clear_work(location, plan.process_id)
    kept = sum(place in needed.places for place in places)
    return f"{kept} parts that another backup names" if kept else ""


def _places_of(location: Location, process_id: str) -> list[str]:
    """Whatever an attempt of the process wrote, with an index or without."""
    root = location.parts_of(process_id)
    places: dict[str, None] = {}
    for uri in location.storage.list(root):
        pieces = uri.removeprefix(f"{root}/").split("/")
        if len(pieces) >= 2:
            places[f"{process_id}/{pieces[0]}/{pieces[1].removesuffix('.json')}"] = None
    return list(places)


def _ours(location: Location, plan: BackupPlan, key: Key) -> Manifest | None:
    """Our manifest; None if nothing is decided. RefusedError if the name went to another."""
    try:
        found = backups.read(location, key)
    except NotFoundError:
        return None
    if isinstance(found, Tombstone):
        raise RefusedError(
            f"backup {key.name} of process {plan.process_id} was given up: nothing can be published any more",
            code="backup_given_up",
            hint="run the command again",
        )
    if found.process_id != plan.process_id:
        raise RefusedError(
            f"there is a backup {key.name} in {location.url} already, made by process {found.process_id} in the meantime",
            code="backup_exists",
            hint=f"give another name, or delete that one: calve backup delete {key.name}",
        )
    return found


def _filled(plan: BackupPlan, draft: Manifest, receipts: Sequence[BackupReceipt]) -> Manifest:
    """Every planned part must have its receipt, and nothing else may (L23)."""
    tasks = sorted(receipt.task for receipt in receipts)
    places = {part.address: (part.place, part.index_sha256) for receipt in receipts for part in receipt.parts}
    if tasks != list(range(len(plan.tasks))) or set(places) != {one.address for one in plan.uploads}:
        raise TemporaryError(
            f"{len(receipts)} receipts name {len(places)} parts where {len(plan.uploads)} were planned "
            f"in {len(plan.tasks)} tasks",
            code="receipts_missing",
            hint=f"calve show {plan.process_id}",
        )
    return placed(draft, places, moved_bytes=sum(receipt.moved_bytes for receipt in receipts))


def _done(location: Location, manifest: Manifest) -> Published:
    _clear_work(location, manifest.process_id)
    return Published(result=result_of(manifest), message=_sentence(manifest))


def _clear_work(location: Location, process_id: str) -> None:
    # If we die here, intents and receipts are left; the decided backup makes them mean nothing.
    location.storage.delete(location.storage.list(location.under_way(process_id)))


def result_of(manifest: Manifest) -> Result:
    detail = {
        "backup": manifest.name,
        "tables": len(manifest.tables),
        "moved_bytes": manifest.moved_bytes,
        "skipped": [list(item) for item in manifest.skipped],
        "left_out": [{"what": one.what, "why": one.why} for one in left_out(manifest)],
    }
    return Result(rows=manifest.rows, files=manifest.parts, bytes=manifest.bytes, detail=json.dumps(detail))


def _sentence(manifest: Manifest) -> str:
    skipped = (
        f", {_counted(len(manifest.skipped), 'table')} skipped or kept by structure alone"
        if manifest.skipped
        else ""
    )
    return (
        f"backup {manifest.name}: {_counted(len(manifest.tables), 'table')}, {_counted(manifest.parts, 'part')}, "
        f"{manifest.bytes} bytes of which {manifest.moved_bytes} were new{skipped}"
    )


def _counted(number: int, one: str) -> str:
    return f"{number} {one}" if number == 1 else f"{number} {one}s"
