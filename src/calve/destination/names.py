"""The names of the files that Calve leaves at a destination, each with its format and its parse. Defined
here only; what it leaves inside a table is in `calve.iceberg.publish.marks`.

Every one holds the id of its process: nothing without it is ever touched, and orphan removal tells
from it whose a file is (D15). An attempt is in every data file's name and in every receipt's, so no two
attempts write one object (D4), and no receipt has the name of a data file (L9).

| what               | name                                            | where                              |
| ------------------ | ----------------------------------------------- | ---------------------------------- |
| data file          | `calve-<process>-<task>-<attempt>-<n>.parquet`  | where the destination's placement says |
| receipt            | `<process>/<task>-<attempt>.json`               | under the receipts' location       |
| manifest           | `calve-<process>-<snapshot>-m<n>.avro`          | the table's metadata               |
| manifest list      | `snap-<snapshot>-0-calve-<process>.avro`        | the table's metadata               |
| manifest list of a fence | `snap-<snapshot>-0-calve-fence-<process>.avro` | the table's metadata             |
| commit of a key    | `<key hash>.<generation>.json`                  | `_calve/commits` of a plain folder |
"""

import re
from dataclasses import dataclass
from typing import Self

FENCE = "fence-"  # before the process's id in the metadata files of its fence
RECEIPTS = "metadata/calve"  # under a table's location
_DATA_FILE = re.compile(r"(?:^|[-/])calve-([a-z0-9]+)-(\d+)-(\d+)-(\d+)\.parquet$")
_COMMIT = re.compile(r"(?:^|/)([0-9a-f]+)\.(\d+)\.json$")
_MARKED = re.compile(rf"(?:^|-)calve-(?:{FENCE})?([a-z0-9]+)(?=[-.])")
_RECEIPT = re.compile(rf"/{RECEIPTS}/([^/]+)/[^/]+$")


@dataclass(frozen=True, kw_only=True)
class DataFileName:
    process_id: str
    task: int
    attempt: int
    number: int

    def __str__(self) -> str:
        return f"calve-{self.process_id}-{self.task}-{self.attempt}-{self.number}.parquet"

    @classmethod
    def parse(cls, uri: str) -> Self | None:
        """None for a file of someone else. A location provider may put a prefix and a `-` before it."""
        found = _DATA_FILE.search(uri)
        if found is None:
            return None
        process_id, *numbers = found.groups()
        task, attempt, number = map(int, numbers)
        return cls(process_id=process_id, task=task, attempt=attempt, number=number)


@dataclass(frozen=True, kw_only=True)
class CommitName:
    """Of plain Parquet."""

    key: str
    generation: int

    def __str__(self) -> str:
        return f"{self.key}.{self.generation}.json"

    @classmethod
    def parse(cls, uri: str) -> Self | None:
        found = _COMMIT.search(uri)
        return None if found is None else cls(key=found[1], generation=int(found[2]))


def receipts_of(receipts_location: str, process_id: str) -> str:
    """The folder of a process's receipts."""
    return f"{receipts_location.rstrip('/')}/{process_id}"


def receipt_uri(receipts_location: str, process_id: str, task: int, attempt: int) -> str:
    return f"{receipts_of(receipts_location, process_id)}/{task}-{attempt}.json"


def manifest_name(process_id: str, snapshot_id: int | str, number: int) -> str:
    return f"calve-{process_id}-{snapshot_id}-m{number}.avro"


def manifest_list_name(process_id: str, snapshot_id: int | str) -> str:
    return f"snap-{snapshot_id}-0-calve-{process_id}.avro"


def is_metadata_of(process_id: str, uri: str) -> bool:
    """Whether a metadata file is a manifest or a manifest list of some attempt of that process."""
    name = uri.rsplit("/", 1)[-1]
    return name.startswith(f"calve-{process_id}-") or name.endswith(f"-calve-{process_id}.avro")


def is_receipt(uri: str) -> bool:
    """Of an Iceberg table, in its own folder."""
    return _RECEIPT.search(uri) is not None


def process_of(uri: str) -> str | None:
    """The process that any of these files is named after."""
    if receipt := _RECEIPT.search(uri):
        return receipt[1]
    marked = _MARKED.search(uri.rsplit("/", 1)[-1])
    return marked[1] if marked else None
