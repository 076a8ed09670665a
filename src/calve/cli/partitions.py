"""`calve partitions`."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from calve.cli import output, words
from calve.cli.command import Session, command

if TYPE_CHECKING:
    from calve.app.partitions import Listed
    from calve.clickhouse.sql.table_name import TableName

_NUMBERS = frozenset({"ROWS", "BYTES", "PARTS", "AGE", "LEVEL"})


@command(
    "partitions",
    examples=[
        "calve partitions db.events",
        "calve partitions main:db.events --to lake.ns.events --json",
        "calve partitions db.events --parts",
    ],
)
@click.argument("table", metavar="TABLE")
@click.option("--to", "destination", metavar="DEST", help="Also: exported there, unchanged or changed since?")
@click.option("--parts", "as_parts", is_flag=True, help="List its parts instead: what --part can name.")
def partitions(session: Session, table: str, destination: str | None, as_parts: bool) -> None:
    """List the partitions of a table: id, value, rows, bytes, parts, age; and what DEST has of them."""
    from calve.app.destination import parse_destination
    from calve.app.partitions import list_partitions
    from calve.clickhouse.sql.table_name import parse

    name = parse(table)
    if as_parts:
        return _list_parts(session, name)
    wanted = parse_destination(destination, session.config) if destination else None
    found = list_partitions(session.app, name, wanted)
    head = ("ID", "VALUE", "ROWS", "BYTES", "PARTS", "AGE") + (("EXPORTED", "PROCESS") if wanted else ())
    now = datetime.now(UTC)
    text = words.table(head, [_row(item, now)[: len(head)] for item in found], right=_NUMBERS)
    session.answer([_document(item) for item in found], text if found else "")
    if not found and not session.json:
        output.say(f"table {name} has no partitions: it is empty")
    return None


def _list_parts(session: Session, name: "TableName") -> None:
    from calve.app.partitions import list_parts

    found = list_parts(session.app, name)
    rows = [
        (
            part.name,
            part.partition_id,
            words.count(part.rows),
            words.size(part.bytes),
            str(part.level),
            part.disk,
        )
        for part in found
    ]
    text = words.table(("PART", "PARTITION", "ROWS", "BYTES", "LEVEL", "DISK"), rows, right=_NUMBERS)
    documents = [
        {
            "name": part.name,
            "partition": part.partition_id,
            "rows": part.rows,
            "bytes": part.bytes,
            "level": part.level,
            "disk": part.disk,
        }
        for part in found
    ]
    session.answer(documents, text if found else "")
    if not found and not session.json:
        output.say(f"table {name} has no parts: it is empty")


def _row(item: "Listed", now: datetime) -> tuple[str, ...]:
    partition = item.partition
    return (
        partition.id,
        partition.value,
        words.count(partition.rows),
        words.size(partition.bytes),
        str(partition.parts),
        words.age(partition.modified_at, now),
        item.exported.value if item.exported else "",
        item.earlier.process_id if item.earlier else "",
    )


def _document(item: "Listed") -> dict[str, Any]:
    from calve.app.view import time_json

    partition = item.partition
    return {
        "id": partition.id,
        "value": partition.value,
        "rows": partition.rows,
        "bytes": partition.bytes,
        "parts": partition.parts,
        "modified_at": time_json(partition.modified_at),
        "exported": item.exported.value if item.exported else None,
        "process": item.earlier.process_id if item.earlier else None,
        "snapshot_id": item.earlier.snapshot_id if item.earlier else None,
    }
