"""`calve hold`: rows that are to stay where they are."""

import click

from calve.cli import output
from calve.cli.command import CliSession, command, group


@command(
    "add",
    examples=[
        "calve hold add db.events --reason 'audit 2026'",
        "calve hold add db.events 202401 --reason 'case 4711' --until 90d",
    ],
)
@click.argument("table")
@click.argument("partition", default="")
@click.option("--reason", required=True, metavar="TEXT", help="Why; shown to others.")
@click.option(
    "--until",
    default="",
    metavar="TIME",
    help="For this long (90d, 12h), or until a date. [default: until released]",
)
@click.option("--force", is_flag=True, help="Hold the name even if no such table or partition is found.")
def add(session: CliSession, table: str, partition: str, reason: str, until: str, force: bool) -> None:
    """Hold a table, or one partition: no policy replaces or removes its rows until the hold ends.

    Exports, appends and proofs go on. Several holds may stand on one thing; each is released by its own id.
    """
    made = session.calve.hold_add(table, partition, reason=reason, until=until, force=force)
    session.answer(made, made["id"])
    what = f"partition {made['partition']} of {made['name']}" if made["partition"] else made["name"]
    session.say(f"{what} is held{' until ' + made['until_at'] if made['until_at'] else ''}")
    if made["unmatched"]:
        session.say(f"by name alone: {made['unmatched']}")
    for one in made["announced"]:
        session.say(
            f"process {one['process']} announced {one['step']} of partition {one['partition']} at {one['at']}:"
            " it may still be carried out; nothing after it will be"
        )


@command("list", examples=["calve hold list", "calve hold list db.events --all"])
@click.argument("table", default="")
@click.option("--all", "every", is_flag=True, help="Also those that were released or have expired.")
def list_(session: CliSession, table: str, every: bool) -> None:
    """List holds: of what, by whom, since when and why."""
    found = session.calve.hold_list(table, every=every)
    rows = [
        (
            one["id"], one["name"], one["partition"] or "all", one["who"], one["made_at"],
            one["until_at"] or "-", _state(one), one["reason"],
        )
        for one in found
    ]  # fmt: skip
    head = ("ID", "TABLE", "PARTITION", "BY", "SINCE", "UNTIL", "STATE", "REASON")
    session.answer(found, output.table(head, rows) if found else "")
    if not found:
        session.say("There are no holds.")


def _state(one: dict[str, object]) -> str:
    return (
        f"released by {one['released_by']}"
        if one["released_at"]
        else "holds"
        if one["standing"]
        else "expired"
    )


@command("release", examples=["calve hold release hold-k3m9xq"])
@click.argument("id")
def release(session: CliSession, id: str) -> None:
    """End a hold. Others on the same thing stay."""
    done = session.calve.hold_release(id)
    session.answer(done, f"{done['id']} is released")


@group(
    "hold",
    commands=(add, list_, release),
    examples=["calve hold add db.events 202401 --reason 'case 4711'", "calve hold list"],
)
def hold() -> None:
    """Keep policies from replacing or removing the rows of a table or partition."""
