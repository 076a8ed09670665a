"""What a pin holds: all that planning needs, so that nothing later asks the source.

`pin` takes a pin by FREEZE and describes it in one visit; the description is kept in the pin's
journal entry. `release` releases a pin of which perhaps only the name is known. Both are called
through `Source`: a server has its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from calve.clickhouse.engine.ddl import scratch_table
from calve.clickhouse.parts.content import Extent, content_id, parts_content
from calve.clickhouse.pins import freeze
from calve.clickhouse.source import Session
from calve.clickhouse.tables import Column, TableInfo
from calve.destination.content import PartMark
from calve.destination.plan import PartPlan, Relation
from calve.model.errors import RefusedError
from calve.model.record import Record, loads

FROZEN = "frozen"  # the mode of a relation whose parts are files that executors see
FROZEN_READER = "calve.clickhouse.engine.scratch:opened"


@dataclass(frozen=True, kw_only=True)
class PinRequest:
    """What to hold of a table."""

    database: str
    table: str
    partitions: tuple[str, ...]  # ids
    parts: tuple[str, ...] = ()  # only these, where given
    final: bool = False
    wait_mutations: bool = False
    ignore_mutations: bool = False  # those that change rows alone
    ignore_row_policies: bool = False


@dataclass(frozen=True, kw_only=True)
class PinnedPartition:
    """One partition of the pin. `rows` are those a reader sees."""

    id: str
    content: str
    rows: int
    named: str = ""  # the content of the parts that were named, where some were


@dataclass(frozen=True, kw_only=True)
class Pinned(Record):
    """A table as it was when the pin was taken, and the parts that the pin holds."""

    identity: str
    engine: str
    columns: tuple[Column, ...]
    partition_key: str
    sorting_key: str
    relation: Relation
    parts: tuple[PartPlan, ...]
    partitions: tuple[PinnedPartition, ...]
    roots: tuple[str, ...]  # disks to look on when it is released
    notes: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)  # that reading needs, such as the time zone
    database: str = ""  # of the table that was frozen; "" for other pins
    name: str = ""


def pin(session: Session, wanted: PinRequest, name: str) -> Pinned:
    """Take the pin `name`, once, and describe what it holds."""
    table = session.describe(wanted.database, wanted.table)
    refuse_row_policies(table, ignore=wanted.ignore_row_policies)
    # If we die here, the journal names the pin and its release takes what there is of it.
    ignored = freeze.freeze(
        session,
        table,
        wanted.partitions,
        name,
        wait=wanted.wait_mutations,
        ignore=wanted.ignore_mutations,
    )
    frozen = chosen_parts(session, table, wanted, name)
    scratch = scratch_table(table, final=wanted.final)
    scratch.refuse_parts_without((part.name, part.columns) for part in frozen)
    return Pinned(
        identity=table.identity,
        engine=table.engine,
        columns=table.columns,
        partition_key=table.partition_key,
        sorting_key=table.sorting_key,
        relation=Relation(mode=FROZEN, create=scratch.create, final=wanted.final),
        parts=tuple(part.plan() for part in frozen),
        partitions=pinned_partitions(
            (SeenPart(part.partition_id, part.extent, part.mark) for part in frozen),
            marked=True,
            named=bool(wanted.parts),
        ),
        roots=freeze.pin_roots(session),
        notes=_default_notes(scratch.stripped) + ignored,
        settings={"session_timezone": table.timezone},
        database=table.database,
        name=table.name,
    )


def chosen_parts(
    session: Session, table: TableInfo, wanted: PinRequest, name: str
) -> list[freeze.FrozenPart]:
    """Those that the pin holds and that were asked for."""
    frozen = freeze.frozen_parts(session, table, wanted.partitions, name)
    refuse_gone(table, wanted, (part.name for part in frozen))
    return [part for part in frozen if not wanted.parts or part.name in wanted.parts]


def release(session: Session, name: str, detail: str) -> None:
    """Release a pin that may or may not have been taken, whose table may be gone. Twice is harmless."""
    freeze.release(session, name, journaled_roots(detail), journaled_table(detail))


def journaled(detail: str) -> dict[str, Any]:
    """DamagedError where it cannot be read: what it holds is not known, so it is not taken for released."""
    return loads(dict[str, Any], detail, "the journal entry of a pin") if detail else {}


def journaled_roots(detail: str) -> tuple[str, ...]:
    """The disks that a pin's journal entry names, of whatever kind of process it is."""
    return tuple(journaled(detail).get("roots", ()))


def journaled_table(detail: str) -> tuple[str, str] | None:
    """The table that was frozen, where the pin's journal entry says which."""
    data = journaled(detail)
    database, name = data.get("database", ""), data.get("name", "")
    return (database, name) if database and name else None


def refuse_row_policies(table: TableInfo, *, ignore: bool) -> None:
    """A pin shows every row, also those a policy hides from readers (D14)."""
    if table.row_policies and not ignore:
        raise RefusedError(
            f"table {table} has row policies ({', '.join(table.row_policies)}), which hide rows from some users: Calve would read every row",
            code="row_policies",
            hint="--ignore-row-policies reads every row anyway",
        )


def _default_notes(columns: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"column {column}: its default is set aside, and no part needs it" for column in columns)


def refuse_gone(table: TableInfo, wanted: PinRequest, there: Iterable[str]) -> None:
    """RefusedError names the parts that were asked for and are not among those pinned."""
    gone = sorted(set(wanted.parts).difference(there))
    if gone:
        raise RefusedError(
            f"table {table} no longer has part {', '.join(gone)}: merged, dropped or mutated in the meantime",
            code="part_gone",
            hint=f"calve partitions '{table}' --parts shows those it has now",
        )


class SeenPart(NamedTuple):
    """A part as a content id sees it."""

    partition_id: str
    extent: Extent
    mark: PartMark


def pinned_partitions(parts: Iterable[SeenPart], *, marked: bool, named: bool) -> tuple[PinnedPartition, ...]:
    """Not `marked`: of a table whose block numbers never begin again. `named`: the parts were."""
    by_id: dict[str, list[SeenPart]] = {}
    for one in parts:
        by_id.setdefault(one.partition_id, []).append(one)
    return tuple(
        PinnedPartition(
            id=partition_id,
            content=content_id((one.extent for one in found), (one.mark for one in found) if marked else ()),
            rows=sum(one.extent.rows for one in found),
            named=parts_content(one.mark.hash for one in found) if named else "",
        )
        for partition_id, found in by_id.items()
    )
