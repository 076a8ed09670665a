"""`calve partitions`."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from calve.cli import output
from calve.cli.command import CliSession, command

if TYPE_CHECKING:
    from calve.app.partitions import ListedPartition

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
@click.option("--to", "destination", metavar="DEST", help="Show what of each is exported there.")
@click.option("--parts", "as_parts", is_flag=True, help="List parts instead: what --part can name.")
def partitions(session: CliSession, table: str, destination: str | None, as_parts: bool) -> None:
    """List the partitions of a table: id, value, rows, bytes, parts, age, and whether DEST has them."""
    from calve.app.view import partition_json

    if as_parts:
        return _list_parts(session, table)
    found = session.calve.partitions(table, destination or "")
    head: tuple[str, ...] = ("ID", "VALUE", "ROWS", "BYTES", "PARTS", "AGE")
    head += ("EXPORTED", "PROCESS") if destination else ()
    now = datetime.now(UTC)
    text = output.table(head, [_row(item, now)[: len(head)] for item in found], right=_NUMBERS)
    session.answer([partition_json(item) for item in found], text if found else "")
    if not found:
        session.say(f"table {table} is empty: it has no partitions")
    return None


def _list_parts(session: CliSession, table: str) -> None:
    from calve.app.view import part_json

    found = session.calve.parts(table)
    rows = [
        (
            part.name,
            part.partition_id,
            output.count(part.rows),
            output.size(part.bytes),
            str(part.level),
            part.disk,
        )
        for part in found
    ]
    text = output.table(("PART", "PARTITION", "ROWS", "BYTES", "LEVEL", "DISK"), rows, right=_NUMBERS)
    session.answer([part_json(part) for part in found], text if found else "")
    if not found:
        session.say(f"table {table} is empty: it has no parts")


def _row(item: "ListedPartition", now: datetime) -> tuple[str, ...]:
    partition = item.partition
    return (
        partition.id,
        partition.value,
        output.count(partition.rows),
        output.size(partition.bytes),
        str(partition.parts),
        output.age(partition.modified_at, now),
        item.exported.value if item.exported else "",
        item.earlier.process_id if item.earlier else "",
    )
