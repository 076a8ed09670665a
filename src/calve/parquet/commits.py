"""Commit objects: one for each key and generation, put if-none-match, never changed.

The generations of a key have no gaps: the next one is put only when all before it are taken. The
highest that is not a tombstone is what the destination shows of the key. A tombstone is a commit that
publishes nothing: it takes the name that a late put would need.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from calve.destination.content import input_of
from calve.destination.outcome import EarlierExport
from calve.destination.plan import ExportPlan, KeyPlan
from calve.destination.receipt import Receipt
from calve.model.errors import DamagedError, RefusedError
from calve.model.record import READABLE, Record
from calve.objects.uri import is_below

_OURS = re.compile(r"calve-[A-Za-z0-9-]+-\d+-\d+-\d+\.parquet")


@dataclass(frozen=True, kw_only=True)
class ListedFile:
    """A data file that readers may take."""

    path: str  # the full URI
    rows: int
    bytes: int
    sha256: str
    partition: tuple[Any, ...] = ()


@dataclass(frozen=True, kw_only=True)
class KeyCommit(Record, layout=READABLE):
    """What one commit object says."""

    key: str  # the hash
    generation: int
    process: str
    tombstone: bool = False
    input: tuple[str, str, str] = ("", "", "")  # source identity, partition, selection
    content: str = ""
    rows: int = 0
    bytes: int = 0
    files: tuple[ListedFile, ...] = ()
    version: int = 1

    @classmethod
    def of(cls, plan: ExportPlan, process_id: str, receipts: Sequence[Receipt], generation: int) -> Self:
        key = only_key(plan)
        files = tuple(
            ListedFile(
                path=file.path, rows=file.rows, bytes=file.bytes, sha256=file.sha256, partition=file.partition
            )
            for receipt in receipts
            for file in receipt.files
        )
        return cls(
            key=key.hash,
            generation=generation,
            process=process_id,
            input=input_of(key),
            content=key.content,
            rows=sum(file.rows for file in files),
            bytes=sum(file.bytes for file in files),
            files=files,
        )

    @property
    def id(self) -> str:
        """What stands where an Iceberg export has its snapshot's id."""
        return f"{self.key}.{self.generation}"

    @property
    def export(self) -> EarlierExport:
        identity, partition, selection = self.input
        return EarlierExport(
            key_hash=self.key,
            process_id=self.process,
            snapshot_id=str(self.generation),
            content=self.content,
            rows=self.rows,
            files=len(self.files),
            input=(identity, partition, selection),
        )


def parse(uri: str, data: bytes) -> KeyCommit:
    """RefusedError for anything else under that name."""
    try:
        return KeyCommit.from_json(data, uri)
    except DamagedError as cause:
        raise RefusedError(
            f"{uri} cannot be read as a commit: it was changed by hand or damaged",
            code="mark_unreadable",
            hint="put it back from a backup or an older version of the object; without one, delete it with the data"
            " files that no other commit lists, and export its partition again. --allow-overlap exports other"
            " partitions in the meantime",
        ) from cause


def refuse_foreign(location: str, commits: Sequence[KeyCommit]) -> None:
    """RefusedError before anything that these commits list is deleted: a commit object is data from
    outside, and only files of ours below the location are ours to delete (T9)."""
    for commit in commits:
        for file in commit.files:
            name = file.path.rpartition("/")[2]
            if not is_below(file.path, location) or not _OURS.fullmatch(name):
                raise RefusedError(
                    f"the commit {commit.key}.{commit.generation} in {location} lists {file.path}, "
                    "which is not a data file of Calve below that location",
                    code="foreign_file",
                    hint="nothing was deleted; if the folder was moved, export to a new location",
                )


def only_key(plan: ExportPlan) -> KeyPlan:
    """A process publishes one key here, so that one put is the whole publish. Iceberg shares a
    commit among keys because each one costs a snapshot; here a commit costs one small object."""
    [key] = plan.keys
    return key


def shown(commits: Sequence[KeyCommit]) -> KeyCommit | None:
    """What the destination shows of a key, of its generations in order."""
    return next((commit for commit in reversed(commits) if not commit.tombstone), None)
