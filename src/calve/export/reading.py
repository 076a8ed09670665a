"""The rows of a task as a relation that SQL can read, whatever holds them.

Only the relation differs between modes; everything after it is the same SQL.
"""

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from calve.archive import source
from calve.archive.location import Location
from calve.archive.parts import fetch
from calve.clickhouse.engine.engine import Engine
from calve.clickhouse.engine.scratch import attached
from calve.clickhouse.engine.shared_folder import shared
from calve.clickhouse.server import live, stage
from calve.export.payload import TaskPayload
from calve.model.errors import PermanentError
from calve.model.plan import PartPlan
from calve.objects.storage import Storage

_MEGABYTE = 1_000_000


class Readable(Protocol):
    """A table of the engine that holds a task's rows; `str()` of it is its name, for a FROM clause."""

    def relation_where(self, slices: Sequence[tuple[str, int, int]]) -> str:
        """The exact condition for `(part path, start, end)` slices, in brackets."""

    def path_of(self, scratch_name: str) -> str:
        """The path of the part that is, or came to be in, a part of this table; "" for none."""


_Opened = tuple[Readable, Sequence[str]]  # and the paths of the payload's parts, in their order


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Rows `start` to `end`, by physical offset, of the part in folder `path`."""

    path: str
    start: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, kw_only=True)
class Rows:
    """What a task reads."""

    engine: Engine
    table: Readable
    pieces: tuple[Piece, ...]
    names: Mapping[str, str]  # of the parts at the source, by path
    where: str
    final: bool

    def from_where(self, pieces: Sequence[Piece], condition: str = "") -> str:
        """FROM and WHERE for some of the pieces, deletes and the row filter applied."""
        conditions = [self.table.relation_where([(piece.path, piece.start, piece.end) for piece in pieces])]
        conditions += [f"({text})" for text in (self.where, condition) if text]
        return f"FROM {self.table}{' FINAL' if self.final else ''} WHERE {' AND '.join(conditions)}"

    def part_name(self, scratch_name: str) -> str:
        """The source's name of a part, given the scratch table's."""
        return self.names.get(self.table.path_of(scratch_name), scratch_name)


@contextmanager
def opened(engine: Engine, payload: TaskPayload) -> Iterator[Rows]:
    """The task's rows, readable until the block ends. Source files never change."""
    relation = payload.relation
    way = _WAYS.get(relation.mode)
    if way is None:
        raise PermanentError(
            f"this version does not read rows of the mode {relation.mode!r}",
            code="relation_mode",
            hint="workers and executors must run the same version of calve",
        )
    with way(engine, payload) as (table, paths):
        yield Rows(
            engine=engine,
            table=table,
            pieces=tuple(
                Piece(path=paths[piece.part], start=piece.start, end=piece.end) for piece in payload.slices
            ),
            names={path: part.name for path, part in zip(paths, payload.parts, strict=True)},
            where=relation.where,
            final=relation.final,
        )


@contextmanager
def _attached(engine: Engine, payload: TaskPayload) -> Iterator[_Opened]:
    """Files of parts, seen here or fetched."""
    with (
        _folders(engine, payload) as paths,
        attached(engine, payload.relation.create, paths) as table,
    ):
        yield table, paths


@contextmanager
def _staged(engine: Engine, payload: TaskPayload) -> Iterator[_Opened]:
    """Rows of a server, fetched over HTTP."""
    slices = [(piece.part, piece.start, piece.end) for piece in payload.slices]
    settings = {**payload.settings, "max_memory_usage": str(payload.memory_mb * _MEGABYTE)}
    access = stage.Access.of(payload.source)
    with stage.staged(engine, payload.relation, payload.parts, slices, access, settings) as table:
        yield table, [part.path for part in payload.parts]


_WAYS: Mapping[str, Callable[[Engine, TaskPayload], AbstractContextManager[_Opened]]] = {
    "frozen": _attached,
    source.MODE: _attached,
    live.MODE: _staged,
}


@contextmanager
def _folders(engine: Engine, payload: TaskPayload) -> Iterator[list[str]]:
    """Where each part's files are; those of a backup are fetched first, every byte checked."""
    if payload.relation.mode != source.MODE:
        yield [part.path for part in payload.parts]
        return
    storage = Storage(
        payload.backup, connect_seconds=payload.connect_seconds, call_seconds=payload.call_seconds
    )
    location = Location(payload.relation.detail["location"], storage)
    ranged = _ranged(payload)
    with ExitStack() as stack:
        # if we die here, the folder is swept with the engine's
        own = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=engine.scratch)))
        paths = []
        for at, part in enumerate(payload.parts):
            if at in ranged:
                folder = stack.enter_context(_shared(location, part))
            else:
                folder = own / str(at)
                fetch(location, source.stored_part(part), folder / part.name)
            paths.append(str(folder / part.name))
        yield paths


def _ranged(payload: TaskPayload) -> frozenset[int]:
    """The parts of which other tasks read the rest."""
    return frozenset(
        piece.part
        for piece in payload.slices
        if piece.start > 0 or piece.end < payload.parts[piece.part].rows
    )


def _shared(location: Location, part: PartPlan) -> AbstractContextManager[Path]:
    """A huge part is read by many tasks: a machine fetches it once for all of them. What is stored
    never changes, so its place and the hash of its index say what it is."""
    key = hashlib.sha256(f"{location.url}\n{part.path}\n{part.name}".encode()).hexdigest()[:32]
    return shared(key, lambda folder: fetch(location, source.stored_part(part), folder / part.name))
