"""A scratch table over parts of another table: linked, attached, read, dropped.

The source's files never change: they are hard-linked into `detached/` of a new table; where
another device or owner forbids that they are symbolically linked, and copied only where
links do not exist at all. Merges are stopped before the first part is attached, so what is
attached stays as it was (W8). Each task has a table of its own, dropped with SYNC (W9).
"""

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from calve.clickhouse.engine.ddl import LENIENT
from calve.clickhouse.engine.engine import Engine
from calve.clickhouse.parts.content import read_rows
from calve.clickhouse.reader import Opened, Read
from calve.clickhouse.sql import tokens
from calve.model.errors import CalveError, PermanentError, TemporaryError
from calve.objects.errors import full_disk, is_full

_DATABASE = "calve_scratch"
_NO_HARD_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS})
_NO_SYMBOLIC_LINK = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EOPNOTSUPP})


@dataclass(frozen=True, kw_only=True)
class Attached:
    """A readable table; `str()` of it is its name, quoted, for a FROM clause."""

    table: str
    parts: Mapping[str, str]  # given path -> the part's name in this table (`_part`)
    rows: Mapping[str, int]  # given path -> physical rows, deleted ones counted

    def __str__(self) -> str:
        return self.table

    def path_of(self, scratch_name: str) -> str:
        """The given path of a part of this table; "" for none."""
        return next((path for path, name in self.parts.items() if name == scratch_name), "")

    def relation_where(self, slices: Sequence[tuple[str, int, int]]) -> str:
        """The exact condition for `(part path, start, end)` slices, by physical offset: unions of
        slices neither overlap nor leave gaps, deleted rows or not. Always in brackets."""
        whole = [path for path, start, end in slices if start <= 0 and end >= self.rows[path]]
        if len(whole) == len(self.parts) == len(slices):
            return "(1)"
        conditions = []
        if whole:
            names = ", ".join(tokens.string(self.parts[path]) for path in whole)
            conditions.append(f"_part IN ({names})")
        conditions += [
            f"(_part = {tokens.string(self.parts[path])} AND _part_offset >= {start} AND _part_offset < {end})"
            for path, start, end in slices
            if path not in whole
        ]
        return f"({' OR '.join(conditions) or '0'})"


@contextmanager
def opened(engine: Engine, read: Read) -> Iterator[Opened]:
    """The reader of files that this machine sees; see `clickhouse.reader`."""
    paths = [part.path for part in read.parts]
    with attached(engine, read.relation.create, paths) as table:
        yield table, paths


@contextmanager
def attached(engine: Engine, create: str, part_paths: Sequence[str]) -> Iterator[Attached]:
    """A table made by `create` (with `{table}` for its name) that holds the given parts' folders.
    The same folder name may come from several places."""
    name = engine.new_name()
    table = f"{tokens.name(_DATABASE)}.{tokens.name(name)}"
    # if we die here or below, the whole scratch folder is swept by the next engine
    engine.execute(f"CREATE DATABASE IF NOT EXISTS {tokens.name(_DATABASE)} ENGINE = Atomic")
    engine.execute(create.replace("{table}", table, 1), LENIENT, "making the scratch table")
    drop = f"DROP TABLE IF EXISTS {table} SYNC"
    try:
        engine.execute(f"SYSTEM STOP MERGES {table}")
        folder = _folder(engine, name)
        for path in part_paths:
            _attach(engine, table, folder, Path(path))
        yield _described(engine, name, table, part_paths)
    except BaseException:
        with contextlib.suppress(CalveError):  # what went wrong first is what matters
            engine.execute(drop)
        raise
    engine.execute(drop)


def _folder(engine: Engine, name: str) -> Path:
    found = engine.rows(
        "SELECT data_paths[1] AS path FROM system.tables "
        f"WHERE database = {tokens.string(_DATABASE)} AND name = {tokens.string(name)}"
    )
    return Path(found[0]["path"])


def _attach(engine: Engine, table: str, folder: Path, part: Path) -> None:
    # Attached one after another: a name given twice is free again once its part is attached.
    detached = folder / "detached" / part.name
    try:
        _link_tree(part, detached)
    except FileNotFoundError:
        raise TemporaryError(
            f"part {part} is not there: its pin was released, or this machine does not see its disk",
            code="part_missing",
            hint="every executor must see the source's disk under the same path",
        ) from None
    except OSError as error:
        if is_full(error):  # a part on another disk is copied
            raise full_disk(detached, error.strerror or "") from None
        raise TemporaryError(
            f"part {part} cannot be linked or read: {error.strerror}",
            code="part_unreadable",
            hint="the user that runs the executor needs read access to the source's files",
        ) from None
    engine.execute(
        f"ALTER TABLE {table} ATTACH PART {tokens.string(part.name)}", what=f"attaching part {part}"
    )


def _link_tree(source: Path, target: Path) -> None:
    """Link a part's files, the sub-folders of its projections too."""
    target.mkdir()
    with os.scandir(source) as entries:
        for entry in entries:
            if entry.is_dir():
                _link_tree(Path(entry.path), target / entry.name)
            else:
                _link(Path(entry.path), target / entry.name)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
        return
    except OSError as error:
        if error.errno not in _NO_HARD_LINK:
            raise
    try:
        target.symlink_to(source.absolute())
        target.open("rb").close()  # a link that cannot be read is told here, with its file's name
    except OSError as error:
        if error.errno not in _NO_SYMBOLIC_LINK or target.is_symlink():
            raise
        shutil.copyfile(source, target)


def _described(engine: Engine, name: str, table: str, part_paths: Sequence[str]) -> Attached:
    """Which part became which: every attach takes the next block number of the table."""
    found = engine.rows(
        "SELECT name, rows FROM system.parts WHERE active "
        f"AND database = {tokens.string(_DATABASE)} AND table = {tokens.string(name)} ORDER BY min_block_number"
    )
    expected = [read_rows(Path(path)) for path in part_paths]
    if [row["rows"] for row in found] != expected:
        raise PermanentError(
            f"{len(part_paths)} parts of {sum(expected)} rows were attached, but the engine shows "
            f"{len(found)} of {sum(row['rows'] for row in found)}",
            code="attach_mismatch",
            hint="run CHECK TABLE at the source",
        )
    return Attached(
        table=table,
        parts={path: row["name"] for path, row in zip(part_paths, found, strict=True)},
        rows=dict(zip(part_paths, expected, strict=True)),
    )
