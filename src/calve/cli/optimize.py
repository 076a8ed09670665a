"""`calve optimize` and `calve history`."""

import sys
from datetime import datetime
from typing import TYPE_CHECKING

import click

from calve.cli import output, words
from calve.cli.command import CliSession, command
from calve.cli.exits import DONE
from calve.cli.options import no_wait_option, timeout_option

if TYPE_CHECKING:
    from calve.app.health import OptimizePreview
    from calve.app.optimize_history import Optimized


@command(
    "optimize",
    examples=[
        "calve optimize lake.ns.events",
        "calve optimize lake.ns.events --dry-run",
        "calve optimize lake.ns.events --full --sort 'day, id desc'",
        "calve optimize lake.ns.events --no-orphans --no-wait",
    ],
)
@click.argument("table", metavar="CATALOG.NS.TABLE")
@click.option("--full", is_flag=True, help="Rewrite every partition, due or not.")
@click.option(
    "--sort", metavar="ORDER", help="Sort rows: 'day, id desc', 'zorder(x, y)' or 'table'. Implies --full."
)
@click.option("--expire/--no-expire", default=None, help="Expire old snapshots. [default: as the table says]")
@click.option(
    "--orphans/--no-orphans", default=None, help="Remove orphan files. [default: as the table says]"
)
@click.option("--dry-run", is_flag=True, help="Print the plan; change nothing.")
@no_wait_option
@timeout_option
def optimize(
    session: CliSession,
    table: str,
    full: bool,
    sort: str | None,
    expire: bool | None,
    orphans: bool | None,
    dry_run: bool,
    no_wait: bool,
    timeout_seconds: float | None,
) -> int:
    """Compact an Iceberg table's files, apply its deletes, expire snapshots, remove orphans: as needed.

    Changes no row, even while others write to the table. Ctrl-C stops safely and says how to go on.
    """
    from calve.app.optimize_history import gained
    from calve.app.view import optimize_preview_json
    from calve.cli.report import hand_over

    options = {"full": full, "sort": sort or "", "expire": expire, "orphans": orphans}
    if dry_run:
        found = session.calve.optimize_preview(table, **options)
        session.answer(optimize_preview_json(found), _page(found))
        return DONE
    process = session.calve.optimize(table, **options)
    code = hand_over(session, [process], no_wait=no_wait, as_list=False, timeout_seconds=timeout_seconds)
    [ended] = session.calve.find([process.id])
    if not no_wait and (line := _idle(session, process.id) or gained(ended)):
        session.say(line)
    return code


def _idle(session: CliSession, process_id: str) -> str:
    """Why nothing was done; "" where something was."""
    events = session.calve.events([process_id])
    return next((event.message for event in events if event.name == "nothing_to_do"), "")


def _page(found: "OptimizePreview") -> str:
    """What would be done."""
    if found.nothing:
        output.say(found.nothing)
        return ""
    rows = [
        (
            str(number),
            task.level,
            words.count(task.files),
            words.size(task.bytes),
            words.listed(task.partitions),
        )
        for number, task in enumerate(found.tasks)
    ]
    parts = [
        words.table(
            ("TASK", "LEVEL", "FILES", "SIZE", "PARTITIONS"), rows, right=frozenset({"FILES", "SIZE"})
        )
    ]
    then = [
        name
        for name, wanted in (("expire snapshots", found.expire), ("remove orphans", found.orphans))
        if wanted
    ]
    parts.append(f"then: tidy deletes and manifests where needed{', ' if then else ''}{', '.join(then)}")
    return "\n\n".join(parts)


_HISTORY = (
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
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1), help="At most this many.")
def history(session: CliSession, table: str | None, limit: int) -> None:
    """Show how Iceberg tables were optimized, by people and by workers, and what was gained.

    Newest first. Score, files, delete files and snapshots are before -> after; REMOVED counts files of
    expired snapshots and orphans.
    """
    from calve.app.view import optimized_json

    found = session.calve.history(table or "", limit=limit)
    session.answer([optimized_json(item) for item in found], _history(found, session.calve.now()))
    if not found:
        session.say(f"{table or 'No table'} was {'never ' if table else ''}optimized from this store.")
        output.hint(f"calve health {table or 'CATALOG.NS.TABLE'}")


def _history(found: "list[Optimized]", now: datetime) -> str:
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
            words.duration((item.process.finished_at or now) - item.process.created_at),
            item.process.id,
        )
        for item in found
    ]
    return words.table(
        _HISTORY, rows, right=frozenset({"REMOVED"}), width=output.width(sys.stdout), cut=frozenset({"TABLE"})
    )
