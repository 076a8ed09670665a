"""A drill: what was asked for, what is looked at, read back and restored, and what each task found.

It proves a backup, all of which stays where it is. `read_share` of its bytes are read back, after every object was
looked at; parts up to `restore_bytes` are restored into an engine of their own, read row by row, and removed.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from calve.archive.location import Key, Location
from calve.archive.manifest import Manifest, PartEntry
from calve.model import reach
from calve.model.process import Lock, NewProcess, new_process_id
from calve.model.record import Record
from calve.objects.storage import Storage

NAME = "drill"
PRIORITY = -10  # after what makes backups
RESTORED = "restored"  # how a proof names it
_PARTS_AT_ONCE = 500  # that one task looks at
_TASK_BYTES = 1_000_000_000  # that one task restores
_MOST_PARTS = 1000  # of a sample


@dataclass(frozen=True, kw_only=True)
class DrillRequest(Record):
    backup: str
    backup_process: str  # that made it
    location: str
    read_share: float = 0.0  # 0 to 1
    restore_bytes: int = 0
    schedule: str = ""  # that asked for it

    @property
    def depth(self) -> str:
        return RESTORED if self.restore_bytes else f"{self.read_share:.0%} of the data"

    @property
    def asked_by(self) -> str:
        """Where a process has its destination, which a drill has not: so one schedule's drills are found together."""
        if not self.schedule:
            return NAME
        return f"schedule {self.schedule}{'' if self.restore_bytes else ', read back'}"

    def process(self, *, deadline_seconds: float) -> NewProcess:
        """One of each sort at a time for each backup."""
        what = "restore" if self.restore_bytes else "read"
        return NewProcess(
            id=new_process_id(),
            kind=NAME,
            source=f"{self.location.rstrip('/')}/{self.backup}",
            destination=self.asked_by,
            lane=reach.backup(self.location),
            needs=(reach.backup(self.location),),
            request=self.to_json(),
            locks=(Lock(name=f"{NAME} {self.location} {self.backup_process} {what}"),),
            priority=PRIORITY,
            deadline_seconds=deadline_seconds,
        )


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Parts of one table, by their places in the manifest."""

    table: int
    parts: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class DrillPlan(Record):
    process_id: str
    key: str  # of the backup
    backup_process: str
    location: str
    manifest: str  # its hash: tasks read the very one that was trusted
    spans: tuple[tuple[int, int], ...] = ()  # of stored parts to look at: first and end, a task each
    samples: tuple[Sample, ...] = ()  # to restore, a task each after those
    read_share: float = 0.0
    bytes: int = 0

    @property
    def tasks(self) -> int:
        return len(self.spans) + len(self.samples)


def spans_of(manifest: Manifest) -> tuple[tuple[int, int], ...]:
    stored = len(manifest.places)
    return tuple((at, min(at + _PARTS_AT_ONCE, stored)) for at in range(0, stored, _PARTS_AT_ONCE)) or (
        (0, 0),
    )


def sample(manifest: Manifest, quota: int, seed: str) -> tuple[Sample, ...]:
    """Parts at random, of all tables, until no other fits into the quota."""
    drawn = random.Random(seed)
    places = [
        (table, part) for table, entry in enumerate(manifest.tables) for part in range(len(entry.parts))
    ]
    drawn.shuffle(places)
    chosen: dict[int, list[int]] = {}
    left = quota
    for table, part in places[:]:
        size = manifest.tables[table].parts[part].bytes
        if size <= left and sum(map(len, chosen.values())) < _MOST_PARTS:
            chosen.setdefault(table, []).append(part)
            left -= size
    return tuple(
        Sample(table=table, parts=tuple(some))
        for table, parts in sorted(chosen.items())
        for some in _binned(manifest.tables[table].parts, sorted(parts))
    )


def _binned(parts: Sequence[PartEntry], chosen: Sequence[int]) -> list[list[int]]:
    bins: list[list[int]] = [[]]
    size = 0
    for part in chosen:
        if bins[-1] and size + parts[part].bytes > _TASK_BYTES:
            bins.append([])
            size = 0
        bins[-1].append(part)
        size += parts[part].bytes
    return bins


@dataclass(frozen=True, kw_only=True)
class DrillPayload(Record):
    """One task: parts to look at (`end` above 0), or a sample to restore."""

    key: str
    backup_process: str
    location: str
    manifest: str
    first: int = 0
    end: int = 0
    read_share: float = 0.0
    sample: Sample | None = None
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    connect_seconds: float = 5.0
    call_seconds: float = 15.0
    stall_seconds: float = 60.0

    @classmethod
    def of(cls, plan: DrillPlan, *, task: int, storage: Mapping[str, str], **seconds: float) -> Self:
        first, end = plan.spans[task] if task < len(plan.spans) else (0, 0)
        return cls(
            key=plan.key,
            backup_process=plan.backup_process,
            location=plan.location,
            manifest=plan.manifest,
            first=first,
            end=end,
            read_share=plan.read_share,
            sample=None if task < len(plan.spans) else plan.samples[task - len(plan.spans)],
            storage=storage,
            **seconds,
        )

    def open(self) -> Location:
        storage = Storage(self.storage, connect_seconds=self.connect_seconds, call_seconds=self.call_seconds)
        return Location(self.location, storage)

    @property
    def of_backup(self) -> Key:
        return Key.parse(self.key)


@dataclass(frozen=True, kw_only=True)
class DrillReceipt(Record):
    rows: int = 0
    parts: int = 0
    bytes: int = 0  # that were read
    flaws: tuple[str, ...] = ()
    sums: str = ""  # of all rows of the sample, where some were restored
    table: str = ""
    spent: Mapping[str, float] = field(default_factory=dict)
