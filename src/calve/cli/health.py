"""`calve health`."""

from typing import TYPE_CHECKING

import click

from calve.cli import words
from calve.cli.command import CliSession, command

if TYPE_CHECKING:
    from calve.app.values import Health


@command("health", examples=["calve health lake.ns.events", "calve health lake.ns.events --orphans --json"])
@click.argument("table", metavar="CATALOG.NS.TABLE")
@click.option("--orphans", is_flag=True, help="Also look for files that no snapshot refers to.")
def health(session: CliSession, table: str, orphans: bool) -> None:
    """Show the health of an Iceberg table: a score from 0 to 100, what it is made of, and what to do.

    Reads metadata only. --orphans lists every file below the table's location, which may take a while.
    """
    found = session.calve.health(table, orphans=orphans)
    session.answer(found.to_json(), _page(found))


def _page(found: "Health") -> str:
    """The whole answer as a person reads it."""
    pages = [_head(found), _parts(found), _sizes(found)]
    if found.most_in_need:
        pages.append(_needy(found))
    pages.append(_findings(found))
    return "\n\n".join(pages)


def _head(found: "Health") -> str:
    deletes = f"{words.count(found.position_delete_files)} position, {words.count(found.equality_delete_files)} equality"
    orphans = found.orphans
    return words.facts(
        (
            ("table", found.table),
            ("score", f"{found.score} of 100"),
            ("files", f"{words.count(found.files)} ({words.size(found.bytes)}, {words.counted(found.rows, 'row')})"),
            ("small files", f"{words.count(found.small_files)} ({found.small_file_ratio:.0%}), target {words.size(found.target_bytes)}"),
            ("delete files", f"{deletes}; {found.delete_row_ratio:.1%} of the rows"),
            ("partitions", f"{words.count(found.partitions)}, {words.count(found.partitions_due)} due"),
            ("manifests", words.count(found.manifests)),
            ("snapshots", f"{words.count(found.snapshots)}, {words.count(found.expirable_snapshots)} due to expire"),
            (
                "orphans",
                f"{words.counted(orphans.files, 'file')} ({words.size(orphans.bytes)}); {words.count(orphans.young)} too young to judge"
                if orphans
                else "not looked for (--orphans)",
            ),
        )
    )  # fmt: skip


def _parts(found: "Health") -> str:
    rows = [(part.name, f"{100 * part.good:.0f}", str(part.weight)) for part in found.parts]
    return words.table(("PART", "SCORE", "WEIGHT"), rows, right=frozenset({"SCORE", "WEIGHT"}))


def _sizes(found: "Health") -> str:
    rows = [(item.name, words.count(item.files)) for item in found.sizes]
    return words.table(("DATA FILES OF", "FILES"), rows, right=frozenset({"FILES"}))


def _needy(found: "Health") -> str:
    rows = [
        (item.partition, item.level, words.count(item.files), words.size(item.bytes), item.reason)
        for item in found.most_in_need
    ]
    return words.table(
        ("PARTITION", "LEVEL", "FILES", "SIZE", "BECAUSE"), rows, right=frozenset({"FILES", "SIZE"})
    )


def _findings(found: "Health") -> str:
    if not found.findings:
        return "Nothing to improve."
    rows = [(item.what, item.detail, item.command) for item in found.findings]
    return words.table(("FINDING", "DETAIL", "COMMAND"), rows)
