"""Restoring to a table whose disks are in object storage. No part can be put into it as files, so parts are gathered
in a table of ours on the server's default disk, and the server copies whole partitions from there.

A copy is repeated only where nothing of it arrived: the table is new and holds still, so what its parts are says it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from calve.archive.manifest import PartEntry
from calve.clickhouse import still
from calve.clickhouse.source import Session
from calve.clickhouse.sql.tokens import TableName, string
from calve.clickhouse.sql.tokens import name as quoted
from calve.clickhouse.tables import TableInfo, system_columns
from calve.model.errors import PermanentError, RefusedError
from calve.restore.plan import Target

_ON_DISKS = frozenset({"storage_policy", "disk"})
_BYTES_PER_SECOND = 5_000_000  # slower than this, a copy is given up


def far_paths(session: Session, table: TableInfo) -> frozenset[str]:
    """Those of the table's folders that are on disks in object storage or encrypted: no file can be put there. They
    may well lie inside of another disk's folder."""
    if session.embedded or not table.storage_policy:
        return frozenset()
    columns = system_columns(session, ("disks",))
    encrypted = "is_encrypted" if ("disks", "is_encrypted") in columns else "0"
    found = session.rows(
        f"SELECT path FROM system.disks WHERE (lower(type) != 'local' OR {encrypted}) AND name IN (SELECT "
        f"arrayJoin(disks) FROM system.storage_policies WHERE policy_name = {string(table.storage_policy)})"
    )
    if not found:
        return frozenset()
    [there] = session.rows(
        "SELECT data_paths FROM system.tables "
        f"WHERE database = {string(table.database)} AND name = {string(table.name)}",
        what=f"table {table}",
    )
    pairs = zip(there["data_paths"], table.data_paths, strict=True)  # at the server, and as seen from here
    roots = tuple(row["path"] for row in found)
    return frozenset(seen for path, seen in pairs if path.startswith(roots))


def refused(table: TableInfo) -> RefusedError:
    """A table that was there before is given whole partitions, which a server moves within one policy only."""
    return RefusedError(
        f"table {table} has its disks in object storage: partitions cannot be moved or replaced there from a local disk",
        code="target_in_object_storage",
        hint="restore into another database with --as, then ALTER TABLE … REPLACE PARTITION … FROM it",
    )


def gathering(session: Session, table: TableInfo, name: tuple[str, str], uuid: str) -> str:
    """The CREATE of a table like it on the default disk."""
    made = TableName(source=None, database=name[0], table=name[1])
    clause = table.clause
    arguments = f"({', '.join(clause.family_arguments)})" if clause.family_arguments else ""
    settings = {key: value for key, value in clause.settings.items() if key not in _ON_DISKS}
    local = replace(table, clause=replace(clause, settings=settings))
    text = still.create(local, made, f"{clause.family}{arguments}", still.known_settings(session))
    return text.replace(f"CREATE TABLE {made.sql}", f"CREATE TABLE {made.sql} UUID '{uuid}'", 1)


def without_ttl(session: Session, name: tuple[str, str]) -> None:
    still.strip_column_ttls(session, TableName(source=None, database=name[0], table=name[1]), "")


def copy(session: Session, target: Target, parts: Sequence[PartEntry]) -> None:
    """Each partition, once."""
    table = f"{quoted(target.database)}.{quoted(target.name)}"
    receiver = f"{quoted(target.receiver_database)}.{quoted(target.receiver_name)}"
    gathered = _hashes(session, target.receiver_database, target.receiver_name)
    there = _hashes(session, target.database, target.name)
    for partition_id, hashes in sorted(gathered.items()):
        if there.get(partition_id) == hashes:
            continue  # an earlier try came as far as this
        if there.get(partition_id):
            raise PermanentError(
                f"table {target} has other parts in partition {partition_id} than were gathered for it",
                code="restore_unclear",
                hint=f"drop {target} and restore it again",
            )
        size = sum(part.bytes for part in parts if part.partition_id == partition_id)
        # if we die here, the partition is there or is not: the parts of the table tell
        session.execute(
            f"ALTER TABLE {table} ATTACH PARTITION ID {string(partition_id)} FROM {receiver}",
            what=f"copying partition {partition_id} of {target}",
            seconds=session.patience_seconds + size / _BYTES_PER_SECOND,
        )


def check(session: Session, target: Target, parts: Sequence[PartEntry]) -> None:
    """Once nothing can be copied any more: the table has each part once. A worker that was stopped between its look and
    its copy, and woke up, made that copy a second time."""
    expected = Counter(part.partition_id for part in parts)
    there = _hashes(session, target.database, target.name)
    for partition_id, number in expected.items():
        if (found := sum(there.get(partition_id, Counter()).values())) != number:
            raise PermanentError(
                f"table {target} has {found} parts in partition {partition_id}, to which {number} were restored: one"
                " was copied twice, or somebody else changes the table",
                code="restore_unclear",
                hint=f"drop {target} and restore it again",
            )


def _hashes(session: Session, database: str, name: str) -> dict[str, Counter[str]]:
    """The contents of a table's parts, by partition."""
    rows = session.rows(
        "SELECT partition_id, hash_of_all_files AS hash FROM system.parts "
        f"WHERE active AND database = {string(database)} AND table = {string(name)}",
        what=f"table {database}.{name}",
    )
    found: dict[str, Counter[str]] = {}
    for row in rows:
        found.setdefault(row["partition_id"], Counter())[row["hash"]] += 1
    return found
