"""Parts that a source holds by links of its own, and where their files are: in a folder, or in objects of a bucket."""

from dataclasses import dataclass

from calve.clickhouse.parts.content import PartFacts


@dataclass(frozen=True, kw_only=True)
class FileObject:
    """A file of a part on a disk in object storage."""

    name: str  # below the part's folder
    bytes: int
    uri: str  # of the one object that has its bytes; "" for a file without any


@dataclass(frozen=True, kw_only=True)
class LinkedPart(PartFacts):
    """By the source's own name, not by that of the link."""

    rows_seen: int  # without lightweight-deleted ones
    disk: str
    folder: str  # "" where its files cannot be seen from here
    files: tuple[FileObject, ...]  # where they cannot; without those that have no byte
