"""The table that parts are attached to: ours, holding still.

Merges are off by the table's own settings until the last part is in, so that a part which was
attached is still there to be recognised after a crash. A table that existed before is not
touched until then: parts are gathered in a table of ours and go over as whole partitions.
"""

import contextlib
import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from calve.archive.location import segment
from calve.archive.manifest import Manifest, TableEntry
from calve.clickhouse.errors import UNKNOWN_DATABASE, UNKNOWN_SETTING, number_of
from calve.clickhouse.parts.content import content_hash
from calve.clickhouse.source import Session
from calve.clickhouse.sql import create_table
from calve.clickhouse.sql.tokens import name as quoted
from calve.clickhouse.sql.tokens import string
from calve.clickhouse.tables import TableInfo
from calve.model.errors import CalveError, NotFoundError, PermanentError, RefusedError
from calve.restore import distant
from calve.restore import plan as targets
from calve.restore.plan import RestoreRequest, Target
from calve.restore.references import Name
from calve.restore.schema import (
    There,
    inner_name,
    inner_of,
    is_ours,
    lenient,
    made_uuid,
    there,
)

_STILL = {
    "max_bytes_to_merge_at_max_space_in_pool": "1",
    "max_bytes_to_merge_at_min_space_in_pool": "1",
    "max_number_of_merges_with_ttl_in_pool": "0",
    "min_age_to_force_merge_seconds": "0",
    "remove_empty_parts": "0",
}


def ready(
    session: Session, manifest: Manifest, request: RestoreRequest, found: Mapping[Name, There]
) -> list[tuple[TableEntry, Target]]:
    """A target for each table whose parts are wanted, ready to receive them."""
    inner = inner_of(manifest, request)
    items = {item.origin: item for item in request.items}
    wanted: list[tuple[TableEntry, TableInfo, bool]] = []
    for entry in manifest.tables:
        item = items.get(entry.full_name)
        if item is None or not entry.parts:
            continue
        name, ours = item.target, False
        if entry.full_name in inner:
            view = inner[entry.full_name]
            there_now = found[view.target]
            name = (view.to_database, inner_name(there_now))
            ours = is_ours(request, view.target, there_now)
        else:
            ours = is_ours(request, name, found[name])
        wanted.append((entry, session.describe(*name), ours))
    for entry, table, ours in wanted:  # everything that stands in the way, before the first change
        if not ours:
            refuse_other_structure(entry, table)
            if _is_far(session, table):
                raise distant.refused(table)
        if not ours and request.existing == targets.APPEND and not request.again:
            refuse_again(session, request, entry, table)
    return [
        (entry, _target(session, request, entry, table, number, ours=ours))
        for number, (entry, table, ours) in enumerate(wanted)
    ]


def _target(
    session: Session, request: RestoreRequest, entry: TableEntry, table: TableInfo, number: int, *, ours: bool
) -> Target:
    into = targets.NEW if ours else request.existing
    far = _is_far(session, table)
    receiver = table
    if into != targets.NEW or far:
        receiver = _gathering(session, request, table, number, far=far)
    data_path = _writable(session, receiver)
    target = Target(
        database=table.database,
        name=table.name,
        uuid=table.uuid,
        into=into,
        receiver_database=receiver.database,
        receiver_name=receiver.name,
        data_path=str(data_path),
        state=str(_disk_of(session, data_path) / targets.FOLDER / request.seed / str(number)),
        restored=str(_note(session, request, table, receiver)),
    )
    if target.finished_mark.exists():
        return target  # an earlier try brought it to its end, and it merges again
    still = _hold_still(session, receiver)
    if far:
        _hold_still(session, table)  # so that its parts say what was copied
    settings = _settings_before(entry) if into == targets.NEW and still else ()
    target = replace(target, still=still, settings=settings)
    if into == targets.NEW and not far and not _holds_still(receiver):
        _refuse_merged(session, target, receiver, entry)
    return target


def _refuse_merged(session: Session, target: Target, table: TableInfo, entry: TableEntry) -> None:
    """A table that an earlier run has let go may have merged what it holds: it is then unknown which parts it is to get."""
    rows = session.rows(
        f"SELECT name FROM system.parts WHERE active AND database = {string(table.database)}"
        f" AND table = {string(table.name)}",
        what=f"table {table}",
    )
    if {_content(table, row["name"]) for row in rows} <= {part.content for part in entry.parts}:
        return
    let_move(session, target)  # if we die here, the next try holds it still and looks again
    raise PermanentError(
        f"table {target} has merged parts since an earlier run of this restore was given up, so it is unknown which of"
        " them it holds",
        code="restore_unclear",
        hint=f"drop {target} and restore it again, or restore into another database with --as",
    )


def refuse_again(session: Session, request: RestoreRequest, entry: TableEntry, table: TableInfo) -> None:
    """Rows of a backup that are in a table already, known in three ways: by what earlier restores noted
    on the table's disk, by parts with the very same content, and by block numbers in the table that the
    backup was made from. Merges hide the second from us and `DROP TABLE` the first, with the rows."""
    wanted = [
        part for part in entry.parts if not request.partitions or part.partition_id in request.partitions
    ]
    rows = session.rows(
        "SELECT name, partition_id, min_block_number AS low, max_block_number AS high FROM system.parts "
        f"WHERE active AND database = {string(table.database)} AND table = {string(table.name)}",
        what=f"table {table}",
    )
    filled = {row["partition_id"] for row in rows}
    before = (
        _restored_before(_note(session, request, table, table))
        & filled
        & {part.partition_id for part in wanted}
    )
    contents = {_content(table, row["name"]) for row in rows}
    present = {part.partition_id for part in wanted if part.content in contents}
    if table.identity == entry.identity:
        present |= {
            part.partition_id
            for part in wanted
            for row in rows
            if row["partition_id"] == part.partition_id
            and int(row["low"]) <= part.min_block
            and part.max_block <= int(row["high"])
        }
    if found := sorted(before | present):
        shown = ", ".join(found[:5]) + (", …" if len(found) > 5 else "")
        raise RefusedError(
            f"table {table} has rows of backup {request.backup} already (partition {shown}): appended again, "
            "they would be there twice",
            code="restored_before",
            hint="--existing replace replaces those partitions; --again appends them anyway",
        )


def _note(session: Session, request: RestoreRequest, table: TableInfo, receiver: TableInfo) -> Path:
    """Where this restore says what it brought to the table."""
    known_as = hashlib.sha256(table.identity.encode()).hexdigest()[:32]
    notes = _disk_of(session, _writable(session, receiver)) / targets.NOTES / known_as
    return notes / segment(f"{request.backup_process}-{request.seed}.txt")


def _restored_before(ours: Path) -> set[str]:
    """The partitions that other restores of this backup brought to this table."""
    backup = ours.name.partition("-")[0]
    found = ours.parent.iterdir() if ours.parent.is_dir() else ()
    notes = [path for path in found if path.name.startswith(f"{backup}-") and path != ours]
    return {partition for path in notes if path.suffix == ".txt" for partition in path.read_text().split()}


def _content(table: TableInfo, part: str) -> str:
    """ "" for a part whose files are not seen from here."""
    folders = (Path(data_path) / part for data_path in table.data_paths)
    return next((content_hash(folder) for folder in folders if folder.is_dir()), "")


def refuse_other_structure(entry: TableEntry, table: TableInfo) -> None:
    """Parts of one structure in a table of another would be read wrongly, or not at all."""
    columns = [(one.name, one.type, one.default_kind) for one in table.columns]
    expected = [(one.name, one.type, one.default_kind) for one in entry.columns]
    pairs = (
        ("columns", expected, columns),
        ("partition key", entry.partition_key, table.partition_key),
        ("sorting key", entry.sorting_key, table.sorting_key),
    )
    for what, before, now in pairs:
        if before != now:
            raise RefusedError(
                f"table {table} has other {what} than the backup's {entry.database}.{entry.name}",
                code="structure_differs",
                hint="restore into another database with --as, and copy the rows with INSERT … SELECT",
            )
    if table.clause.replicated:
        raise RefusedError(
            f"table {table} is replicated: whole partitions cannot be moved into it from a table that is not",
            code="table_replicated",
            hint="restore into another database with --as, then ATTACH PARTITION … FROM it",
        )


def _gathering(
    session: Session, request: RestoreRequest, table: TableInfo, number: int, *, far: bool
) -> TableInfo:
    """A table of ours with the structure of one that exists."""
    name = (targets.DATABASE, f"r_{request.seed}_{number}")
    made = made_uuid(request.seed, name)
    # if we die here, an empty database or table is left, which the next try uses and undo removes
    session.execute(f"CREATE DATABASE IF NOT EXISTS {quoted(targets.DATABASE)} ENGINE = Atomic")
    if name not in there(session, [name]):
        statement = f"CREATE TABLE {quoted(name[0])}.{quoted(name[1])} UUID '{made}' AS {table.sql}"
        if far:
            statement = distant.gathering(session, table, name, made)
        session.execute(statement, lenient(session), what=f"making a table to gather parts of {table}")
    if far:
        distant.without_ttl(session, name)
    return session.describe(*name)


def _hold_still(session: Session, table: TableInfo) -> bool:
    """One by one: what a version does not know it cannot do either. False for a table of the old
    syntax, which takes no settings and can be held still only until the source restarts."""
    if table.clause.old_syntax:
        session.execute(f"SYSTEM STOP MERGES {table.sql}", what=f"table {table}")
        return False
    for setting, value in _STILL.items():
        try:
            # if we die here, the table is as it was or holds still: asked again, it does
            session.execute(
                f"ALTER TABLE {table.sql} MODIFY SETTING {setting} = {value}", what=f"table {table}"
            )
        except PermanentError as error:
            if number_of(error) != UNKNOWN_SETTING:
                raise
    return True


def _holds_still(table: TableInfo) -> bool:
    """By our settings, and not by what its owner has chosen since."""
    return any(table.clause.settings.get(name) == value for name, value in _STILL.items())


def refuse_moving(session: Session, target: Target) -> None:
    """A new table that was held still and merges again was finished: the store that asks was put back from a copy that
    does not know (D1). What was attached cannot be told from its merges."""
    if target.into != targets.NEW or not target.still or target.gathers:
        return
    if not _holds_still(session.describe(target.receiver_database, target.receiver_name)):
        raise PermanentError(
            f"table {target} was restored before, and merges parts again: it is unknown which of them it holds",
            code="restore_unclear",
            hint=f"keep {target} if its rows are all there; otherwise drop it and restore it again",
        )


def _settings_before(entry: TableEntry) -> tuple[tuple[str, str], ...]:
    given = create_table.parse(entry.engine_full).settings
    return tuple((name, given.get(name, "")) for name in _STILL)


def let_move(session: Session, target: Target) -> None:
    """The settings of a new table, as its CREATE has them."""
    table = f"{quoted(target.database)}.{quoted(target.name)}"
    if not target.still:
        session.execute(f"SYSTEM START MERGES {table}", what=f"table {target}")
    for name, value in target.settings:
        change = f"MODIFY SETTING {name} = {value}" if value else f"RESET SETTING {name}"
        try:
            # if we die here, the rest is put back by the next try
            session.execute(f"ALTER TABLE {table} {change}", what=f"table {target}")
        except PermanentError as error:
            if number_of(error) != UNKNOWN_SETTING:
                raise


def let_go(session: Session, chosen: Sequence[Target]) -> None:
    """New tables that nothing more is restored to: they stay, and merge again. (Those of the old syntax, which take no
    settings, do so when the source restarts.)"""
    for target in chosen:
        if target.into == targets.NEW and not target.finished_mark.exists():
            with contextlib.suppress(NotFoundError):  # somebody dropped it
                table = session.describe(target.database, target.name)
                if table.uuid == target.uuid and _holds_still(table):
                    # if we die here, some of its settings are put back; undoing again puts back the others
                    let_move(session, target)


def _writable(session: Session, table: TableInfo) -> Path:
    """The folder whose `detached` takes parts, if this machine sees it."""
    if (path := _seen_folder(session, table)) is not None:
        return path
    raise RefusedError(
        f"the folder of table {table} cannot be written from here, so no part can be put into it",
        code="disk_not_seen",
        hint=f"say where executors see the server's disks: disks = {{default = '/…'}} under [source.{session.source}]",
    )


def _seen_folder(session: Session, table: TableInfo) -> Path | None:
    far = distant.far_paths(session, table)
    for data_path in table.data_paths:
        path = Path(data_path)
        if data_path in far:
            continue
        if (path / "detached").is_dir() and any(path.is_relative_to(disk.path) for disk in session.disks()):
            return path
    return None


def _is_far(session: Session, table: TableInfo) -> bool:
    """Whether parts can only come to it by way of another table's disk."""
    return _seen_folder(session, table) is None and bool(distant.far_paths(session, table))


def _disk_of(session: Session, path: Path) -> Path:
    fitting = [disk.path for disk in session.disks() if path.is_relative_to(disk.path)]
    return max(fitting, key=lambda disk: len(disk.parts))


def refuse_full(needed: Mapping[str, int]) -> None:
    """`needed` bytes by a folder on each disk."""
    for folder, size in needed.items():
        probe = Path(folder)
        while not probe.exists():
            probe = probe.parent
        free = shutil.disk_usage(probe).free
        if free < size:
            raise RefusedError(
                f"the disk of {probe} has {free} bytes left, and the restore needs {size}",
                code="no_space",
                hint="free some space, or restore fewer tables with --tables",
            )


def drop_gathering(session: Session, chosen: Sequence[Target]) -> None:
    """Tables of ours alone: by our database and the restore's own names."""
    for target in chosen:
        if target.gathers:
            name = f"{quoted(target.receiver_database)}.{quoted(target.receiver_name)}"
            try:
                # if we die here, the table is there or not; dropping again finds out
                session.execute(f"DROP TABLE IF EXISTS {name} SYNC", what=f"table {name}")
            except CalveError as error:
                if number_of(error) != UNKNOWN_DATABASE:
                    raise
