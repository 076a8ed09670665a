"""`calve optimize` and `calve history`.

`calve health`.
"""

import sys
from datetime import datetime

import click

from calve.app.view import Json
from calve.cli import output
from calve.cli.command import CliSession, command, no_wait_option, timeout_option
from calve.cli.output import DONE


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
    no_wait: str | None,
    timeout_seconds: float | None,
) -> int:
    """Compact an Iceberg table's files, apply its deletes, expire snapshots, remove orphans: as needed.

    Changes no row, even while others write to the table. Ctrl-C stops safely and says how to go on.
    """
    from calve.app.optimize_history import gained
    from calve.app.values import OptimizeOptions, SortBy, parse_sort
    from calve.cli.report import hand_over

    order = parse_sort(sort) if sort else SortBy()
    options = OptimizeOptions(full=full, sort=order, expire=expire, orphans=orphans)
    if dry_run:
        found = session.calve.optimize_preview(table, options)
        session.answer(found, _page(found))
        return DONE
    queued = session.calve.optimize(table, options)
    process = queued.process
    code = hand_over(
        session,
        [process],
        joined=queued.joined,
        no_wait=no_wait,
        timeout_seconds=timeout_seconds,
    )
    [ended] = session.calve.find([process.id])
    if not no_wait and (line := _idle(session, process.id) or gained(ended)):
        session.say(line)
    return code


def _idle(session: CliSession, process_id: str) -> str:
    """Why nothing was done; "" where something was."""
    events = session.calve.events([process_id])
    return next((event.message for event in events if event.name == "nothing_to_do"), "")


def _page(found: Json) -> str:
    """What would be done."""
    if found["nothing"]:
        output.say(found["nothing"])
        return ""
    rows = [
        (
            str(number),
            task["level"],
            output.count(task["files"]),
            output.size(task["bytes"]),
            output.listed(task["partitions"]),
        )
        for number, task in enumerate(found["tasks"])
    ]
    parts = [
        output.table(
            ("TASK", "LEVEL", "FILES", "SIZE", "PARTITIONS"), rows, right=frozenset({"FILES", "SIZE"})
        )
    ]
    then = [
        name
        for name, wanted in (("expire snapshots", found["expire"]), ("remove orphans", found["orphans"]))
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
    found = session.calve.history(table or "", limit=limit)
    session.answer(found, _history(found, session.calve.now()))
    if not found:
        session.say(f"{table or 'No table'} was {'never ' if table else ''}optimized from this store.")
        output.hint(f"calve health {table or 'CATALOG.NS.TABLE'}")


def _history(found: list[Json], now: datetime) -> str:
    """One line for each."""
    from calve.app.optimize_history import Gain

    if not found:
        return ""
    rows = [
        (
            f"{datetime.fromisoformat(item['created_at']):%Y-%m-%d %H:%M}",
            item["table"],
            "worker" if item["by_worker"] else "person",
            item["state"],
            *(str(Gain(**item[name])) for name in ("score", "files", "delete_files", "snapshots")),
            output.count(item["removed_files"]),
            _took(item, now),
            item["id"],
        )
        for item in found
    ]
    return output.table(
        _HISTORY, rows, right=frozenset({"REMOVED"}), width=output.width(sys.stdout), cut=frozenset({"TABLE"})
    )


def _took(item: Json, now: datetime) -> str:
    ended = datetime.fromisoformat(item["finished_at"]) if item["finished_at"] else now
    return output.duration(ended - datetime.fromisoformat(item["created_at"]))


@command("health", examples=["calve health lake.ns.events", "calve health lake.ns.events --orphans --json"])
@click.argument("table", metavar="CATALOG.NS.TABLE")
@click.option("--orphans", is_flag=True, help="Also look for files that no snapshot refers to.")
def health(session: CliSession, table: str, orphans: bool) -> None:
    """Show the health of an Iceberg table: a score from 0 to 100, what it is made of, and what to do.

    Reads metadata only. --orphans lists every file below the table's location, which may take a while.
    """
    found = session.calve.health(table, orphans=orphans)
    session.answer(found, _health_page(found))


def _health_page(found: Json) -> str:
    """The whole answer as a person reads it."""
    pages = [_head(found), _parts(found), _sizes(found)]
    if found["most_in_need"]:
        pages.append(_needy(found))
    pages.append(_findings(found))
    return "\n\n".join(pages)


def _head(found: Json) -> str:
    deletes = f"{output.count(found['position_delete_files'])} position, {output.count(found['equality_delete_files'])} equality"
    orphans = found["orphans"]
    return output.facts(
        (
            ("table", found['table']),
            ("score", f"{found['score']} of 100"),
            ("files", f"{output.count(found['files'])} ({output.size(found['bytes'])}, {output.counted(found['rows'], 'row')})"),
            ("small files", f"{output.count(found['small_files'])} ({found['small_file_ratio']:.0%}), target {output.size(found['target_bytes'])}"),
            ("delete files", f"{deletes}; {found['delete_row_ratio']:.1%} of the rows"),
            ("partitions", f"{output.count(found['partitions'])}, {output.count(found['partitions_due'])} due"),
            ("manifests", output.count(found['manifests'])),
            ("snapshots", f"{output.count(found['snapshots'])}, {output.count(found['expirable_snapshots'])} due to expire"),
            (
                "orphans",
                f"{output.counted(orphans['files'], 'file')} ({output.size(orphans['bytes'])}); {output.count(orphans['young'])} too young to judge"
                if orphans
                else "not looked for (--orphans)",
            ),
        )
    )  # fmt: skip


def _parts(found: Json) -> str:
    rows = [(part["name"], f"{100 * part['good']:.0f}", str(part["weight"])) for part in found["parts"]]
    return output.table(("PART", "SCORE", "WEIGHT"), rows, right=frozenset({"SCORE", "WEIGHT"}))


def _sizes(found: Json) -> str:
    rows = [(item["name"], output.count(item["files"])) for item in found["sizes"]]
    return output.table(("DATA FILES OF", "FILES"), rows, right=frozenset({"FILES"}))


def _needy(found: Json) -> str:
    rows = [
        (
            item["partition"],
            item["level"],
            output.count(item["files"]),
            output.size(item["bytes"]),
            item["reason"],
        )
        for item in found["most_in_need"]
    ]
    return output.table(
        ("PARTITION", "LEVEL", "FILES", "SIZE", "BECAUSE"), rows, right=frozenset({"FILES", "SIZE"})
    )


def _findings(found: Json) -> str:
    if not found["findings"]:
        return "Nothing to improve."
    rows = [(item["what"], item["detail"], item["command"]) for item in found["findings"]]
    return output.table(("FINDING", "DETAIL", "COMMAND"), rows)
