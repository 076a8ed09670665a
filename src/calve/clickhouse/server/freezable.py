"""Whether parts of a server can be frozen and read as files. Decided once, when planning, and reported.

`frozen` where they see the server's disks and know its files; otherwise `live`.
"""

import importlib.metadata
import os
from collections.abc import Sequence
from pathlib import Path

from calve.clickhouse.server import version
from calve.clickhouse.server.parts import ListedPart
from calve.clickhouse.server.session import ServerSession
from calve.clickhouse.server.version import Version
from calve.clickhouse.sql import types
from calve.clickhouse.tables import TableInfo

_OLDEST_FROZEN = Version(21, 3)


def engine_version() -> Version:
    """Of the engine in this installation, and so in the executors'."""
    return version.parse(importlib.metadata.version("chdb-core"))


def obstacle(session: ServerSession, table: TableInfo, parts: Sequence[ListedPart]) -> str:
    """Why these parts cannot be frozen and read as files; "" when they can."""
    seen = {disk.name: disk.path for disk in session.mapped_disks()}
    if not seen:
        return "no disk of the server is mapped to a folder (disks)"
    if session.features.version < _OLDEST_FROZEN:
        return f"ClickHouse {session.version} is older than {_OLDEST_FROZEN}"
    if session.features.version > engine_version():
        return f"parts of ClickHouse {session.version} may be newer than the engine ({engine_version()})"
    used = sorted({part.disk for part in parts})
    if unmapped := [name for name in used if name not in seen]:
        return f"disk {', '.join(unmapped)} is not mapped to a folder"
    if unlike := _not_plain(session, used):
        return f"disk {', '.join(unlike)} holds no plain files (object storage, or encrypted)"
    if unknown := unknown_columns(table):
        return f"the engine does not know the type of column {', '.join(unknown)}"
    return next((text for name in used if (text := _closed(seen[name]))), "")


def unknown_columns(table: TableInfo) -> list[str]:
    """Columns whose type no engine of ours has."""
    return [
        column.name
        for column in table.columns
        if isinstance(types.strip_wrappers(types.parse(column.type)), types.Other | types.Object)
    ]


def _not_plain(session: ServerSession, names: Sequence[str]) -> list[str]:
    encrypted = "toUInt8(is_encrypted)" if session.has("disks", "is_encrypted") else "0"
    found = session.rows(f"SELECT name, lower(type) AS type, {encrypted} AS encrypted FROM system.disks")
    plain = {row["name"] for row in found if row["type"] == "local" and not row["encrypted"]}
    return [name for name in names if name not in plain]


def _closed(path: Path) -> str:
    """A freeze is read, and in the end removed, as files: both must be allowed, since a release may
    find its table dropped, and then nothing else can take the freeze away."""
    try:
        if not path.is_dir():
            return f"{path} is not a folder on this machine"
        shadow = path / "shadow"
        target = shadow if shadow.exists() else path
    except PermissionError:  # of a folder above it
        return f"{path} may not be read and written by this user"
    if not os.access(target, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
        return f"{target} may not be read and written by this user"
    return ""
