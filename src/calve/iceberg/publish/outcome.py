"""What a look at the table, a publish and a fence can answer. Snapshot ids are text, as people see them."""

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
    shared: bool = False  # its files cannot be told from those of other keys of that process
    input: tuple[str, str, str] = ("", "", "")  # source identity, partition, selection


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
class Fenced:
    """No commit of this process can land any more."""

    tag: str
