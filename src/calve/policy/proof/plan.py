"""A proof: what was asked for, what is read and compared, and what each task found. Written once, never changed.

How deep it is: `rows`: of the time and key of the partitions, readers of the destination see the rows that the source
has now, in all stored columns, and no others. `files`: the files of the export have those rows, and nobody knows of
others. `partial`: one of the two, but for what `notes` names. `destination`: the files hold what the tasks of the export
read. `sample`: the same of some of the files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from calve.destination.names import DestinationAddress
from calve.destination.proof import Scan, ScanFile
from calve.model.process import Lock, NewProcess, NewTask, new_process_id
from calve.model.record import Record
from calve.policy.row_hash import HashedColumn

NAME = "proof"
PRIORITY = -10  # after what exports
_TASK_BYTES = 1_000_000_000
_SAMPLED = 20  # one file group of so many


class Depth(StrEnum):
    ROWS = "rows"
    FILES = "files"
    PARTIAL = "partial"
    DESTINATION = "destination"
    SAMPLE = "sample"


@dataclass(frozen=True, kw_only=True)
class ProofRequest(Record):
    export: str  # the process
    source: str  # in the configuration
    database: str
    table: str
    catalog: str
    identifier: tuple[str, ...]
    storage: str = ""
    sample: bool = False

    @property
    def address(self) -> DestinationAddress:
        return DestinationAddress(catalog=self.catalog, identifier=self.identifier, storage=self.storage)

    def process(
        self,
        *,
        source: str,
        destination: str,
        partitions: Sequence[str],
        needs: Sequence[str],
        deadline_seconds: float,
    ) -> NewProcess:
        """One at a time for each export."""
        return NewProcess(
            id=new_process_id(),
            kind=NAME,
            source=source,
            destination=destination,
            lane=self.address.lane,
            needs=(*self.address.needs, *needs),
            request=self.to_json(),
            partitions=tuple(partitions),
            locks=(Lock(name=f"{NAME}:{self.export}"),),
            priority=PRIORITY,
            deadline_seconds=deadline_seconds,
        )


@dataclass(frozen=True, kw_only=True)
class SourceRows:
    """What is read at the source, and what it must hold before and after."""

    identity: str
    contents: Mapping[str, str]  # by partition
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ProofPlan(Record):
    process_id: str
    export: str
    depth: Depth
    scan: Scan
    tasks: tuple[tuple[int, ...], ...]  # places in the scan's files
    schema: str  # Iceberg's JSON: the columns that are read
    columns: tuple[HashedColumn, ...] = ()  # compared row by row
    rows: SourceRows | None = None  # with which; None: column by column, with what the export's tasks read
    expected: Mapping[str, str] = field(default_factory=dict)  # then, by column
    expected_rows: int = 0
    notes: tuple[str, ...] = ()  # what a deeper proof would need

    @property
    def new_tasks(self) -> tuple[NewTask, ...]:
        """What each reads is here, by its number."""
        return tuple(NewTask(number=number, spec="") for number in range(len(self.tasks)))

    def files(self, number: int) -> tuple[ScanFile, ...]:
        return tuple(self.scan.files[place] for place in self.tasks[number])


@dataclass(frozen=True, kw_only=True)
class ProofReceipt(Record):
    rows: int
    bytes: int
    sums: str = ""  # of its rows, in files of the export
    others: str = ""  # and in other files
    checksums: Mapping[str, str] = field(default_factory=dict)  # or by column
    spent: Mapping[str, float] = field(default_factory=dict)


def grouped(files: Sequence[ScanFile]) -> tuple[tuple[int, ...], ...]:
    """Files of one task: as many as fit, at least one."""
    groups: list[list[int]] = []
    size = 0
    for place, file in enumerate(files):
        if not groups or size + file.bytes > _TASK_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(place)
        size += file.bytes
    return tuple(map(tuple, groups))


def sampled(count: int) -> range:
    """Which of so many receipts a sample takes: the first, and one of each twenty."""
    return range(0, count, _SAMPLED)
