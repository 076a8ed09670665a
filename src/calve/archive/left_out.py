"""What is not in a backup, in plain words. Pure.

It is worked out from the manifest, so it is said of old backups too. What only the source could tell
(detached parts, passwords that it hides) is noted in the manifest when the backup is made.
"""

from collections.abc import Container
from dataclasses import dataclass

from calve.archive.create import own_disk
from calve.archive.manifest import Manifest

_QUEUES = frozenset({"Kafka", "RabbitMQ", "NATS", "S3Queue", "AzureQueue", "FileLog"})
_NOTHING = frozenset({"View", "MaterializedView", "LiveView", "WindowView", "Merge", "Null", "Alias"})
_WHY = {
    "Dictionary": "its rows: they are loaded again from its source",
    "Buffer": "rows that were not flushed to its table yet",
    "Distributed": "rows that were not sent to its shards yet",
}


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


def left_out(manifest: Manifest, tables: Container[str] | None = None) -> tuple[LeftOut, ...]:
    """The particular first, then what no backup of this kind holds. With `tables`, names, nothing about others."""
    named = [".".join(one.full_name) for one in manifest.tables]
    named += [".".join(one.full_name) for one in manifest.schemas]
    others = {name for name in named if tables is not None and name not in tables}
    if tables is not None:
        others |= {what for what, _ in manifest.skipped if what not in tables}
    return tuple(one for one in _all(manifest) if one.what.rpartition(" of ")[2] not in others)


def _all(manifest: Manifest) -> tuple[LeftOut, ...]:
    noted = (*manifest.skipped, *manifest.remarks)
    named = {what for what, _ in noted}
    engines = [
        (".".join(one.full_name), _why(one.engine))
        for one in manifest.schemas
        if one.engine not in _NOTHING and ".".join(one.full_name) not in named
    ]
    disks = [
        (
            f"disk of {table.database}.{table.name}",
            f"its CREATE defines it, a local folder ({folder}): the target must allow that folder in its "
            "custom_local_disks_base_directory",
        )
        for table in manifest.tables
        if (folder := own_disk(table.create)) is not None
    ]
    general = [("server configuration", "config.xml, users.xml, macros, certificates and other files")]
    if not manifest.rbac:
        general.insert(
            0,
            (
                "users, roles, grants, quotas, settings profiles and named collections",
                "the backup was made without --rbac",
            ),
        )
    return tuple(LeftOut(what=what, why=why) for what, why in (*noted, *engines, *disks, *general))


def _why(engine: str) -> str:
    if engine in _QUEUES:
        return f"its position in the queue ({engine}): it is kept outside of ClickHouse, or starts over"
    return _WHY.get(engine, f"its rows: the engine {engine} keeps them elsewhere")
