"""Backup, drop, restore: every engine and every shape of part comes back as it was."""

from typing import Any

from backup_place import BackupPlace
from part_shapes import SHAPES

from calve.clickhouse.source import Session


def test_backup_drop_restore_gives_equal_rows_and_checksums(place: BackupPlace) -> None:
    before = place.checksum("db.events", "db.users")
    manifest = place.create("first")
    assert {table.name for table in manifest.tables} == {"events", "users"}
    assert place.frozen == []
    place.execute("DROP DATABASE db SYNC")
    place.restore("first")
    assert place.checksum("db.events", "db.users") == before
    assert not (place.folder / "clickhouse" / "calve_restore").exists()


def test_every_engine_and_part_shape_comes_back_as_it_was(empty: BackupPlace) -> None:
    with empty.visit() as session:
        session.execute("CREATE DATABASE db")
        for shape in SHAPES:
            for statement in shape.statements:
                session.execute(statement.replace("{t}", f"db.{shape.name}"))
        before = {shape.name: _seen(session, shape.name) for shape in SHAPES}
    empty.create("shapes", mutations="wait")
    empty.execute("DROP DATABASE db SYNC")
    empty.restore("shapes")
    with empty.visit() as session:
        for shape in SHAPES:
            assert _seen(session, shape.name) == before[shape.name], shape.name


def _seen(session: Session, table: str) -> dict[str, Any]:
    """The table's rows, its parts' physical rows, its structure and its settings."""
    [rows] = session.rows(f"SELECT count() AS n, sum(cityHash64(toString(tuple(*)))) AS hash FROM db.{table}")
    parts = session.rows(
        "SELECT partition_id, rows FROM system.parts WHERE active AND database = 'db' "
        f"AND table = '{table}' ORDER BY ALL"
    )
    [create] = session.rows(
        f"SELECT create_table_query AS text FROM system.tables WHERE database = 'db' AND name = '{table}'"
    )
    return {"rows": rows, "parts": parts, "create": create}
