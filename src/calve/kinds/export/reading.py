"""The rows of a task as a relation that SQL can read, whatever holds them.

Only the relation differs between modes; everything after it is the same SQL.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from calve.kinds.export.payload import TaskPayload
from calve.model.errors import PermanentError
from calve.source.engine import Engine
from calve.source.scratch import Attached, attached

_ATTACHED_MODES = frozenset({"frozen", "backup"})


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
    table: Attached
    pieces: tuple[Piece, ...]
    where: str
    final: bool

    def from_where(self, pieces: Sequence[Piece], condition: str = "") -> str:
        """FROM and WHERE for some of the pieces, deletes and the row filter applied."""
        conditions = [self.table.relation_where([(piece.path, piece.start, piece.end) for piece in pieces])]
        conditions += [f"({text})" for text in (self.where, condition) if text]
        return f"FROM {self.table}{' FINAL' if self.final else ''} WHERE {' AND '.join(conditions)}"

    def part_name(self, scratch_name: str) -> str:
        """The source's name of a part, given the scratch table's."""
        for path, name in self.table.parts.items():
            if name == scratch_name:
                return path.rstrip("/").rsplit("/", 1)[-1]
        return scratch_name


@contextmanager
def opened(engine: Engine, payload: TaskPayload) -> Iterator[Rows]:
    """The task's rows, readable until the block ends. Source files never change."""
    relation = payload.relation
    if relation.mode not in _ATTACHED_MODES:
        raise PermanentError(
            f"this version does not read rows of the mode {relation.mode!r}",
            code="relation_mode",
            hint="workers and executors must run the same version of calve",
        )
    with attached(engine, relation.create, [part.path for part in payload.parts]) as table:
        yield Rows(
            engine=engine,
            table=table,
            pieces=tuple(
                Piece(path=payload.parts[piece.part].path, start=piece.start, end=piece.end)
                for piece in payload.slices
            ),
            where=relation.where,
            final=relation.final,
        )
