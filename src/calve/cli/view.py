"""`calve view`: a table and its lake read as one."""

import click

from calve.app.view import Json
from calve.cli import output
from calve.cli.command import CliSession, command
from calve.model.errors import UsageError


@command(
    "view",
    examples=[
        "calve view db.events --to lake.ns.events --as db.events_all",
        "calve view db.events --to lake.ns.events --as db.events_all --cold 202401",
        "calve view db.events",
        "calve view db.events --drop",
    ],
)
@click.argument("table", metavar="TABLE")
@click.option(
    "--to", "destination", metavar="DEST", help="The Iceberg table that the partitions are exported to."
)
@click.option("--as", "into", metavar="DATABASE.NAME", help="The name of the view, at the same source.")
@click.option("--cold", multiple=True, metavar="ID", help="Read this partition from DEST. Repeatable.")
@click.option(
    "--hot", multiple=True, metavar="ID", help="Read this partition from the table again. Repeatable."
)
@click.option("--exclude", multiple=True, metavar="COLUMN", help="Omit a column. Repeatable.")
@click.option("--drop", is_flag=True, help="Drop the view. No row is removed from anywhere.")
@click.option("--force", is_flag=True, help="Drop it even if it reads partitions from DEST.")
def view(
    session: CliSession,
    table: str,
    destination: str | None,
    into: str | None,
    cold: tuple[str, ...],
    hot: tuple[str, ...],
    exclude: tuple[str, ...],
    drop: bool,
    force: bool,
) -> None:
    """Make, in ClickHouse, a view over a table and the Iceberg table that its partitions are exported to.

    Partitions that the table no longer has are read from DEST, and so are those given with --cold; all others from the
    table. Run it again after new exports or a change of the table's columns. Without options: show it.
    """
    if drop:
        if destination or into or cold or hot or exclude:
            raise UsageError("--drop takes no other option than --force", code="view_options")
        dropped = session.calve.view_drop(table, force=force)
        session.answer(dropped, f"view {dropped['view']} is dropped")
        return
    if force:
        raise UsageError("--force needs --drop", code="view_options")
    if not destination and not into:
        if cold or hot or exclude:
            raise UsageError(
                "--cold, --hot and --exclude need --to and --as",
                code="view_options",
                hint="calve view TABLE shows both",
            )
        found = session.calve.view_show(table)
        session.answer(found, _shown(found))
        return
    if not destination or not into:
        raise UsageError(
            "--to needs --as, and --as needs --to",
            code="view_options",
            hint="calve view TABLE --to lake.ns.events --as db.events_all",
        )
    made = session.calve.view_create(table, destination, into, cold=cold, hot=hot, exclude=exclude)
    session.answer(made, _made(made))
    for id, rows in made["late_rows"].items():
        session.say(
            f"partition {id} is read from {made['to']}: {rows} rows that the table has in it are not in the view"
        )
    if made["added"] and made["older_queries"]:
        oldest = made["older_queries"][0]
        session.say(
            f"{len(made['older_queries'])} queries that began before may still read {', '.join(made['added'][:3])} from the"
            f" table; the oldest is {oldest['id']} of {oldest['user']}, {oldest['seconds']:.0f} s"
        )
    session.say("readers need only:")
    for line in made["grants"]:
        session.say(f"  {line}")


def _made(made: Json) -> str:
    lines = [f"view {made['view']} reads {made['table']} and {made['to']} ({made['metadata']})"]
    if made["cold"]:
        lines.append(f"from {made['to']}: {_ids(made['cold'])}")
    if made["returned"]:
        lines.append(f"from the table again: {_ids(made['returned'])}")
    return "\n".join(lines)


def _ids(ids: list[str]) -> str:
    return ", ".join(ids) if len(ids) <= 10 else f"{len(ids)} partitions, {ids[0]} to {ids[-1]}"


def _shown(found: Json) -> str:
    head = f"view {found['view']} reads {found['table']} and {found['to']} ({found['metadata']})"
    if not found["same_everywhere"]:
        head += "\nthe servers of the source differ: run calve view again with --to and --as"
    rows = [
        (one["id"], str(one["rows_in_table"]), "yes" if one["bounded"] else "no") for one in found["cold"]
    ]
    return "\n".join([head, output.table(("COLD", "ROWS IN TABLE", "BOUNDED"), rows)]) if rows else head
