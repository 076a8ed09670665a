"""`calve policy`: partitions that are exported by rule."""

import shlex

import click

from calve.app.view import Json
from calve.cli import output
from calve.cli.command import CliSession, command, group, no_wait_option, timeout_option
from calve.model.errors import UsageError

_OF_RELEASES = ("GRACE", "RELEASING", "QUARANTINED", "DROPPED")
_STATES = (
    "HOT", "DUE", "EXPORTING", "EXPORTED", "VERIFIED", "GRACE", "RELEASING", "QUARANTINED", "DROPPED", "CHANGED", "HELD",
    "BLOCKED",
)  # fmt: skip


@command("list", examples=["calve policy list", "calve policy list --json"])
def list_(session: CliSession) -> None:
    """List policies, and where their partitions stand by the last look."""
    found = session.calve.policy_list()
    # States that only policies know that release are shown where there are some.
    states = [
        one for one in _STATES if one not in _OF_RELEASES or any(one in each["states"] for each in found)
    ]
    rows = [
        (
            one["name"], one["source"], one["to"], str(one["tables"]),
            *(str(one["states"].get(state, 0)) for state in states),
            f"{one['next']['date']} {one['next']['partition']}" if one["next"] else "-",
            "paused" if one["paused"] else "active",
        )
        for one in found
    ]  # fmt: skip
    head = ("NAME", "SOURCE", "TO", "TABLES", *states, "NEXT", "STATE")
    session.answer(found, output.table(head, rows) if found else "")
    if not found:
        session.say("There are no policies. `calve init` in an empty folder shows [policy.events].")
    for one in found:
        if one["error"]:
            session.say(f"policy {one['name']}: the last look failed: {one['error']}")
        elif failed := one.get("tables_failed"):
            session.say(
                f"policy {one['name']}: {failed} of {one['tables']} tables could not be looked at; calve policy show {one['name']}"
                " says why"
            )


@command("show", examples=["calve policy show events"])
@click.argument("name")
def show(session: CliSession, name: str) -> None:
    """Show a policy: its tables, what stands aside and why, and the next 30 days."""
    found = session.calve.policy_show(name)
    session.answer(found, _shown(found))


def _shown(found: Json) -> str:
    limit = output.size(found["bytes_per_day"]) if found["bytes_per_day"] else "no limit"
    lines = [
        f"policy {found['name']}{' (paused)' if found['paused'] else ''}: {found['source']} to {found['to']}",
        f"window {found['window'] or 'any time'}; {found['under_way']} under way, at most {found['partitions_per_run']};"
        f" {output.size(found['bytes_today'])} begun today ({limit})",
        "",
        output.table(
            ("TABLE", "TO", "PARTITIONS", "LOOKED AT", "REMARK"),
            [
                (one["source"], one["destination"], str(one["partitions"]), one["looked_at"] or "never",
                 _remark(one))
                for one in found["of_tables"]
            ],
        ),
    ]  # fmt: skip
    if found["aside"]:
        lines += ["", _partitions(found["aside"])]
    if found["forecast"]:
        lines += ["", _forecast(found["forecast"])]
    return "\n".join(lines)


def _remark(table: Json) -> str:
    kept = table.get("view") or {}
    if table["error"] or not kept:
        return str(table["error"] or table["no_time_key"])
    if kept["error"]:
        return f"view {kept['name']}: {kept['error']}"
    made = f"since {kept['made_at']}" if kept["made_at"] else "once something is exported"
    return "; ".join(filter(None, [table["no_time_key"], f"view {kept['name']} {made}"]))


def _partitions(rows: list[Json]) -> str:
    return output.table(
        ("TABLE", "PARTITION", "STATE", "WHY", "WHAT TO DO"),
        [(one["source"], one["partition"], one["state"], one["code"], one["hint"]) for one in rows],
    )


def _forecast(rows: list[Json]) -> str:
    return output.table(
        ("DATE", "ACTION", "TABLE", "PARTITION", "BYTES"),
        [
            (one["date"], one["action"], one["source"], one["partition"], output.size(one["bytes"]))
            for one in rows
        ],
    )


@command("explain", examples=["calve policy explain db.events 202401"])
@click.argument("table")
@click.argument("partition")
def explain(session: CliSession, table: str, partition: str) -> None:
    """Explain where a partition stands: the state, the facts it follows from, and what would change it."""
    found = session.calve.policy_explain(table, partition)
    pages = []
    for one in found:
        head = f"policy {one['policy']}: partition {one['partition']} of {one['source']} is {one['state']}"
        head += f" ({one['code']})" if one["code"] else ""
        head += f" until {one['until']}" if one["until"] else ""
        facts = [(name, "-" if value is None else str(value)) for name, value in one["facts"].items()]
        pages.append(
            "\n".join([head, *([one["hint"]] if one["hint"] else []), output.table(("FACT", "VALUE"), facts)])
        )
    session.answer(found, "\n\n".join(pages))


@command("run", examples=["calve policy run events --dry-run", "calve policy run events"])
@click.argument("name")
@click.option("--dry-run", is_flag=True, help="Print what is due; start nothing.")
def run(session: CliSession, name: str, dry_run: bool) -> None:
    """Look now and start what is due, whatever the policy's window says; its limits hold.

    Workers do the work: `calve ps` shows it.
    """
    found = session.calve.policy_run(name, dry_run=dry_run)
    page = _partitions(found["aside"]) if found["aside"] else ""
    if found["due"]:
        due = output.table(
            ("TABLE", "PARTITION", "STATE", "ACTION", "BYTES"),
            [
                (one["source"], one["partition"], one["state"], one["next"], output.size(one["bytes"]))
                for one in found["due"]
            ],
        )
        page = f"{due}\n\n{page}" if page else due
    session.answer(found, page)
    if not found["due"]:
        session.say("nothing is due")
    elif not dry_run:
        session.say(f"{len(found['started'])} of {len(found['due'])} started; follow them with: calve ps")


@command("pause", examples=["calve policy pause events --reason 'migration'"])
@click.argument("name")
@click.option("--reason", default="", metavar="TEXT", help="Why; shown to others.")
def pause(session: CliSession, name: str, reason: str) -> None:
    """Start nothing more for a policy until it is resumed. Work under way continues."""
    session.answer(session.calve.policy_pause(name, reason=reason), f"policy {name} is paused")


@command("resume", examples=["calve policy resume events"])
@click.argument("name")
def resume(session: CliSession, name: str) -> None:
    """Resume a policy that was paused."""
    done = session.calve.policy_resume(name)
    session.answer(done, f"policy {name} is {'resumed' if done['resumed'] else 'not paused'}")


@command(
    "approve",
    examples=[
        "calve policy approve events --dry-run",
        "calve policy approve events",
        "calve policy approve events --revoke",
    ],
)
@click.argument("name")
@click.option("--dry-run", is_flag=True, help="Print what would leave its table, and when; allow nothing.")
@click.option("--revoke", is_flag=True, help="Withdraw the approval; what is half-way out goes back.")
def approve(session: CliSession, name: str, dry_run: bool, revoke: bool) -> None:
    """Let a policy move proven partitions out of their tables, as the policy is now.

    A change of its rules, a new table or another destination is asked for again.
    """
    if dry_run and revoke:
        raise UsageError(
            "--dry-run and --revoke are given", code="conflicting_options", hint="--revoke asks for nothing"
        )
    if revoke:
        ended = session.calve.policy_approve(name, revoke=True)
        session.answer(ended, f"policy {name} may no longer move partitions out of their tables")
        return
    found = session.calve.policy_approve(name, dry_run=dry_run)
    rows = [
        (one["at"], one["source"], one["partition"], output.count(one["rows"]), output.size(one["bytes"]))
        for one in found["leave"]
    ]
    page = output.table(("LEAVES AT", "TABLE", "PARTITION", "ROWS", "BYTES"), rows) if rows else ""
    session.answer(found, page)
    tables = ", ".join(f"{one['source']} to {one['destination']}" for one in found["tables"])
    allowed = "would be allowed to move" if dry_run else "may move"
    session.say(f"policy {name} (hash {found['hash']}) {allowed} partitions out of: {tables}")


@command(
    "drop",
    examples=[
        "calve policy drop db.events 202401 202402",
        "calve policy drop db.events 202401 202402 --approve 3f2c…",
    ],
)
@click.argument("table")
@click.argument("partitions", nargs=-1, required=True)
@click.option(
    "--approve", default="", metavar="HASH", help="Carry out the plan that was printed with this hash."
)
def drop(session: CliSession, table: str, partitions: tuple[str, ...], approve: str) -> int:
    """Delete partitions that are in quarantine, for good: the destination then has them, and the backup that is named.

    Without --approve, print the plan and its hash, and delete nothing. Workers prove everything again before they delete.
    """
    found = session.calve.policy_drop(table, partitions, approve=approve)
    rows = [
        (
            one["partition"],
            output.count(one["rows"]),
            one["place"],
            one["backup"] or "the lake has the only copy",
        )
        for one in found["plan"]
    ]
    session.answer(found, output.table(("PARTITION", "ROWS", "IN", "ALSO IN BACKUP"), rows))
    if approve:
        session.say(f"begun; follow with: calve wait {' '.join(one['id'] for one in found['processes'])}")
        return output.DONE
    session.say("nothing was deleted. To delete these partitions:")
    session.say(f"  calve policy drop {shlex.join([table, *partitions])} --approve {found['hash']}")
    return output.DONE


@command("undo", examples=["calve policy undo db.events 202401"])
@click.argument("table")
@click.argument("partition")
@click.option(
    "--force",
    is_flag=True,
    help="Even if rows or a mutation came after it left. Needs an admin.",
)
@no_wait_option
@timeout_option
def undo(
    session: CliSession,
    table: str,
    partition: str,
    force: bool,
    no_wait: str | None,
    timeout_seconds: float | None,
) -> int:
    """Bring a partition back into its table out of quarantine.

    Its rows are attached and compared, the destination takes its marks back, and the view reads the table again.
    """
    from calve.cli.report import hand_over

    made = session.calve.policy_undo(table, partition, force=force)
    return hand_over(
        session,
        made.processes,
        joined=made.joined,
        no_wait=no_wait,
        timeout_seconds=timeout_seconds,
    )


@group(
    "policy",
    commands=(list_, show, explain, run, pause, resume, approve, undo, drop),
    examples=["calve policy list", "calve policy show events", "calve policy explain db.events 202401"],
)
def policy() -> None:
    """Partitions that workers export by rule: [policy.NAME] in the configuration."""
