"""What a modelled ClickHouse answers to statements: those that backups and restores ask, and no other.

It has a real folder for a disk, because the product moves real files: a FREEZE leaves the parts below `shadow`, and
ATTACH takes a part out of `detached`.
"""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calve.clickhouse.errors import NoTableError
from calve.clickhouse.pins import shadow
from calve.model.errors import PermanentError

if TYPE_CHECKING:
    from support.simulator.clickhouse import ModelledTable, Part

Name = tuple[str, str]
_PAD = 5000  # bytes of a data file: more than what is kept inside of an index
_NAME = r"`?(\w+)`?\.`?(\w+)`?"
_COLUMNS = "columns format version: 1\n2 columns:\n`id` String\n`p` Int32\n"


def write_part(folder: Path, part: "Part") -> None:
    """A part's files."""
    folder.mkdir(parents=True)
    (folder / "data.bin").write_text(json.dumps(part.rows).ljust(_PAD))
    (folder / "count.txt").write_text(str(len(part.rows)))
    (folder / "columns.txt").write_text(_COLUMNS)
    (folder / "checksums.txt").write_text(part.hash)


def read_part(folder: Path) -> tuple[str, ...]:
    return tuple(json.loads((folder / "data.bin").read_text()))


class Statements:
    """Of one server. `make` makes a table of it: database, name, uuid, folder."""

    def __init__(self, disk: Path, make: Callable[[str, str, str, Path], "ModelledTable"]) -> None:
        self.disk = disk
        self.tables: dict[Name, ModelledTable] = {}
        self.databases: set[str] = {"db"}
        self._make = make
        self._effects: tuple[tuple[re.Pattern[str], Callable[..., None]], ...] = (
            (re.compile(rf"ALTER TABLE {_NAME} ATTACH PART '([^']+)'"), self._attach),
            (re.compile(rf"ALTER TABLE {_NAME} (MODIFY|RESET) SETTING (\w+)"), self._set),
            (re.compile(rf"ALTER TABLE {_NAME} MOVE PARTITION ID '([^']+)' TO TABLE {_NAME}"), self._move),
            (re.compile(rf"ALTER TABLE {_NAME} REPLACE PARTITION ID '([^']+)' FROM {_NAME}"), self._replace),
            (re.compile(r"CREATE DATABASE IF NOT EXISTS `?(\w+)`?"), self.databases.add),
            (re.compile(rf"CREATE TABLE {_NAME} UUID '([^']+)'"), self._create),
            (re.compile(rf"DROP TABLE IF EXISTS {_NAME} SYNC"), self._drop),
        )

    def effect(self, sql: str) -> None:
        for pattern, act in self._effects:
            if found := pattern.match(sql):
                act(*found.groups())
                return
        raise AssertionError(f"not modelled: {sql}")

    def freeze(self, name: str, table: "ModelledTable", parts: list["Part"]) -> None:
        for part in parts:
            folder = shadow.folder(self.disk, name) / "store" / table.uuid / part.facts.name
            if not folder.exists():
                write_part(folder, part)

    def unfreeze(self, name: str) -> None:
        shutil.rmtree(shadow.folder(self.disk, name), ignore_errors=True)

    # -- questions ----------------------------------------------------------------------------------

    def rows(self, sql: str) -> list[dict[str, Any]]:
        if "system.columns" in sql:
            return [{"table": "tables", "name": name} for name in ("uuid", "is_temporary")]
        if sql.startswith("SHOW CREATE DATABASE"):
            return [{"statement": "CREATE DATABASE db ENGINE = Atomic"}]
        if "FROM system.databases" in sql:
            return [{"one": 1}] if _texts(sql)[-1] in self.databases else []
        if "FROM system.tables" in sql:
            found = self._chosen(sql)
            return [{"n": len(found)}] if "count()" in sql else found
        if "FROM system.disks" in sql:
            return []  # none in object storage
        if "FROM system.parts" in sql:
            return self._parts(sql)
        assert sql.startswith("SELECT 1"), sql
        return [{"1": 1, "one": 1}]

    def _chosen(self, sql: str) -> list[dict[str, Any]]:
        _, _, where = sql.partition("WHERE")
        texts = _texts(where)
        if "(database, name) IN" in where:
            wanted = set(zip(texts[::2], texts[1::2], strict=True))
            names = [name for name in self.tables if name in wanted]
        elif "database NOT IN" in where:
            names = [name for name in self.tables if name[0] not in texts]
        elif "AND name =" in where:
            names = [name for name in self.tables if list(name) == texts]
        else:
            names = [name for name in self.tables if name[0] in texts]
        return [self._described(self.tables[name]) for name in sorted(names)]

    def _described(self, table: "ModelledTable") -> dict[str, Any]:
        info = table.info("main")
        return {
            "database": table.database,
            "name": table.name,
            "engine": "MergeTree",
            "engine_full": "MergeTree PARTITION BY p ORDER BY id",
            "uuid": table.uuid,
            "create": info.create_query,
            "data_paths": list(info.data_paths),
            "loading_dependencies_database": [],
            "loading_dependencies_table": [],
        }

    def _parts(self, sql: str) -> list[dict[str, Any]]:
        if "startsWith(partition_id" in sql:
            return []  # patches
        database, name = _texts(sql)[:2]
        table = self.tables.get((database, name))
        parts = list(table.parts.values()) if table else []
        if "AS disk" in sql:
            return [{"disk": "default"}] if parts else []
        if "DISTINCT partition_id" in sql:
            return [{"partition_id": one} for one in sorted({part.facts.partition_id for part in parts})]
        return [
            {
                "name": part.facts.name,
                "partition_id": part.facts.partition_id,
                "low": part.facts.min_block,
                "high": part.facts.max_block,
            }
            for part in parts
        ]

    # -- effects ------------------------------------------------------------------------------------

    def table(self, database: str, name: str) -> "ModelledTable":
        if (database, name) not in self.tables:
            raise NoTableError(f"table {database}.{name} does not exist", code="no_table")
        return self.tables[database, name]

    def _create(self, database: str, name: str, uuid: str) -> None:
        if (database, name) in self.tables:
            raise PermanentError(f"table {database}.{name} exists", code="source_error")
        folder = self.disk / "store" / uuid
        (folder / "detached").mkdir(parents=True, exist_ok=True)
        self.tables[database, name] = self._make(database, name, uuid, folder)

    def _drop(self, database: str, name: str) -> None:
        table = self.tables.pop((database, name), None)
        if table is not None and table.folder is not None:
            shutil.rmtree(table.folder)

    def _set(self, database: str, name: str, verb: str, setting: str) -> None:
        if setting == "max_bytes_to_merge_at_max_space_in_pool":
            self.table(database, name).still = verb == "MODIFY"

    def _attach(self, database: str, name: str, part: str) -> None:
        table = self.table(database, name)
        assert table.folder is not None
        detached = table.folder / "detached" / part
        if not detached.is_dir():
            raise PermanentError(f"no detached part {part}", code="source_error")
        content = (detached / "checksums.txt").read_text()
        table.attach(part.rsplit("_", 3)[0], read_part(detached), content)
        shutil.rmtree(detached)

    def _move(self, database: str, name: str, partition: str, to_database: str, to_name: str) -> None:
        source, target = self.table(database, name), self.table(to_database, to_name)
        for part in source.of(partition):
            target.attach(partition, part.rows, part.content)
        source.drop(partition)

    def _replace(self, database: str, name: str, partition: str, of_database: str, of_name: str) -> None:
        target, source = self.table(database, name), self.table(of_database, of_name)
        target.drop(partition)
        for part in source.of(partition):
            target.attach(partition, part.rows, part.content)


def _texts(sql: str) -> list[str]:
    return re.findall(r"'([^']*)'", sql)
