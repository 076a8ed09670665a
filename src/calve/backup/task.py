"""One attempt at one task of a backup, on an executor: parts in, stored parts and a receipt out.

What is stored already is looked at, not believed: its index is read and its objects are there in
their sizes, or the part is stored again (P15).
"""

import time
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from calve.archive.location import Key, Location
from calve.archive.parts import Stored, check_sizes, pools, read_index, store
from calve.backup.outline import Buckets, PartObjects, bringing, outline, scratch
from calve.backup.plan import BackupPlan, BackupReceipt, PartReceipt, Reuse, Upload, declare_intent
from calve.model.errors import DamagedError
from calve.model.record import Record
from calve.objects.storage import Storage
from calve.tasks import attempts

NO_BUCKETS: Mapping[str, Mapping[str, str]] = {}


@dataclass(frozen=True, kw_only=True)
class BackupPayload(Record):
    process_id: str
    task: int
    attempt: int
    key: str
    location: str
    location_id: str
    uploads: tuple[Upload, ...]
    reuse: Mapping[str, Reuse]
    hard_links: bool = False
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    buckets: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict, repr=False
    )  # of the source's disks
    connect_seconds: float = 5.0
    call_seconds: float = 15.0
    pace: str = ""  # of uploads

    @classmethod
    def of(
        cls,
        plan: BackupPlan,
        *,
        task: int,
        attempt: int,
        storage: Mapping[str, str],
        buckets: Mapping[str, Mapping[str, str]] = NO_BUCKETS,
        hard_links: bool = False,
        connect_seconds: float,
        call_seconds: float,
        pace: str = "",
    ) -> Self:
        start, end = plan.tasks[task]
        uploads = plan.uploads[start:end]
        return cls(
            process_id=plan.process_id,
            task=task,
            attempt=attempt,
            key=plan.key,
            location=plan.location,
            location_id=plan.location_id,
            uploads=uploads,
            reuse={one.address: plan.reuse[one.address] for one in uploads if one.address in plan.reuse},
            hard_links=hard_links,
            storage=storage,
            buckets=buckets if any(one.objects for one in uploads) else NO_BUCKETS,
            connect_seconds=connect_seconds,
            call_seconds=call_seconds,
            pace=pace,
        )

    def open(self) -> Location:
        storage = Storage(
            self.storage,
            connect_seconds=self.connect_seconds,
            call_seconds=self.call_seconds,
            pace=self.pace,
        )
        return Location(self.location, storage)

    def open_buckets(self) -> Buckets:
        return Buckets(
            properties=self.buckets, connect_seconds=self.connect_seconds, call_seconds=self.call_seconds
        )


def run(payload: str) -> str:
    """JSON in, JSON out; the runner turns errors into data."""
    read = BackupPayload.from_json(payload)
    receipt = attempt_at(read.open(), read)
    return attempts.answer(receipt, files=len(receipt.parts))


def attempt_at(location: Location, payload: BackupPayload) -> BackupReceipt:
    """Store the task's parts and leave a receipt; an attempt that has one already is not repeated."""
    started = time.monotonic()
    receipt_uri = location.receipt(payload.process_id, payload.task, payload.attempt)
    if (earlier := attempts.left(location.storage, receipt_uri, BackupReceipt.from_json)) is not None:
        return earlier
    location.refuse_another(payload.location_id)
    usable = _usable(location, payload)
    watch = attempts.Stopwatch()
    # Reading, packing and sending go on at once: all of it counts as the upload.
    with watch("upload"), pools() as (pool, files):
        stored = pool.map(
            lambda upload: _part(location, payload, upload, usable.get(upload.address), files),
            payload.uploads,
        )
        parts = tuple(stored)
    receipt = replace(_receipt(payload, parts, time.monotonic() - started), spent=watch.spent)
    return attempts.leave(location.storage, receipt_uri, receipt, BackupReceipt.from_json)


def _usable(location: Location, payload: BackupPayload) -> dict[str, Reuse]:
    """What need not be stored again. The intent comes before the look (D9)."""
    if not payload.reuse:
        return {}
    uri = location.intent(payload.process_id, payload.task, payload.attempt)
    declare_intent(location, uri, Key.parse(payload.key), list(payload.reuse))
    stands = {key: _stands(location, key) for key in {one.key for one in payload.reuse.values()}}
    standing = [(address, one) for address, one in payload.reuse.items() if stands[one.key]]
    with pools() as (pool, _):
        whole = list(pool.map(lambda item: _is_whole(location, *item), standing))
    return {address: one for (address, one), is_whole in zip(standing, whole, strict=True) if is_whole}


def _stands(location: Location, key: str) -> bool:
    """What was adopted from a process that this one retries is kept for it by the control plane."""
    if not key:
        return True
    exists, parsed = location.storage.exists, Key.parse(key)
    return exists(location.manifest(parsed)) and not exists(location.mark(parsed))


def _is_whole(location: Location, address: str, one: Reuse) -> bool:
    try:
        index = read_index(location, one.place, address, one.index_sha256)
    except DamagedError:
        return False
    return not list(check_sizes(location, one.place, index))


def _part(
    location: Location, payload: BackupPayload, upload: Upload, reuse: Reuse | None, files: Executor
) -> PartReceipt:
    if reuse is not None:
        return PartReceipt(
            address=upload.address,
            place=reuse.place,
            index_sha256=reuse.index_sha256,
            bytes=upload.bytes,
            moved=False,
        )
    generation = f"{payload.process_id}/{payload.task}-{payload.attempt}"
    if upload.objects:
        stored = _store_objects(location, payload, upload, generation, files)
    else:
        stored = store(
            location, Path(upload.path), upload.address, generation, files, hard_links=payload.hard_links
        )
    return PartReceipt(
        address=upload.address,
        place=stored.place,
        index_sha256=stored.index_sha256,
        bytes=upload.bytes,
        moved=True,
    )


def _store_objects(
    location: Location, payload: BackupPayload, upload: Upload, generation: str, files: Executor
) -> Stored:
    listed, buckets = PartObjects.get(location, upload.objects), payload.open_buckets()
    with scratch() as room:
        folder = room / "part"
        outline(buckets, listed.files, folder)
        bring = bringing(buckets, listed, room)
        return store(location, folder, upload.address, generation, files, bring=bring)


def _receipt(payload: BackupPayload, parts: tuple[PartReceipt, ...], seconds: float) -> BackupReceipt:
    return BackupReceipt(
        process_id=payload.process_id,
        task=payload.task,
        attempt=payload.attempt,
        parts=parts,
        rows=sum(upload.rows for upload in payload.uploads),
        bytes=sum(part.bytes for part in parts),
        moved_bytes=sum(part.bytes for part in parts if part.moved),
        seconds=round(seconds, 3),
    )
