"""Pins: FREEZE snapshots that hold a table's parts still while a process needs them.

A pin is taken once under its name (a second FREEZE after a merge would hold both generations,
D5), its parts are listed from the pin and never from the table (D6), and it is released by
UNFREEZE where the source has it and by removing exactly its folder, which works when the table is
long gone (L32).
"""

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from calve.clickhouse.errors import NoPartitionError
from calve.clickhouse.parts import mutations
from calve.clickhouse.parts.content import (
    FiledPart,
    PartFacts,
    PartName,
    content_hash,
    has_deleted_rows,
    parse_name,
    read_columns,
    read_rows,
    size,
)
from calve.clickhouse.parts.partitions import Selection, rows_seen, select
from calve.clickhouse.pins import shadow
from calve.clickhouse.source import Disk, Session
from calve.clickhouse.sql.tokens import string
from calve.clickhouse.tables import Mutation, TableInfo, patch_parts, system_columns
from calve.destination.plan import PartPlan
from calve.model.errors import CalveError, RefusedError, TemporaryError

_POLL_SECONDS = 0.2
_ONLY_DISK = "default"  # of a server that is too old to have several


@dataclass(frozen=True, kw_only=True)
class FrozenPart(FiledPart):
    """A part as the pin holds it."""

    path: str
    disk: str
    columns: frozenset[str]  # those it has values for

    def plan(self) -> PartPlan:
        return self.plan_with(path=self.path, disk=self.disk, content=self.content)


def refuse_unfinished(
    session: Session,
    table: TableInfo,
    partition_ids: Sequence[str] = (),
    *,
    wait: bool = False,
    ignore: bool = False,
) -> tuple[str, ...]:
    """No pin over half-applied changes (W6, W7, P12): RefusedError names them. With `wait` they are
    applied first, bounded by the source's own time limit for a statement; with `ignore` those that
    only change rows are let be, and the notes say so. Where partitions are given, patches of
    others and mutations `IN PARTITION` of others do not count."""
    if wait:
        _apply_unfinished(session, table, partition_ids)
    unfinished = _unfinished(session, table, partition_ids)
    patches = patch_parts(session, table.full_name, partition_ids)
    if not unfinished and not patches:
        return ()
    return mutations.refuse_unapplied(table, unfinished, patches, ignore=ignore)


def _unfinished(session: Session, table: TableInfo, partition_ids: Sequence[str]) -> tuple[Mutation, ...]:
    return tuple(
        one
        for one in session.unfinished_mutations(table.full_name)
        if not partition_ids or _concerns(session, table, one, frozenset(partition_ids))
    )


def _concerns(session: Session, table: TableInfo, mutation: Mutation, partition_ids: frozenset[str]) -> bool:
    """In doubt it does."""
    named = mutations.only_partition(mutation)
    if named is None or not mutations.keeps_the_shape(mutation):
        return True
    partition, is_id = named
    if is_id:
        return partition in partition_ids
    try:
        found = select(session, table, Selection(partitions=(partition,)))
    except CalveError:
        return True
    return any(one.id in partition_ids for one in found)


def freeze(
    session: Session,
    table: TableInfo,
    partition_ids: Sequence[str],
    name: str,
    *,
    wait: bool = False,
    ignore: bool = False,
) -> tuple[str, ...]:
    """Take the pin `name` over whole partitions. Once: a name that exists is refused (D5). Notes tell
    which pending changes were ignored, where that was asked for."""
    disks = session.disks()
    roots = [disk.path for disk in disks]
    _refuse_unseen_disks(session, table, disks)
    if shadow.exists(roots, name):
        raise TemporaryError(
            f"the pin {name} exists already: taken again it would hold two generations of parts",
            code="pin_taken",
            hint="it is released, and the next attempt has a name of its own",
        )
    refuse_unfinished(session, table, partition_ids, wait=wait, ignore=ignore)
    for root in roots:
        shadow.mend_counter(root)
    for partition_id in partition_ids:
        # if we die here, the journal names the pin, and its release takes what there is of it
        session.execute(
            f"ALTER TABLE {table.sql} FREEZE PARTITION {_partition(table, partition_id)} "
            f"WITH NAME {string(name)}",
            what=f"pinning partition {partition_id} of {table}",
            query_id=name,  # by which a release ends a FREEZE that is still under way
        )
    ignored = refuse_unfinished(session, table, partition_ids, ignore=ignore)
    refuse_altered(session, table)
    return ignored


def refuse_altered(session: Session, before: TableInfo) -> None:
    """What was read of the table before the pin must hold for what the pin holds."""
    after = session.describe(before.database, before.name)
    if (after.uuid, after.create_query) != (before.uuid, before.create_query):
        raise TemporaryError(f"table {before} was altered while it was pinned", code="altered_meanwhile")


def frozen_parts(
    session: Session, table: TableInfo, partition_ids: Sequence[str], name: str
) -> list[FrozenPart]:
    """The parts that the pin holds, by partition and block. Call it in the visit that took the pin:
    rows of parts with lightweight deletes are counted by the table itself. NotFoundError if a
    partition has none."""
    wanted = set(partition_ids)
    found: list[tuple[Disk, Path, PartName]] = []
    for disk in session.disks():
        found += [
            (disk, path, parts)
            for path, parts in _parts_below(disk, table, name)
            if parts.partition_id in wanted
        ]
    masked = [path.name for _, path, _ in found if has_deleted_rows(path)]
    # Without what the table has pending: the pin holds the parts, and not their patches.
    unpatched = {"apply_patch_parts": "0"} if table.patch_parts else {}
    seen = rows_seen(session, table, masked, "_part", unpatched)
    frozen = [
        _frozen(disk, path, parts, seen.get(path.name, 0) if path.name in masked else None)
        for disk, path, parts in found
    ]
    refuse_absent(table, wanted, frozen)
    return sorted(frozen, key=lambda part: (part.partition_id, part.min_block, part.name))


def refuse_absent(table: TableInfo, wanted: Collection[str], parts: Iterable[PartFacts]) -> None:
    """NotFoundError names the partitions that have no part."""
    absent = set(wanted) - {part.partition_id for part in parts}
    if absent:
        raise NoPartitionError(
            f"table {table} has no partition {', '.join(sorted(absent))}",
            code="no_partition",
            hint=f"see: calve partitions '{table}'",
        )


def frozen_partitions(session: Session, table: TableInfo, name: str) -> list[str]:
    """The ids of the partitions that a freeze holds, whichever process took it."""
    found = [part for disk in session.disks() for _, part in _parts_below(disk, table, name)]
    return sorted({part.partition_id for part in found})


def release(
    session: Session, name: str, roots: Sequence[str] = (), table: tuple[str, str] | None = None
) -> None:
    """Let the pin go, whether it was taken or not, whether its table is there or not. Twice is
    harmless. `roots` are disks that the pin's journal knew and the source may have forgotten; `table`
    is what was frozen, where the journal says."""
    known = [disk.path for disk in session.disks()]
    known += [Path(root) for root in roots if Path(root) not in known]
    shadow.unfreeze(session, name, table, known)
    shadow.remove(known, name)


def pin_roots(session: Session) -> tuple[str, ...]:
    """The disks to journal with a pin."""
    return tuple(str(disk.path) for disk in session.disks())


def _partition(table: TableInfo, partition_id: str) -> str:
    """By id, except in tables of the old syntax, where the engine hangs on an id (tried) and the id
    is the value: a month's number."""
    if table.clause.old_syntax and partition_id.isdigit():
        return partition_id
    return f"ID {string(partition_id)}"


def _parts_below(disk: Disk, table: TableInfo, name: str) -> list[tuple[Path, PartName]]:
    found: list[tuple[Path, PartName]] = []
    for data_path in table.data_paths:
        if not Path(data_path).is_relative_to(disk.path):
            continue
        folder = shadow.folder_of_any(disk.path, name) / Path(data_path).relative_to(disk.path)
        if not folder.is_dir():
            continue
        for entry in folder.iterdir():
            parts = parse_name(entry.name, old_syntax=table.clause.old_syntax)
            if parts is not None and entry.is_dir():
                found.append((entry, parts))
    return found


def _frozen(disk: Disk, path: Path, parts: PartName, seen: int | None) -> FrozenPart:
    rows = read_rows(path)
    return FrozenPart(
        name=path.name,
        partition_id=parts.partition_id,
        path=str(path),
        disk=disk.name,
        rows=rows,
        rows_seen=rows if seen is None else seen,
        bytes=size(path),
        min_block=parts.min_block,
        max_block=parts.max_block,
        level=parts.level,
        mutation=parts.mutation,
        data_version=parts.data_version,
        content=content_hash(path),
        columns=read_columns(path),
    )


def _refuse_unseen_disks(session: Session, table: TableInfo, disks: Sequence[Disk]) -> None:
    """Parts on a disk that is no folder here (object storage, encrypted) cannot be read as files."""
    known = ("parts", "disk_name") in system_columns(session, ("parts",))
    disk = "disk_name" if known else string(_ONLY_DISK)
    found = session.rows(
        f"SELECT DISTINCT {disk} AS disk FROM system.parts WHERE active "
        f"AND database = {string(table.database)} AND table = {string(table.name)} ORDER BY disk",
        what=f"table {table}",
    )
    unseen = [row["disk"] for row in found if row["disk"] not in {disk.name for disk in disks}]
    if unseen:
        raise RefusedError(
            f"table {table} has parts on disk {', '.join(unseen)}, whose files cannot be read from here",
            code="disk_not_seen",
            hint=""
            if session.embedded
            else f"say where executors see it: disks = {{{unseen[0]} = '/…'}} under [source.{session.source}]",
        )


def _apply_unfinished(session: Session, table: TableInfo, partition_ids: Sequence[str]) -> None:
    """Wait for mutations. Only looked at: one of ours that waits for those before it would change the
    partition's content id."""
    with _merging(session, table):
        if patch_parts(session, table.full_name, partition_ids):
            # if we die here, the patches are applied all the same: they were asked for
            session.execute(
                f"ALTER TABLE {table.sql} APPLY PATCHES SETTINGS mutations_sync = 0", what=f"table {table}"
            )
        deadline = time.monotonic() + session.patience_seconds
        while unfinished := _unfinished(session, table, partition_ids):
            if unfinished[0].fail_reason:
                raise RefusedError(
                    f"table {table}: mutation {unfinished[0]}",
                    code="mutation_fails",
                    hint="fix its cause, or run KILL MUTATION at the source",
                )
            if time.monotonic() >= deadline:
                raise TemporaryError(
                    f"table {table}: mutation {unfinished[0]} was not finished in "
                    f"{session.patience_seconds:g} s",
                    code="mutation_slow",
                    hint="wait for it at the source, or raise limits.query_seconds",
                )
            time.sleep(_POLL_SECONDS)


@contextmanager
def _merging(session: Session, table: TableInfo) -> Iterator[None]:
    """While mutations can go on. A visit to an embedded source stops merges, and mutations with them;
    a server's are never started or stopped by us."""
    if not session.embedded:
        yield
        return
    # if we die here, the mutations go on whenever the source is next open: they were asked for
    session.execute(f"SYSTEM START MERGES {table.sql}", what=f"table {table}")
    try:
        yield
    finally:
        session.execute(f"SYSTEM STOP MERGES {table.sql}", what=f"table {table}")
