"""`calve history`."""

import sys
from datetime import datetime
from typing import TYPE_CHECKING

import click

from calve.cli import output, words
from calve.cli.command import Session, command
from calve.cli.ps import age

if TYPE_CHECKING:
    from calve.app.optimize_history import Optimized

_HEAD = (
    "WHEN (UTC)",
    "TABLE",
    "BY",
    "STATE",
    "SCORE",
    "FILES",
    "DELETES",
    "SNAPSHOTS",
    "REMOVED",
    "TOOK",
    "ID",
)


@command("history", examples=["calve history", "calve history lake.ns.events", "calve history --json"])
@click.argument("table", metavar="[CATALOG.NS.TABLE]", required=False)
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1), help="At most so many.")
def history(session: Session, table: str | None, limit: int) -> None:
    """Show how Iceberg tables were optimized, by people and by workers, and what was gained.

    Newest first. Score, files, delete files and snapshots are before -> after; REMOVED are files of
    expired snapshots, and orphans.
    """
    from calve.app.destination import parse_table
    from calve.app.optimize_history import optimize_history

    name = ""
    if table is not None:
        named = parse_table(table, session.config)
        name = ".".join((named.catalog, *named.identifier))
    store = session.app.store
    found = optimize_history(store, name, limit=limit)
    session.answer([item.to_json() for item in found], page(found, store.now()))
    if not session.json and not found:
        output.say(
            f"{name} was never optimized from this store."
            if name
            else "No table was optimized from this store yet."
        )
        output.hint(f"calve health {name or 'CATALOG.NS.TABLE'}")


def page(found: "list[Optimized]", now: datetime) -> str:
    """One line for each."""
    if not found:
        return ""
    rows = [
        (
            f"{item.process.created_at:%Y-%m-%d %H:%M}",
            item.process.destination,
            "worker" if item.by_worker else "person",
            item.process.state.value,
            str(item.score),
            str(item.files),
            str(item.delete_files),
            str(item.snapshots),
            words.count(item.removed_files),
            age(item.process, now),
            item.process.id,
        )
        for item in found
    ]
    return words.table(
        _HEAD, rows, right=frozenset({"REMOVED"}), width=output.width(sys.stdout), cut=frozenset({"TABLE"})
    )
