"""What the files in a part's folder say, and the content id of a partition: the same as long as its rows are.

The id is over the lowest and highest block number, the last mutation and the rows that a reader sees.
A plain merge keeps all four: it joins block ranges, carries the mutation on, and drops only
rows that were deleted already. An insert raises the highest block, a mutation (a lightweight
delete is one) has a new number, a dropped part takes its rows along. Block *ranges* are not
used: blocks of one table are numbered across partitions, so a merge also covers numbers that
never were in this one.

In a table that is not replicated, block numbers begin again once the highest blocks were dropped
and the server restarted. The ids of such tables carry the marks of their parts beside the four, and
`calve.destination.content` compares both: a part that repeats a name has other files, and one that no merge
can have made was loaded. The same parts under other numbers were detached and attached. What nobody can see: such a reload of equal counts in equal inserts that
was merged further than what was exported. `calve verify --deep` reads the rows and tells.

Engines whose merges combine rows (Replacing, Summing …) change their content with a merge, and
so does this id.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from calve.clickhouse.sql.tokens import tokens
from calve.destination.content import PartMark, marked
from calve.destination.plan import PartPlan
from calve.model.errors import PermanentError

_VERSION = "c1"
_PARTS_VERSIONS = {"f": "p1", "s": "p2", "t": "p3"}  # by how the hashes were made


@dataclass(frozen=True, kw_only=True)
class Extent:
    """What one part, or a partition as a whole, adds to the content."""

    min_block: int
    max_block: int
    mutation: int
    rows: int  # that a reader sees: lightweight-deleted ones do not count


def whole(extents: Iterable[Extent]) -> Extent:
    """The extent of all of them together. At least one."""
    parts = list(extents)
    return Extent(
        min_block=min(part.min_block for part in parts),
        max_block=max(part.max_block for part in parts),
        mutation=max(part.mutation for part in parts),
        rows=sum(part.rows for part in parts),
    )


def file_hash(text: str) -> str:
    """A hash made here of a part's `checksums.txt`, as marks have it; "" stays unknown."""
    return text and f"f{text}"


def server_hash(text: str, modified: int, size: int) -> str:
    """A server's own `hash_of_all_files`, which is another than `file_hash` of the same part. One that is
    too old for it says when a part was written and its bytes: both stay as long as the part does."""
    if text:
        return f"s{text.lower()}"
    return f"t{hashlib.sha256(f'{modified}:{size}'.encode()).hexdigest()}"


def parts_content(hashes: Iterable[str]) -> str:
    """The content of parts that a person named, from the hashes of their files: the name alone does
    not tell, since a table that was emptied and opened anew numbers its parts from 1 again (P17).
    "" where a hash is not known."""
    known = sorted(hashes)
    kinds = {text[:1] for text in known}
    if len(kinds) != 1 or "" in kinds:
        return ""
    text = ":".join(one[1:] for one in known)
    return f"{_PARTS_VERSIONS[kinds.pop()]}-{hashlib.sha256(text.encode()).hexdigest()[:24]}"


def content_id(extents: Iterable[Extent], marks: Iterable[PartMark] = ()) -> str:
    """The content id of a partition with these parts. Without `marks` where block numbers never begin
    again, as in replicated tables: there the same part may have other files at another replica."""
    extent = whole(extents)
    text = f"{_VERSION}:{extent.min_block}:{extent.max_block}:{extent.mutation}:{extent.rows}"
    return marked(f"{_VERSION}-{hashlib.sha256(text.encode()).hexdigest()[:24]}", marks)


@dataclass(frozen=True, kw_only=True)
class PartFacts:
    """What everybody knows who lists parts."""

    name: str
    partition_id: str
    rows: int  # physical: what offsets count, lightweight-deleted ones too
    bytes: int
    min_block: int
    max_block: int
    level: int
    mutation: int  # the last that changed it; 0 for none
    data_version: int

    @property
    def facts(self) -> dict[str, Any]:
        """For one who knows more of the same part."""
        return {one.name: getattr(self, one.name) for one in fields(PartFacts)}

    def extent_with(self, rows_seen: int) -> Extent:
        return Extent(
            min_block=self.min_block, max_block=self.max_block, mutation=self.mutation, rows=rows_seen
        )

    def mark_with(self, hashed: str) -> PartMark:
        return PartMark(
            min_block=self.min_block,
            max_block=self.max_block,
            level=self.level,
            mutation=self.mutation,
            rows=self.rows,
            hash=hashed,
        )

    def plan_with(self, *, path: str = "", disk: str = "default", content: str) -> PartPlan:
        return PartPlan(
            name=self.name,
            partition_id=self.partition_id,
            rows=self.rows,
            bytes=self.bytes,
            path=path,
            disk=disk,
            min_block=self.min_block,
            max_block=self.max_block,
            level=self.level,
            data_version=self.data_version,
            content=content,
        )


@dataclass(frozen=True, kw_only=True)
class FiledPart(PartFacts):
    """A part whose files were at hand."""

    rows_seen: int  # without lightweight-deleted ones
    content: str  # a hash of its checksums.txt: what a table's own parts are compared by

    @property
    def extent(self) -> Extent:
        return self.extent_with(self.rows_seen)

    @property
    def mark(self) -> PartMark:
        return self.mark_with(file_hash(self.content))


_NAME = re.compile(r"(?P<partition>[^_]+)_(?P<low>\d+)_(?P<high>\d+)_(?P<level>\d+)(?:_(?P<mutation>\d+))?")
_OLD_NAME = re.compile(
    r"(?P<first>\d{8})_(?P<last>\d{8})_(?P<low>\d+)_(?P<high>\d+)_(?P<level>\d+)(?:_(?P<mutation>\d+))?"
)
_ROW_EXISTS = "_row_exists"  # the mask of lightweight deletes


@dataclass(frozen=True, kw_only=True)
class PartName:
    """A part's name, taken apart."""

    partition_id: str
    min_block: int
    max_block: int
    level: int
    mutation: int = 0  # 0: never mutated

    @property
    def data_version(self) -> int:
        """As `system.parts` has it."""
        return self.mutation or self.min_block


def parse_name(text: str, *, old_syntax: bool = False) -> PartName | None:
    """None for what is no part: `detached`, `format_version.txt`, `tmp_…`. The table has to say
    which syntax it is: a mutated part of today may look like one of old."""
    found = (_OLD_NAME if old_syntax else _NAME).fullmatch(text)
    if found is None:
        return None
    return PartName(
        partition_id=found["first"][:6] if old_syntax else found["partition"],
        min_block=int(found["low"]),
        max_block=int(found["high"]),
        level=int(found["level"]),
        mutation=int(found["mutation"] or 0),
    )


def read_rows(part: Path) -> int:
    """Physical rows: lightweight-deleted ones count."""
    return int(_read(part / "count.txt"))


def read_columns(part: Path) -> frozenset[str]:
    """The columns whose values the part itself has; others get their defaults when read."""
    # "columns format version: 1\n2 columns:\n`id` UInt64\n…": each line opens with a quoted name,
    # and a line break inside of a name is escaped.
    lines = _read(part / "columns.txt").split("\n")[2:]
    return frozenset(next(tokens(line)).value for line in lines if line)


def has_deleted_rows(part: Path) -> bool:
    """Whether a lightweight delete left its mask in the part."""
    return _ROW_EXISTS in _read(part / "columns.txt") and _ROW_EXISTS in read_columns(part)


def content_hash(part: Path) -> str:
    """A hash over the hashes of all files: two parts of one name with other content differ (P17)."""
    try:
        return hashlib.sha256((part / "checksums.txt").read_bytes()).hexdigest()[:32]
    except OSError as error:
        raise _unreadable(part, error) from None


def size(part: Path) -> int:
    """Bytes of all files, those of projections too."""
    try:
        return sum(path.stat().st_size for path in part.rglob("*") if path.is_file())
    except OSError as error:
        raise _unreadable(part, error) from None


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "surrogateescape")
    except OSError as error:
        raise _unreadable(path.parent, error) from None


def _unreadable(part: Path, error: OSError) -> PermanentError:
    return PermanentError(
        f"part {part} cannot be read: {error.strerror} ({Path(error.filename or '').name})",
        code="part_unreadable",
        hint="the user that runs Calve needs read access to the source's files",
    )
