"""`calve export`."""

import re
from collections.abc import Sequence
from typing import Any

import click

from calve.cli.command import Session, command
from calve.model.errors import UsageError

_AGE = re.compile(r"(\d+)([dhw])")
_AGE_HOURS = {"h": 1, "d": 24, "w": 7 * 24}


@command(
    "export",
    examples=[
        "calve export db.events --partition 202401 --to lake.ns.events",
        "calve export db.events --partition 202401 --partition 202402 --to lake.ns.events --dry-run",
        "calve export db.events --older-than 90d --to lake.ns.events --no-wait",
        "calve export 'main:db.`my table`' --all --to lake.ns.events --force",
        "calve export db.events --all --to lake.ns.events --cast 'id=long' --exclude secret",
    ],
)
@click.argument("table", metavar="TABLE")
@click.option("--to", "destination", metavar="DEST", required=True, help="catalog.namespace.table")
@click.option(
    "--partition", "partitions", metavar="ID_OR_VALUE", multiple=True, help="A partition; repeat it."
)
@click.option("--part", "parts", metavar="NAME", multiple=True, help="Only this part; repeat it.")
@click.option("--all", "every", is_flag=True, help="Every partition.")
@click.option("--older-than", metavar="90d", help="Partitions whose newest time is older: 90d, 12h, 4w.")
@click.option("--where", default="", metavar="SQL", help="Only rows that fulfil a condition.")
@click.option("--final", is_flag=True, help="The merged view of Replacing and Collapsing tables.")
@click.option("--force", is_flag=True, help="Replace what was exported before and has changed.")
@click.option("--discard-deletes", is_flag=True, help="With --force: even if rows were deleted in the lake.")
@click.option("--allow-overlap", is_flag=True, help="Even if an earlier export overlaps the selection.")
@click.option("--create/--no-create", default=True, show_default=True, help="Make a missing table.")
@click.option("--evolve", is_flag=True, help="Add columns that the table lacks.")
@click.option(
    "--partition-by", default="", metavar="SPEC", help='For a new table: "day(ts), bucket(16, id)".'
)
@click.option(
    "--cast", "casts", metavar="COLUMN=TYPE", multiple=True, help="Export a column as another type."
)
@click.option("--exclude", metavar="COLUMN", multiple=True, help="Leave a column out; repeat it.")
@click.option(
    "--mutations",
    type=click.Choice(["refuse", "wait", "ignore"]),
    default="refuse",
    show_default=True,
    help="Where an ALTER is not finished: refuse, wait for it, or export the rows as before it.",
)
@click.option("--ignore-row-policies", is_flag=True, help="Export rows that row policies hide.")
@click.option("--from-backup", default="", metavar="NAME", help="Read a backup's parts, and ask no source.")
@click.option("--unsigned", is_flag=True, help="Accept a backup that the signing key did not sign.")
@click.option("--dry-run", is_flag=True, help="Print the plan; change nothing.")
@click.option("--no-wait", is_flag=True, help="Print the ids and return; a worker does the work.")
def export(
    session: Session, table: str, destination: str, dry_run: bool, no_wait: bool, **options: Any
) -> int:
    """Export partitions of TABLE to the Iceberg table DEST, each exactly once.

    What is exported already and unchanged is skipped, and said. What has changed since is listed, and
    the exit code is 4; --force replaces it. Ctrl-C stops safely and says how to go on.
    """
    from calve.app.exporting import Asked
    from calve.cli.exporting import export_table

    _check_selection(options)
    options["older_than_hours"] = _hours(options.pop("older_than"))
    options["casts"] = tuple(_casts(options["casts"]).items())
    return export_table(session, table, destination, Asked(**options), dry_run=dry_run, no_wait=no_wait)


def _check_selection(options: dict[str, Any]) -> None:
    ways = {
        "--partition": bool(options["partitions"]),
        "--part": bool(options["parts"]),
        "--all": options["every"],
        "--older-than": bool(options["older_than"]),
    }
    given = [way for way, is_given in ways.items() if is_given]
    if len(given) == 1:
        return
    what = "no partitions are chosen" if not given else f"{' and '.join(given)} exclude each other"
    raise UsageError(what, code="selection", hint=f"give one of {', '.join(ways)}")


def _hours(text: str | None) -> int | None:
    if not text:
        return None
    found = _AGE.fullmatch(text.strip())
    if not found:
        raise UsageError(
            f"{text!r} is no age", code="bad_age", hint="give a number of days, hours or weeks: 90d, 12h, 4w"
        )
    return int(found.group(1)) * _AGE_HOURS[found.group(2)]


def _casts(given: Sequence[str]) -> dict[str, str]:
    casts: dict[str, str] = {}
    for text in given:
        column, parted, kind = text.partition("=")
        if not parted or not column.strip() or not kind.strip():
            raise UsageError(
                f"{text!r} is no cast", code="bad_cast", hint="give it as --cast column=type: --cast id=long"
            )
        casts[column.strip()] = kind.strip()
    return casts
