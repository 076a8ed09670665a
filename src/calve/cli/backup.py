"""`calve backup` and its commands."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from calve.app.arguments import share, size
from calve.cli import output
from calve.cli.command import CliSession, command, group, no_wait_option, timeout_option
from calve.cli.schedule import schedule

if TYPE_CHECKING:
    from calve.model.process import Process


@command(
    "create",
    examples=[
        "calve backup create nightly-2026-01-31 --tables 'db.*,other.t'",
        "calve backup create january --tables db.events --partitions 202601",
    ],
)
@click.argument("name", metavar="NAME")
@click.option("--tables", "patterns", metavar="PATTERNS", multiple=True, required=True, help="db.*,other.t")
@click.option(
    "--source", default="", metavar="SOURCE", help="A source of the configuration. [default: the first]"
)
@click.option("--partitions", metavar="IDS", multiple=True, help="Only these partitions: ids or values.")
@click.option(
    "--mutations",
    type=click.Choice(["refuse", "wait"]),
    default="refuse",
    show_default=True,
    help="If an ALTER is unfinished: refuse, or wait for it.",
)
@click.option("--ignore-row-policies", is_flag=True, help="Also back up rows that row policies hide.")
@click.option(
    "--rbac", is_flag=True, help="Also users, roles, grants, quotas, settings profiles and named collections."
)
@no_wait_option
@timeout_option
def create(
    session: CliSession,
    name: str,
    patterns: tuple[str, ...],
    source: str,
    partitions: tuple[str, ...],
    mutations: str,
    ignore_row_policies: bool,
    rbac: bool,
    no_wait: str | None,
    timeout_seconds: float | None,
) -> int:
    """Back up tables: their structure and every part, each content stored once.

    What an earlier backup has stored is not copied again. After a kill or an interrupt, the same command
    resumes where it stopped. Tables that vanish before they can be frozen are skipped, with a warning.
    What the backup does not hold is listed at the end.
    """
    from calve.app.values import BackupOptions
    from calve.cli.report import hand_over

    options = BackupOptions(
        partitions=_split(partitions),
        mutations=mutations,
        ignore_row_policies=ignore_row_policies,
        rbac=rbac,
    )
    queued = session.calve.backup_create(name, _split(patterns), options, source=source)
    return hand_over(
        session, queued.processes, joined=queued.joined, no_wait=no_wait, timeout_seconds=timeout_seconds,
        document=_saying_left_out(session),
    )  # fmt: skip


@command("list", examples=["calve backup list", "calve backup list --json"])
def list_(session: CliSession) -> None:
    """List backups: their age, contents, and size with and without what they share."""
    from calve.cli.backup_pages import list_page

    found = session.calve.backup_list()
    backups = found["backups"]
    if not backups:
        output.say(f"no backups in {found['location']}")
    session.answer(backups, list_page(found, session.calve.now()) if backups else "")


@command("show", examples=["calve backup show nightly-2026-01-31"])
@click.argument("name", metavar="NAME")
def show(session: CliSession, name: str) -> None:
    """Show what a backup holds."""
    from calve.cli.backup_pages import show_page

    found = session.calve.backup_show(name)
    session.answer(found, show_page(found))


@command(
    "verify",
    examples=["calve backup verify nightly-2026-01-31", "calve backup verify january --read-data 100%"],
)
@click.argument("name", metavar="NAME")
@click.option("--read-data", default="0%", metavar="PERCENT", help="Read back this much of the data: 5%.")
def verify(session: CliSession, name: str, read_data: str) -> int:
    """Verify that a backup is whole: every object is there, has its size, and, where read, is unchanged.

    Lists each object that is missing, short or changed; the exit code is then 1.
    """
    from calve.cli.backup_pages import verified_page

    found = session.calve.backup_verify(name, read_share=share(read_data))
    session.answer(found, verified_page(found))
    return output.DONE if found["whole"] else output.FAILED


@command(
    "drill",
    examples=["calve backup drill nightly-2026-01-31", "calve backup drill january --bytes 10GB"],
)
@click.argument("name", metavar="NAME")
@click.option(
    "--bytes", "limit", default="1GB", show_default=True, metavar="SIZE", help="Restore at most this much."
)
@no_wait_option
@timeout_option
def drill(
    session: CliSession, name: str, limit: str, no_wait: str | None, timeout_seconds: float | None
) -> int:
    """Prove that a backup restores: restore a sample into an engine of a worker, compare it, and remove it.

    Parts are drawn at random. Every byte of them is checked, every row is read, and nothing else is touched.
    """
    from calve.cli.report import hand_over

    queued = session.calve.backup_drill(name, restore_bytes=size(limit))
    return hand_over(
        session, queued.processes, joined=queued.joined, no_wait=no_wait, timeout_seconds=timeout_seconds
    )  # fmt: skip


@command(
    "restore",
    examples=[
        "calve backup restore nightly-2026-01-31",
        "calve backup restore nightly-2026-01-31 --tables db.events --as db2",
        "calve backup restore january --data-only --existing replace",
    ],
)
@click.argument("name", metavar="NAME")
@click.option("--tables", "patterns", metavar="PATTERNS", multiple=True, help="Only these: db.*,other.t")
@click.option(
    "--as",
    "into",
    default="",
    metavar="DB[.TABLE]",
    help="Restore into another database, or under another name.",
)
@click.option("--source", default="", metavar="SOURCE", help="The source to restore to. [default: the first]")
@click.option("--partitions", metavar="IDS", multiple=True, help="Only these partitions, by id.")
@click.option("--schema-only", is_flag=True, help="Create databases, tables and views; no rows.")
@click.option("--data-only", is_flag=True, help="Only rows, into existing tables; needs --existing.")
@click.option(
    "--existing",
    type=click.Choice(["refuse", "append", "replace"]),
    default="refuse",
    show_default=True,
    help="If a table exists: refuse, append to it, or replace the partitions that the backup has.",
)
@click.option("--again", is_flag=True, help="Append rows that the table has from this backup already.")
@click.option("--rbac", is_flag=True, help="Also users, roles, grants, quotas and the like.")
@click.option(
    "--without-row-policies", is_flag=True, help="Restore tables without the row policies that they had."
)
@click.option("--unsigned", is_flag=True, help="Accept a backup that the signing key did not sign.")
@click.option("--dry-run", is_flag=True, help="Print what would be restored; change nothing.")
@click.option(
    "--plan",
    "plan_hash",
    default="",
    metavar="HASH",
    help="Restore only if the plan still is the one that --dry-run printed with this hash.",
)
@no_wait_option
@timeout_option
def restore(
    session: CliSession,
    name: str,
    patterns: tuple[str, ...],
    into: str,
    source: str,
    partitions: tuple[str, ...],
    schema_only: bool,
    data_only: bool,
    existing: str,
    again: bool,
    rbac: bool,
    without_row_policies: bool,
    unsigned: bool,
    dry_run: bool,
    plan_hash: str,
    no_wait: str | None,
    timeout_seconds: float | None,
) -> int:
    """Restore a backup: create what is missing, fetch and check its parts, attach each exactly once.

    After a kill or an interrupt, the same command resumes where it stopped.
    """
    from calve.app.values import RestoreOptions
    from calve.cli.report import hand_over

    options = RestoreOptions(
        tables=_split(patterns),
        into=into,
        schema_only=schema_only,
        data_only=data_only,
        existing=existing,
        partitions=_split(partitions),
        unsigned=unsigned,
        again=again,
        rbac=rbac,
        without_row_policies=without_row_policies,
        plan_hash=plan_hash,
    )
    if dry_run:
        from calve.cli.backup_pages import restore_preview_page

        found = session.calve.restore_preview(name, options, source=source)
        session.answer(found, restore_preview_page(found))
        return output.REFUSED if any(one["refused"] for one in found["tables"]) else output.DONE
    queued = session.calve.backup_restore(name, options, source=source)
    return hand_over(
        session, queued.processes, joined=queued.joined, no_wait=no_wait, timeout_seconds=timeout_seconds,
        document=_saying_left_out(session),
    )  # fmt: skip


@command("delete", examples=["calve backup delete nightly-2025-12-31"])
@click.argument("names", metavar="NAME…", nargs=-1, required=True)
def delete(session: CliSession, names: tuple[str, ...]) -> None:
    """Delete backups. Parts that other backups share are kept.

    A backup whose manifest is damaged is deleted like any other; parts that its manifest no longer
    names legibly stay in the location.
    """
    from calve.cli.backup_pages import deleted_line, say_what_stays

    done = [session.calve.backup_delete(name) for name in names]
    session.answer(done, "\n".join(map(deleted_line, done)))
    say_what_stays(done)


@command(
    "prune",
    examples=[
        "calve backup prune --keep-last 7",
        "calve backup prune --keep-daily 14 --keep-weekly 8 --keep-monthly 12 --dry-run",
    ],
)
@click.option("--keep-last", type=int, default=0, metavar="N", help="The last N.")
@click.option("--keep-daily", type=int, default=0, metavar="N", help="The newest of each of N days.")
@click.option("--keep-weekly", type=int, default=0, metavar="N", help="The newest of each of N weeks.")
@click.option("--keep-monthly", type=int, default=0, metavar="N", help="The newest of each of N months.")
@click.option("--keep-yearly", type=int, default=0, metavar="N", help="The newest of each of N years.")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted; change nothing.")
def prune(
    session: CliSession,
    keep_last: int,
    keep_daily: int,
    keep_weekly: int,
    keep_monthly: int,
    keep_yearly: int,
    dry_run: bool,
) -> int:
    """Delete the backups that no rule keeps, and finish deletes that were interrupted.

    A backup is kept if any rule keeps it; at least one rule is required. While a backup cannot be read,
    no space is freed, because it may need any part, and the exit code is 4.
    """
    from calve.app.values import Keep
    from calve.cli.backup_pages import pruned_page, say_what_stays

    keep = Keep(
        last=keep_last, daily=keep_daily, weekly=keep_weekly, monthly=keep_monthly, yearly=keep_yearly
    )
    found = session.calve.backup_prune(keep, dry_run=dry_run)
    session.answer(found, pruned_page(found))
    for name in found["unreadable"]:
        output.warning(f"backup {name} cannot be read: it is kept, and so is every part that it may need")
    say_what_stays(found["deleted"])
    return output.REFUSED if any(one["held"] for one in found["deleted"]) else output.DONE


@group(
    "backup",
    commands=(create, list_, show, verify, drill, restore, delete, prune, schedule),
    examples=[
        "calve backup create nightly-2026-01-31 --tables 'db.*'",
        "calve backup list",
        "calve backup verify nightly-2026-01-31 --read-data 5%",
        "calve backup restore nightly-2026-01-31 --as db2",
        "calve backup prune --keep-daily 14",
    ],
)
def backup() -> None:
    """Back up MergeTree tables, restore them, and prune old backups."""


def _saying_left_out(session: CliSession) -> "Callable[[Process], dict[str, Any]]":
    """The document of a backup or a restore; what the backup does not hold is said once it is known."""
    from calve.app.view import result_json

    def document(process: "Process") -> dict[str, Any]:
        made = result_json(process)
        for one in made["detail"].get("left_out", ()):
            session.say(f"not in the backup: {one['what']}: {one['why']}")
        return made

    return document


def _split(given: Sequence[str]) -> tuple[str, ...]:
    """Commas and repeated options alike."""
    return tuple(piece.strip() for text in given for piece in text.split(",") if piece.strip())
