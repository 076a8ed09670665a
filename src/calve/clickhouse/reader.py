"""Rows on an executor: a task's rows as a relation that SQL can read, whatever holds them.

Only the relation differs between sources; everything after it is the same SQL. A source names its
reader, a function of the form

    def opened(engine: Engine, read: Read) -> AbstractContextManager[Opened]

and the payload carries that name with what the reader needs. Executors alone import it.
"""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from calve.destination.plan import PartPlan, Relation, Slice
from calve.model.errors import PermanentError

if TYPE_CHECKING:
    from calve.clickhouse.engine.engine import Engine

_OURS = "calve."


@dataclass(frozen=True, kw_only=True)
class Reader:
    """How executors read a relation. `access` may hold secrets: shipped, never stored or printed (P22)."""

    function: str  # "module:name"
    access: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True)
class Read:
    """What a reader is asked for."""

    relation: Relation
    parts: tuple[PartPlan, ...]
    slices: tuple[Slice, ...]  # by place in `parts`
    access: Mapping[str, str] = field(default_factory=dict, repr=False)  # of its `Reader`
    settings: Mapping[str, str] = field(default_factory=dict)
    memory_mb: int = 1000
    connect_seconds: float = 5.0
    call_seconds: float = 15.0


class Readable(Protocol):
    """A table of the engine that holds a task's rows; `str()` of it is its name, for a FROM clause."""

    def relation_where(self, slices: Sequence[tuple[str, int, int]]) -> str:
        """The exact condition for `(part path, start, end)` slices, in brackets."""

    def path_of(self, scratch_name: str) -> str:
        """The path of the part that is, or came to be in, a part of this table; "" for none."""


Opened = tuple[Readable, Sequence[str]]  # and the paths of `Read.parts`, in their order


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

    engine: "Engine"
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

    def named(self, files: Sequence[Path]) -> str:
        """The parts that these files of the scratch table belong to; all parts if none is known."""
        paths = {self.table.path_of(folder) for file in files for folder in file.parts} - {""}
        parts = sorted(self.names[path] for path in paths) or sorted(self.names.values())
        return f"part {parts[0]}" if len(parts) == 1 else f"one of the parts {', '.join(parts)}"


@contextmanager
def opened(engine: "Engine", function: str, read: Read) -> Iterator[Rows]:
    """The task's rows, readable until the block ends. Source files never change."""
    module, _, name = function.partition(":")
    try:
        if not module.startswith(_OURS):
            raise ImportError
        reader = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        raise unknown_mode(function) from None
    with reader(engine, read) as (table, paths):
        rows = Rows(
            engine=engine,
            table=table,
            pieces=tuple(
                Piece(path=paths[piece.part], start=piece.start, end=piece.end) for piece in read.slices
            ),
            names={path: part.name for path, part in zip(paths, read.parts, strict=True)},
            where=read.relation.where,
            final=read.relation.final,
        )
        with engine.naming(rows.named):
            yield rows


def unknown_mode(mode: str) -> PermanentError:
    return PermanentError(
        f"this version cannot read rows by {mode!r}",
        code="relation_mode",
        hint="workers and executors must run the same version of calve",
    )
