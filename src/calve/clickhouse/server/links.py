"""Parts held by a clone of links, and the objects that their files are where a disk is in object storage.

A file of such a disk is a small description at the server that names an object. Who sees the bucket needs no more
than those names: `system.remote_data_paths` tells them of every file of the disk.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from calve.clickhouse.parts.links import FileObject, LinkedPart
from calve.clickhouse.parts.partitions import rows_seen
from calve.clickhouse.pins import freeze
from calve.clickhouse.server import clone
from calve.clickhouse.server.live import why_no_clone
from calve.clickhouse.server.parts import ListedPart, listed_parts, matched, table_condition
from calve.clickhouse.server.session import ServerSession
from calve.clickhouse.server.tables import server_disks
from calve.clickhouse.sql.tokens import TableName, string
from calve.clickhouse.tables import TableInfo
from calve.model.errors import RefusedError, TemporaryError

if TYPE_CHECKING:  # which is made of this
    from calve.clickhouse.server.visit import ServerVisit

_ASKED = ("disk_name", "local_path", "remote_path", "size")


def cloned(
    session: "ServerVisit", table: TableInfo, partition_ids: Sequence[str], name: str, *, ignore: bool = False
) -> list[tuple[ListedPart, ListedPart]]:
    """Take the clone `name`, once: each of its parts with the table's own part that it is."""
    before = listed_parts(session, table.database, table.name, partition_ids, inactive=True)
    clone.clone(session, table, partition_ids, name)
    after = listed_parts(session, table.database, table.name, partition_ids, inactive=True)
    freeze.refuse_unfinished(session, table, partition_ids, ignore=ignore)
    freeze.refuse_altered(session, table)
    pin = clone.pin_table(name)
    held = listed_parts(session, pin.database, pin.table, partition_ids)
    return matched(table, before, after, held)


def link(
    session: "ServerVisit", table: TableInfo, partition_ids: Sequence[str], name: str
) -> list[LinkedPart]:
    """`Session.link` of a session."""
    if missing := [column for column in _ASKED if not session.has("remote_data_paths", column)]:
        raise RefusedError(
            f"ClickHouse {session.version} does not say where the objects of {table} are"
            f" (system.remote_data_paths lacks {', '.join(missing)})",
            code="objects_not_told",
            hint="export the table instead: calve export reads it through the server",
        )
    parts = listed_parts(session, table.database, table.name, partition_ids)
    if why := why_no_clone(session, table, parts):
        raise RefusedError(
            f"the parts of table {table} cannot be held still for a backup: {why}",
            code="disk_not_linked",
            hint="export the table instead: calve export reads it through the server",
        )
    _refuse_unseen(session, table, parts)
    pairs = cloned(session, table, partition_ids, name)
    freeze.refuse_absent(table, partition_ids, (part for part, _ in pairs))
    pin = clone.pin_table(name)
    there = replace(table, database=pin.database, name=pin.table)
    masked = [part.name for part, _ in pairs if part.masked]
    seen = rows_seen(session, there, masked, "_part")
    folders = _folders(session, pin)
    objects = _objects(session, set(folders.values()))
    return [
        LinkedPart(
            **origin.facts,
            rows_seen=seen.get(part.name, 0) if part.masked else part.rows,
            disk=part.disk,
            folder=_seen(session, *folders[part.name]),
            files=tuple(objects.get(folders[part.name], ())),
        )
        for part, origin in pairs
    ]


def _refuse_unseen(session: ServerSession, table: TableInfo, parts: Sequence[ListedPart]) -> None:
    known = {disk.name for disk in session.disks()} | session.buckets().keys()
    if unseen := sorted({part.disk for part in parts} - known):
        raise RefusedError(
            f"table {table} has parts on disk {', '.join(unseen)}, whose files cannot be read from here",
            code="disk_not_seen",
            hint=f"say where executors see it: disks = {{{unseen[0]} = '/…'}} under [source.{session.source}]",
        )


Place = tuple[str, str]  # a disk, and a folder on it


def _folders(session: ServerSession, pin: TableName) -> dict[str, Place]:
    """Where each part of the clone is."""
    roots = server_disks(session)
    found = session.rows(
        "SELECT name, disk_name AS disk, path FROM system.parts "
        f"WHERE active AND {table_condition(pin.database, pin.table)}",
        what=f"pin {pin}",
    )
    return {
        row["name"]: (row["disk"], PurePosixPath(row["path"]).relative_to(roots[row["disk"]]).as_posix())
        for row in found
    }


def _objects(session: ServerSession, places: set[Place]) -> Mapping[Place, list[FileObject]]:
    """The files of parts on disks in object storage. Those without a byte are not among them."""
    found: dict[Place, list[FileObject]] = defaultdict(list)
    buckets = session.buckets()
    for disk in sorted({disk for disk, _ in places if disk in buckets}):
        tables = sorted({f"{PurePosixPath(folder).parent}/" for one, folder in places if one == disk})
        below = " OR ".join(f"startsWith(local_path, {string(table)})" for table in tables)
        rows = session.rows(
            "SELECT local_path AS path, remote_path AS object, size FROM system.remote_data_paths "
            f"WHERE disk_name = {string(disk)} AND ({below})",
            what=f"the objects of disk {disk}",
        )
        folders = {folder for one, folder in places if one == disk}
        for row in rows:
            path = PurePosixPath(row["path"])
            folder = next((parent for parent in map(str, path.parents) if parent in folders), None)
            if folder is None:
                continue  # a part that the clone no longer has
            name = path.relative_to(folder).as_posix()
            uri = f"{buckets[disk]}/{row['object'].lstrip('/')}"
            found[disk, folder].append(FileObject(name=name, bytes=int(row["size"]), uri=uri))
    for disk, folder in places:
        _refuse_odd(disk, folder, found.get((disk, folder), []), known=disk in buckets)
    return found


def _refuse_odd(disk: str, folder: str, files: Sequence[FileObject], *, known: bool) -> None:
    names = [file.name for file in files]
    if known and "checksums.txt" not in names:
        raise TemporaryError(
            f"the server names no objects of {folder} on disk {disk}", code="objects_not_told"
        )
    if len(set(names)) != len(names):
        raise RefusedError(
            f"a file of {folder} on disk {disk} is in several objects, whose order the server does not tell",
            code="objects_not_told",
            hint="OPTIMIZE its partition with FINAL, which writes new files, or export the table instead",
        )


def _seen(session: ServerSession, disk: str, folder: str) -> str:
    """The folder of a part on a disk whose files are seen here; "" for others."""
    roots = {one.name: one.path for one in session.disks()}
    return str(Path(roots[disk]) / folder) if disk in roots else ""
