"""What a destination can answer. Snapshot ids are text, as people see them: an Iceberg snapshot's id, or the
key and generation of a commit of plain Parquet."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class EarlierExport:
    """One key as the table remembers it."""

    key_hash: str
    process_id: str
    snapshot_id: str
    content: str = ""  # of the input; "" where only a snapshot's summary remembers the key
    rows: int = 0
    files: int = 0
    tasks: tuple[int, ...] | None = None  # the tasks that wrote its files; None: every task of the process
    adopted: Mapping[str, tuple[int, ...]] | None = None  # by other processes, which did: tasks of theirs
    shared: bool = False  # its files also hold rows of other keys of that process
    input: tuple[str, str, str] = ("", "", "")  # source identity, partition, selection
    sequence: int = 0  # of its snapshot; 0 where it is not known
    missing: str = ""  # what of it is no longer there, for a person; "" where all is
    deleted: bool = False  # and it was deleted there, not rolled back
    top: int = 0  # the highest block that it covers, with its increments; 0 where it is not known
    own_content: str = ""  # where `content` is that of its last increment
    increments: tuple["EarlierExport", ...] = ()  # of a whole partition: new parts that were added since
    released: str = ""  # the process that released the key: the table may have its only rows

    @property
    def contents(self) -> tuple[str, ...]:
        """Its own and those of its increments."""
        return self.own_content or self.content, *(one.content for one in self.increments)


@dataclass(frozen=True, kw_only=True)
class PublishedSnapshot:
    """The process's files are, or were, visible under this snapshot."""

    process_id: str
    snapshot_id: str
    rows: int
    files: int
    bytes: int
    replaced_rows: int = 0
    replaced_files: int = 0
    expired: bool = False  # the snapshot itself is gone; a lasting mark remembers it


@dataclass(frozen=True, kw_only=True)
class AlreadyExported:
    """Every key of the plan was published by another process; nothing was published."""

    exports: tuple[EarlierExport, ...]
    unchanged: bool  # what they exported is what this plan would


@dataclass(frozen=True, kw_only=True)
class PublishFenced:
    """No commit of this process can land any more."""

    tag: str


@dataclass(frozen=True, kw_only=True)
class Undone:
    """What became of a process's files."""

    deleted: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    reason: str = ""  # why they were left; "" when nothing was
    in_use: bool = False  # they were left because they are published

    @property
    def message(self) -> str:
        return f"{len(self.left)} files were left: {self.reason}" if self.left or self.reason else ""


@dataclass(frozen=True, kw_only=True)
class ColumnProof:
    """One column: what the tasks computed, and what was read back."""

    name: str
    expected: str
    found: str

    @property
    def same(self) -> bool:
        return self.expected == self.found


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What a verification found."""

    snapshot_id: str
    files: int
    expected_rows: int
    found_rows: int
    columns: tuple[ColumnProof, ...]

    @property
    def faults(self) -> tuple[str, ...]:
        rows = (
            (f"{self.found_rows} rows found, {self.expected_rows} exported",)
            if self.found_rows != self.expected_rows
            else ()
        )
        return rows + tuple(
            f"column {column.name} differs: checksum {column.found}, exported {column.expected}"
            for column in self.columns
            if not column.same
        )

    @property
    def ok(self) -> bool:
        return not self.faults
