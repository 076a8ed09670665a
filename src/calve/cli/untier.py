"""`calve untier`."""

import click

from calve.cli.command import CliSession, command, no_wait_option, timeout_option


@command(
    "untier",
    examples=["calve untier db.events 202401", "calve untier db.events 202401 --from lake.ns.events"],
)
@click.argument("table")
@click.argument("partition")
@click.option(
    "--from",
    "to",
    default="",
    metavar="CATALOG.NS.TABLE",
    help="The table to read it from. [default: the only one that it was exported to]",
)
@no_wait_option
@timeout_option
def untier(
    session: CliSession,
    table: str,
    partition: str,
    to: str,
    no_wait: str | None,
    timeout_seconds: float | None,
) -> int:
    """Bring a partition back from the lake into its table, where it has no rows.

    PARTITION is its id or its value. The rows are compared by value before they move in; a hold then keeps them there, and a view reads the table
    again. The lake keeps its copy. Ctrl-C stops safely and says how to go on.
    """
    from calve.cli.report import hand_over

    made = session.calve.untier(table, partition, to=to)
    return hand_over(
        session,
        made.processes,
        joined=made.joined,
        no_wait=no_wait,
        timeout_seconds=timeout_seconds,
    )
