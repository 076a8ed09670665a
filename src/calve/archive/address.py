"""The address of a part: a hash of its files, so that equal content is stored once and another
content under the same part name is never taken for it (P17).

`checksums.txt` has a hash of every data file, so those are covered by their names and sizes and
by its text; the small descriptions beside it (`columns.txt` changes alone when a column is
renamed) are not in it and are hashed themselves. Data is not read: finding out that a part is
stored already costs a few small reads, whatever its size.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from calve.model.errors import PermanentError

_DESCRIPTIONS = frozenset({".txt", ".json"})
ADDRESS_LENGTH = 40


@dataclass(frozen=True, kw_only=True)
class PartFile:
    """One file below a part's folder, projections' included."""

    name: str  # relative, with "/"
    path: Path
    bytes: int

    @property
    def never_changes(self) -> bool:
        """Columns, marks and indexes are written once; ClickHouse may rewrite descriptions."""
        return self.path.suffix not in _DESCRIPTIONS


def part_files(part: Path) -> list[PartFile]:
    """Every file, by name."""
    try:
        found = [
            PartFile(name=path.relative_to(part).as_posix(), path=path, bytes=path.stat().st_size)
            for path in _walk(part)
        ]
    except OSError as error:
        raise _unreadable(part, error) from None
    return sorted(found, key=lambda file: file.name)


def address_of(part: Path) -> str:
    listed = []
    for file in part_files(part):
        described = ""
        if file.path.suffix in _DESCRIPTIONS:
            try:
                described = hashlib.sha256(file.path.read_bytes()).hexdigest()
            except OSError as error:
                raise _unreadable(part, error) from None
        listed.append([file.name, file.bytes, described])
    if not any(name == "checksums.txt" for name, _, _ in listed):
        raise PermanentError(
            f"part {part} has no checksums.txt: it is damaged, or from a ClickHouse older than backups know",
            code="part_unreadable",
            hint="run CHECK TABLE at the source",
        )
    text = json.dumps(listed, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:ADDRESS_LENGTH]


def _walk(folder: Path) -> Iterator[Path]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry)
        else:
            yield entry


def _unreadable(part: Path, error: OSError) -> PermanentError:
    return PermanentError(
        f"part {part} cannot be read: {error.strerror} ({Path(error.filename or '').name})",
        code="part_unreadable",
        hint="give the user that runs Calve read access to the source's files, at the same path",
    )
