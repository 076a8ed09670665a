"""`calve optimize`."""

from typing import TYPE_CHECKING

import click

from calve.cli import output, words
from calve.cli.command import Session, command

if TYPE_CHECKING:
    from calve.app.health import Preview
    from calve.model.process import Process


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
    "--sort", metavar="ORDER", help="Order rows: 'day, id desc', 'zorder(x, y)' or 'table'. Implies --full."
)
@click.option("--expire/--no-expire", default=None, help="Expire old snapshots; else as the table says.")
@click.option("--orphans/--no-orphans", default=None, help="Remove orphan files; else as the table says.")
@click.option("--dry-run", is_flag=True, help="Print the plan; change nothing.")
@click.option("--no-wait", is_flag=True, help="Print the id and return; a worker does the work.")
def optimize(
    session: Session,
    table: str,
    full: bool,
    sort: str | None,
    expire: bool | None,
    orphans: bool | None,
    dry_run: bool,
    no_wait: bool,
) -> int:
    """Compact an Iceberg table's files, apply its deletes, expire snapshots, remove orphans: as needed.

    Rows stay as they are, whoever writes meanwhile. Ctrl-C stops safely and says how to go on.
    """
    from calve.app.destination import parse_table
    from calve.app.health import preview, submit_optimize
    from calve.cli.running import hand_over
    from calve.optimize.request import OptimizeRequest, SortBy, parse_sort

    named = parse_table(table, session.config)
    request = OptimizeRequest(
        catalog=named.catalog,
        identifier=named.identifier,
        full=full,
        sort=parse_sort(sort) if sort else SortBy(),
        expire=expire,
        orphans=orphans,
    )
    if dry_run:
        found = preview(session.app, request)
        session.answer(found.to_json(), page(found))
        return 0
    process = submit_optimize(session.app, request)
    code = hand_over(session, [process], no_wait=no_wait, as_list=False)
    if not no_wait and not session.json:
        say_gain(session.app.store.process(process.id))
    return code


def say_gain(process: "Process") -> None:
    """What it gained, in one line; nothing where it did not come to its end."""
    from calve.app.optimize_history import gained

    if line := gained(process):
        output.say(line)


def page(found: "Preview") -> str:
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
