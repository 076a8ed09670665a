"""`calve backup` and its commands."""

from collections.abc import Sequence

import click

from calve.cli import exits, output
from calve.cli.command import Session, command
from calve.cli.groups import group
from calve.model.errors import UsageError


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
    "--source", default="", metavar="SOURCE", help="A source of the configuration; the first otherwise."
)
@click.option("--partitions", metavar="IDS", multiple=True, help="Only these partitions: ids or values.")
@click.option(
    "--mutations",
    type=click.Choice(["refuse", "wait"]),
    default="refuse",
    show_default=True,
    help="Where an ALTER is not finished: refuse, or wait for it.",
)
@click.option("--ignore-row-policies", is_flag=True, help="Back up rows that row policies hide, too.")
@click.option("--no-wait", is_flag=True, help="Print the id and return; a worker does the work.")
def create(
    session: Session,
    name: str,
    patterns: tuple[str, ...],
    source: str,
    partitions: tuple[str, ...],
    mutations: str,
    ignore_row_policies: bool,
    no_wait: bool,
) -> int:
    """Back up tables: their structure and every part, each content stored once.

    What an earlier backup has stored is not copied again. Killed or interrupted, the same command goes
    on where it stopped. Tables that vanish before they can be frozen are left out, and said.
    """
    from calve.app.backups import BackupReach
    from calve.backup.submit import request_of, submit
    from calve.cli.backup_running import hand_over

    reach = BackupReach(session.app)
    request = request_of(
        reach,
        name,
        source or session.config.default_source,
        _split(patterns),
        partitions=_split(partitions),
        mutations=mutations,
        ignore_row_policies=ignore_row_policies,
    )
    found = submit(reach, session.app.store, request)
    return hand_over(session, found.process, resumed=found.resumed, no_wait=no_wait)


@command("list", examples=["calve backup list", "calve backup list --json"])
def list_(session: Session) -> None:
    """List backups: their age, what they hold, and their size with and without what they share."""
    from calve.app.backups import BackupReach, lines
    from calve.cli.backup_pages import list_json, list_page

    found = lines(BackupReach(session.app).location())
    if not found:
        output.say(f"no backup in {session.config.backup_url}")
    session.answer(list_json(found), list_page(found, session.app.store.now()) if found else "")


@command("show", examples=["calve backup show nightly-2026-01-31"])
@click.argument("name", metavar="NAME")
def show(session: Session, name: str) -> None:
    """Show what a backup holds."""
    from calve.app.backups import BackupReach, lines
    from calve.archive.backups import find
    from calve.cli.backup_pages import manifest_of, show_json, show_page

    location = BackupReach(session.app).location()
    line = manifest_of(lines(location), find(location, name, unsigned=True))
    session.answer(show_json(line), show_page(line))


@command(
    "verify",
    examples=["calve backup verify nightly-2026-01-31", "calve backup verify january --read-data 100%"],
)
@click.argument("name", metavar="NAME")
@click.option("--read-data", default="0%", metavar="PERCENT", help="Read so much of the data back: 5%.")
def verify(session: Session, name: str, read_data: str) -> int:
    """Prove that a backup is whole: every object there, in its size, and, as far as read, unchanged.

    Names each object that is missing, short or changed; the exit code is then 1.
    """
    from calve.app.backups import BackupReach
    from calve.archive import backups
    from calve.backup import verification
    from calve.cli.backup_pages import verified_json, verified_page

    share = _share(read_data)
    location = BackupReach(session.app).location()
    found = verification.verify(location, backups.find(location, name), read_share=share)
    session.answer(verified_json(found), verified_page(found))
    return exits.DONE if found.whole else exits.FAILED


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
@click.option("--as", "into", default="", metavar="DB[.TABLE]", help="Into another database, or name.")
@click.option("--source", default="", metavar="SOURCE", help="The source to restore to; the first otherwise.")
@click.option("--partitions", metavar="IDS", multiple=True, help="Only these partitions, by id.")
@click.option("--schema-only", is_flag=True, help="Make databases, tables and views; no rows.")
@click.option("--data-only", is_flag=True, help="Only rows, into tables that exist; needs --existing.")
@click.option(
    "--existing",
    type=click.Choice(["refuse", "append", "replace"]),
    default="refuse",
    show_default=True,
    help="A table that exists: refuse, add to it, or replace the partitions that the backup has.",
)
@click.option("--unsigned", is_flag=True, help="Accept a backup that the signing key did not sign.")
@click.option("--no-wait", is_flag=True, help="Print the id and return; a worker does the work.")
def restore(
    session: Session,
    name: str,
    patterns: tuple[str, ...],
    into: str,
    source: str,
    partitions: tuple[str, ...],
    schema_only: bool,
    data_only: bool,
    existing: str,
    unsigned: bool,
    no_wait: bool,
) -> int:
    """Restore a backup: make what is missing, fetch and check its parts, attach each exactly once.

    Killed or interrupted, the same command goes on where it stopped.
    """
    from calve.app.backups import BackupReach
    from calve.cli.backup_running import hand_over
    from calve.restore.submit import Asked, request_of, submit

    reach = BackupReach(session.app)
    target = source or session.config.default_source
    session.config.source(target)
    asked = Asked(
        backup=name,
        source=target,
        tables=_split(patterns),
        into=into,
        schema_only=schema_only,
        data_only=data_only,
        existing=existing,
        partitions=_split(partitions),
        unsigned=unsigned,
    )
    found = submit(reach, session.app.store, request_of(reach, asked))
    return hand_over(session, found.process, resumed=found.resumed, no_wait=no_wait)


@command("delete", examples=["calve backup delete nightly-2025-12-31"])
@click.argument("names", metavar="NAME…", nargs=-1, required=True)
def delete(session: Session, names: tuple[str, ...]) -> None:
    """Delete backups. What other backups share stays.

    A backup whose manifest is damaged is deleted like any other; what can no longer be made out in the
    manifest stays in the location.
    """
    from calve.app.backups import delete_backup
    from calve.cli.backup_pages import deleted_line, say_what_stays

    done = [delete_backup(session.app, name) for name in names]
    session.answer([vars(one) for one in done], "\n".join(map(deleted_line, done)))
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
@click.option("--dry-run", is_flag=True, help="Say what would be deleted; change nothing.")
def prune(
    session: Session,
    keep_last: int,
    keep_daily: int,
    keep_weekly: int,
    keep_monthly: int,
    keep_yearly: int,
    dry_run: bool,
) -> int:
    """Delete the backups that no rule keeps, and finish deletes that did not come to their end.

    A backup is kept if any of the rules keeps it; at least one rule has to be given. While a backup
    cannot be read no space is freed, because it may need anything, and the exit code is 4.
    """
    from calve.app.backups import prune as pruned
    from calve.backup.deletion import Keep
    from calve.cli.backup_pages import pruned_json, pruned_page, say_what_stays

    keep = Keep(
        last=keep_last, daily=keep_daily, weekly=keep_weekly, monthly=keep_monthly, yearly=keep_yearly
    )
    found = pruned(session.app, keep, dry_run=dry_run)
    session.answer(pruned_json(found, dry_run=dry_run), pruned_page(found, dry_run=dry_run))
    for name in found.unreadable:
        output.warning(f"backup {name} cannot be read: it is kept, and nothing that it may need is removed")
    say_what_stays(found.deleted)
    return exits.REFUSED if any(one.held for one in found.deleted) else exits.DONE


@group(
    "backup",
    commands=(create, list_, show, verify, restore, delete, prune),
    examples=[
        "calve backup create nightly-2026-01-31 --tables 'db.*'",
        "calve backup list",
        "calve backup verify nightly-2026-01-31 --read-data 5%",
        "calve backup restore nightly-2026-01-31 --as db2",
        "calve backup prune --keep-daily 14",
    ],
)
def backup() -> None:
    """Back up MergeTree tables, restore them, and keep the backups you need."""


def _split(given: Sequence[str]) -> tuple[str, ...]:
    """Commas and repeated options alike."""
    return tuple(piece.strip() for text in given for piece in text.split(",") if piece.strip())


def _share(text: str) -> float:
    number = text.strip().removesuffix("%")
    try:
        share = float(number) / 100
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise UsageError(
            f"{text!r} is no percentage", code="bad_share", hint="give 0% to 100%: --read-data 5%"
        )
    return share
