"""On an executor: a task's rows, fetched from a server into a scratch table, then read like any other.

The engine itself fetches (`url(…, Native)`), so rows never become Python objects. They are staged
because a task reads its rows several times, and because only so a stream that is cut in the
middle is known before a single file is written: what came is counted against the plan.
"""

import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from calve.clickhouse.engine.engine import Engine, trust
from calve.clickhouse.engine.scratch import attached
from calve.clickhouse.reader import Opened, Read
from calve.clickhouse.server.fetch import Access, Fetch
from calve.clickhouse.server.live import LiveTable, named_aliases
from calve.clickhouse.sql import tokens
from calve.destination.plan import PartPlan, Relation
from calve.model.errors import PermanentError

_MEGABYTE = 1_000_000
# Staged rows are read twice and then dropped. Compressing them costs 8 % of a task, so they are compressed only where
# room is short: the other tasks of this machine stage theirs at the same time.
_SHARE_OF_ROOM = 8


@dataclass(frozen=True, kw_only=True)
class _Block:
    """One part of the scratch table: rows `first` and on of a slice."""

    name: str
    first: int
    rows: int


@dataclass(frozen=True, kw_only=True)
class _StagedSlice:
    path: str
    start: int
    end: int
    blocks: tuple[_Block, ...]

    @property
    def rows(self) -> int:
        return sum(block.rows for block in self.blocks)

    def conditions(self, start: int, end: int) -> Iterator[str]:
        """Of a range of physical offsets. Deleted rows did not come, so offsets here are smaller; a
        range maps to staged rows so that ranges without gap or overlap stay so."""
        low = min(start - self.start, self.rows)
        high = self.rows if end >= self.end else min(end - self.start, self.rows)
        for block in self.blocks:
            first, last = max(low - block.first, 0), min(high - block.first, block.rows)
            if first >= last:
                continue
            text = f"_part = {tokens.string(block.name)}"
            if (first, last) != (0, block.rows):
                text += f" AND _part_offset >= {first} AND _part_offset < {last}"
            yield f"({text})"


@dataclass(frozen=True, kw_only=True)
class Staged:
    """A readable table; `str()` of it is its name. Answers what `scratch.Attached` answers."""

    table: str
    slices: tuple[_StagedSlice, ...]

    def __str__(self) -> str:
        return self.table

    def path_of(self, scratch_name: str) -> str:
        """The path of the part whose rows came to be in a part of this table; "" for none."""
        holding = (
            piece.path for piece in self.slices if any(block.name == scratch_name for block in piece.blocks)
        )
        return next(holding, "")

    def relation_where(self, slices: Sequence[tuple[str, int, int]]) -> str:
        """The exact condition for `(part path, start, end)` slices of those that were staged."""
        if list(slices) == [(piece.path, piece.start, piece.end) for piece in self.slices]:
            return "(1)"
        conditions = [
            text for path, start, end in slices for text in self._holding(path, start).conditions(start, end)
        ]
        return f"({' OR '.join(conditions) or '0'})"

    def _holding(self, path: str, start: int) -> _StagedSlice:
        for piece in self.slices:
            if piece.path == path and piece.start <= start < piece.end:
                return piece
        raise PermanentError(f"row {start} of part {path} was not staged", code="not_staged")


@contextmanager
def opened(engine: Engine, read: Read) -> Iterator[Opened]:
    """The reader of a server's rows, fetched over HTTP; see `clickhouse.reader`."""
    slices = [(piece.part, piece.start, piece.end) for piece in read.slices]
    settings = {**read.settings, "max_memory_usage": str(read.memory_mb * _MEGABYTE)}
    with staged(engine, read.relation, read.parts, slices, Access.of(read.access), settings) as table:
        yield table, [part.path for part in read.parts]


@contextmanager
def staged(
    engine: Engine,
    relation: Relation,
    parts: Sequence[PartPlan],
    slices: Sequence[tuple[int, int, int]],
    access: Access,
    settings: Mapping[str, str],
) -> Iterator[Staged]:
    """The rows of `(place in parts, start, end)` slices, all of them, readable until the block ends."""
    live = LiveTable.of(relation)
    trust(access.ca_file, live.source)
    aliases = named_aliases(live, relation.where)
    create = _with_columns(relation.create, aliases)
    with attached(engine, create, ()) as empty:
        if not relation.final and _has_room(engine, _bytes(parts, slices)):
            engine.execute(f"ALTER TABLE {empty} MODIFY SETTING default_compression_codec = 'NONE'")
        database, table = (
            word.value for word in tokens.tokens(str(empty)) if word.sort is tokens.Sort.QUOTED
        )
        fetch = Fetch(engine, live, relation, aliases, access, str(empty))
        found = []
        seen = 0
        for place, start, end in slices:
            fetch.slice(parts[place], start, end, settings)
            blocks, seen = _new_blocks(engine, database, table, seen)
            piece = _StagedSlice(path=parts[place].path, start=start, end=end, blocks=blocks)
            fetch.check(parts[place], start, end, piece.rows)
            found.append(piece)
        yield Staged(table=fetch.target, slices=tuple(found))


def _bytes(parts: Sequence[PartPlan], slices: Sequence[tuple[int, int, int]]) -> float:
    """Of the values of these slices, before compression."""
    if not all(parts[place].uncompressed for place, _, _ in slices):  # not known
        return math.inf
    return sum(
        parts[place].uncompressed / max(parts[place].rows, 1) * (end - start) for place, start, end in slices
    )


def _has_room(engine: Engine, size: float) -> bool:
    return size * _SHARE_OF_ROOM < shutil.disk_usage(engine.scratch).free


def _with_columns(create: str, columns: Mapping[str, str]) -> str:
    added = "".join(f"{tokens.name(key)} {kind}, " for key, kind in columns.items())
    return create.replace("{table} (", "{table} (" + added, 1)


def _new_blocks(engine: Engine, database: str, table: str, seen: int) -> tuple[tuple[_Block, ...], int]:
    """The parts that the last insert made, in order; an insert takes block numbers upwards."""
    found = engine.rows(
        "SELECT name, rows, max_block_number AS block FROM system.parts WHERE active "
        f"AND database = {tokens.string(database)} AND table = {tokens.string(table)} "
        f"AND min_block_number > {seen} ORDER BY min_block_number"
    )
    blocks, first = [], 0
    for row in found:
        blocks.append(_Block(name=row["name"], first=first, rows=row["rows"]))
        first += row["rows"]
    return tuple(blocks), found[-1]["block"] if found else seen
