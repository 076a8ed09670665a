"""What the files in a part's folder say, read without an engine.

A folder's name is `<partition id>_<min block>_<max block>_<level>[_<mutation>]`; in tables of
the old syntax the partition is two dates. `count.txt` has the physical rows, `columns.txt`
the columns the part has, `checksums.txt` a hash of every file.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from calve.clickhouse.sql.tokens import tokens
from calve.model.errors import PermanentError

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
