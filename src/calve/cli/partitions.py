"""`calve partitions`."""

from datetime import UTC, datetime
from typing import Any

import click

from calve.cli import output
from calve.cli.command import CliSession, command

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
    if as_parts:
        return _list_parts(session, table)
    found = session.calve.partitions(table, destination or "")
    head: tuple[str, ...] = ("ID", "VALUE", "ROWS", "BYTES", "PARTS", "AGE")
    head += ("EXPORTED", "PROCESS") if destination else ()
    now = datetime.now(UTC)
    text = output.table(head, [_row(item, now)[: len(head)] for item in found], right=_NUMBERS)
    session.answer(found, text if found else "")
    if not found:
        session.say(f"table {table} is empty: it has no partitions")
    return None


def _list_parts(session: CliSession, table: str) -> None:
    found = session.calve.parts(table)
    rows = [
        (
            part["name"],
            part["partition"],
            output.count(part["rows"]),
            output.size(part["bytes"]),
            str(part["level"]),
            part["disk"],
        )
        for part in found
    ]
    text = output.table(("PART", "PARTITION", "ROWS", "BYTES", "LEVEL", "DISK"), rows, right=_NUMBERS)
    session.answer(found, text if found else "")
    if not found:
        session.say(f"table {table} is empty: it has no parts")


def _row(item: dict[str, Any], now: datetime) -> tuple[str, ...]:
    modified = item["modified_at"]
    return (
        item["id"],
        item["value"],
        output.count(item["rows"]),
        output.size(item["bytes"]),
        str(item["parts"]),
        output.age(datetime.fromisoformat(modified), now) if modified else "",
        item["exported"] or "",
        item["process"] or "",
    )
