"""The plan of a restore: the targets, and every part with the name it is attached by.

Where the parts of one table go, fixed by the plan.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from calve.archive.location import segment
from calve.archive.manifest import PartEntry, TableEntry
from calve.model.record import SPACED, Record

NEW = "new"
DATABASE = "calve_restore"  # of tables that parts are attached to before they go to one that was there
FOLDER = "calve_restore"  # at the root of a disk
NOTES = "calve_restored"  # beside it, and kept: which backups' partitions a table was given


@dataclass(frozen=True, kw_only=True)
class Target:
    """`receiver` is the table that parts are attached to: the target itself if it is new and its disks are
    seen, otherwise a table of ours from which whole partitions then go to it."""

    database: str
    name: str
    uuid: str
    into: str
    receiver_database: str
    receiver_name: str
    data_path: str  # of the receiver, as executors see it
    state: str  # a folder on the same disk: staged parts and marks
    still: bool = True  # the receiver merges nothing, also after a restart
    settings: tuple[tuple[str, str], ...] = ()  # of a new table, put back at the end; "" is the default
    restored: str = ""  # a file that says, as long as the disk lives, what was restored to this table

    @property
    def gathers(self) -> bool:
        return self.receiver_database == DATABASE

    @property
    def detached(self) -> Path:
        return Path(self.data_path) / "detached"

    @property
    def attached_mark(self) -> Path:
        """Every part was attached to the receiver."""
        return Path(self.state) / "attached"

    @property
    def finished_mark(self) -> Path:
        return Path(self.state) / "finished"

    @property
    def given_up_mark(self) -> Path:
        """Partitions may have gone over, and the rest was cleaned away."""
        return Path(self.state) / "given-up"

    def stopped_mark(self, process_id: str) -> Path:
        """That process has ended: a worker that still runs it attaches nothing more."""
        return Path(self.state) / f"stopped-{process_id}"

    def __str__(self) -> str:
        return f"{self.database}.{self.name}"


PARTS_A_TASK = 500
_DATES = re.compile(r"(\d{8}_\d{8})_\d+_\d+_\d+(?:_\d+)?")


@dataclass(frozen=True, kw_only=True)
class RestorePart:
    target: int
    name: str  # its folder's name in `detached`
    entry: PartEntry


@dataclass(frozen=True, kw_only=True)
class RestorePlan(Record):
    process_id: str
    seed: str
    source: str
    location: str
    key: str  # of the backup
    backup_process: str
    targets: tuple[Target, ...]
    parts: tuple[RestorePart, ...]
    tasks: tuple[tuple[int, int], ...]  # ranges of parts
    made: tuple[str, ...] = ()  # what stands at the target, for a person
    left_out: tuple[tuple[str, str], ...] = ()  # what the backup does not hold, and why
    refreshes: tuple[str, ...] = ()  # statements that give refreshable views their schedule
    bytes: int = 0
    version: int = 1


def divide(
    ready: Sequence[tuple[TableEntry, Target]],
    *,
    seed: str,
    partitions: Sequence[str],
    task_bytes_mb: int,
) -> tuple[tuple[RestorePart, ...], tuple[tuple[int, int], ...]]:
    """Parts and tasks; a task is of one target."""
    parts: list[RestorePart] = []
    tasks: list[tuple[int, int]] = []
    budget = max(1, task_bytes_mb) * 1_000_000
    for number, (table, _) in enumerate(ready):
        start, held = len(parts), 0
        for at, entry in enumerate(table.parts):
            if partitions and entry.partition_id not in partitions:
                continue
            if len(parts) > start and (held + entry.bytes > budget or len(parts) - start >= PARTS_A_TASK):
                tasks.append((start, len(parts)))
                start, held = len(parts), 0
            parts.append(RestorePart(target=number, name=detached_name(entry, seed, at), entry=entry))
            held += entry.bytes
        if len(parts) > start:
            tasks.append((start, len(parts)))
    return tuple(parts), tuple(tasks)


def detached_name(entry: PartEntry, seed: str, at: int) -> str:
    """A part name that no other detached part has: the table renumbers its blocks when it
    attaches, so any number does."""
    block = 10**12 + int(hashlib.sha256(seed.encode()).hexdigest()[:8], 16) * 10**5 + at
    dates = _DATES.fullmatch(entry.name)
    head = dates.group(1) if dates and entry.partition_id == entry.name[:6] else entry.partition_id
    return segment(f"{head}_{block}_{block}_0")


REFUSE, APPEND, REPLACE = "refuse", "append", "replace"


@dataclass(frozen=True, kw_only=True)
class Item:
    """One object of the backup, and what it is to be called."""

    database: str
    name: str
    to_database: str
    to_name: str

    @property
    def origin(self) -> tuple[str, str]:
        return self.database, self.name

    @property
    def target(self) -> tuple[str, str]:
        return self.to_database, self.to_name


@dataclass(frozen=True, kw_only=True)
class RestoreRequest(Record, layout=SPACED):
    """Fields added later have defaults (L12). `seed` is kept by a retry: the tables that the first run
    made bear uuids derived from it, and so are known as ours by every later one."""

    backup: str
    number: int  # which use of the name
    backup_process: str
    source: str  # the source to restore to
    items: tuple[Item, ...]
    seed: str
    asked: str = ""  # the command's own words, in one canonical text
    schema: bool = True
    data: bool = True
    existing: str = REFUSE  # what to do with a table that is there already
    partitions: tuple[str, ...] = ()  # ids; none means all
    unsigned: bool = False  # accept a backup that is not signed, where [backup] has a signing key
    rbac: bool = False  # users, roles and the like too
    row_policies: bool = True  # tables that had some get them again
    again: bool = False  # append what was appended before
