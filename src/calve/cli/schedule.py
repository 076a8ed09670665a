"""`calve backup schedule`: backups that workers make by rule."""

from datetime import datetime

import click

from calve.app.view import Json
from calve.cli import output
from calve.cli.command import CliSession, command, group, no_wait_option, timeout_option


@command("list", examples=["calve backup schedule list", "calve backup schedule list --json"])
def list_(session: CliSession) -> None:
    """List schedules: what they back up, the last backup of each and the next."""
    found, now = session.calve.schedule_list(), session.calve.now()
    rows = [
        (
            one["name"], f"{one['source']}:{','.join(one['tables'])}", _span(one["every_seconds"]),
            f"{one['at']} {one['zone']}", _ago(one["last"], now), one["next"]["at"],
            "paused" if one["paused"] else "active",
        )
        for one in found
    ]  # fmt: skip
    head = ("NAME", "TABLES", "EVERY", "AT", "LAST", "NEXT", "STATE")
    session.answer(found, output.table(head, rows) if found else "")
    if not found:
        session.say(
            "There are no schedules. `calve init` in an empty folder shows [backup.schedule.nightly]."
        )
    for one in found:
        _say_standstill(session, one)


def _say_standstill(session: CliSession, one: Json) -> None:
    if one["error"]:
        session.say(f"schedule {one['name']}: the last look failed: {one['error']}")
    elif not one["seen_at"] and not one["paused"]:
        session.say(f"schedule {one['name']}: no worker has looked at it yet: calve worker")


def _ago(last: Json | None, now: datetime) -> str:
    return f"{output.age(datetime.fromisoformat(last['finished_at']), now)} ago" if last else "never"


def _span(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600)):
        if seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds / 60:g}m"


@command("show", examples=["calve backup schedule show nightly"])
@click.argument("name")
def show(session: CliSession, name: str) -> None:
    """Show a schedule: what became of its last occurrences, and the next ones."""
    found = session.calve.schedule_show(name)
    session.answer(found, _shown(found))
    _say_standstill(session, found)


def _shown(found: Json) -> str:
    keep = ", ".join(f"{count} {name}" for name, count in found["keep"].items())
    facts = (
        ("schedule", f"{found['name']}{' (paused)' if found['paused'] else ''}"),
        ("tables", f"{found['source']}:{','.join(found['tables'])}"),
        ("every", f"{_span(found['every_seconds'])} at {found['at']} {found['zone']}"),
        ("keeps", keep or "all"),
        ("verifies", f"{found['verify']:.0%} of each" if found["verify"] else "nothing"),
        ("drills", _drills(found)),
    )
    blocks = [output.facts(facts)]
    past = [one for one in found["occurrences"] if one["state"] != "before"]
    if past:
        rows = [
            (one["occurrence"], one["state"], one["process"] or "-", (one["error"] or {}).get("message", ""))
            for one in past
        ]
        blocks.append(output.table(("OCCURRENCE", "STATE", "PROCESS", "WHY"), rows))
    coming = [(one["at"], one["backup"]) for one in found["upcoming"]]
    blocks.append(output.table(("NEXT", "BACKUP"), coming))
    return "\n\n".join(blocks)


def _drills(found: Json) -> str:
    if not found["drill_seconds"]:
        return "never"
    last = found["drilled_at"]
    proven = f"; a restore was last proven at {last}" if last else "; no restore is proven yet"
    return f"every {_span(found['drill_seconds'])}, at most {output.size(found['drill_bytes'])}{proven}"


@command("run", examples=["calve backup schedule run nightly"])
@click.argument("name")
@no_wait_option
@timeout_option
def run(session: CliSession, name: str, no_wait: str | None, timeout_seconds: float | None) -> int:
    """Make one more backup now, whatever the time is. The schedule's rules keep it or not."""
    from calve.cli.report import hand_over

    queued = session.calve.schedule_run(name)
    return hand_over(
        session, queued.processes, joined=queued.joined, no_wait=no_wait, timeout_seconds=timeout_seconds
    )  # fmt: skip


@command("pause", examples=["calve backup schedule pause nightly --reason 'migration'"])
@click.argument("name")
@click.option("--reason", default="", metavar="TEXT", help="Why; shown to others.")
def pause(session: CliSession, name: str, reason: str) -> None:
    """Start and delete nothing more for a schedule until it is resumed. Work under way continues."""
    session.answer(session.calve.schedule_pause(name, reason=reason), f"schedule {name} is paused")


@command("resume", examples=["calve backup schedule resume nightly"])
@click.argument("name")
def resume(session: CliSession, name: str) -> None:
    """Resume a schedule that was paused. One backup makes up for all that were missed."""
    done = session.calve.schedule_resume(name)
    session.answer(done, f"schedule {name} is {'resumed' if done['resumed'] else 'not paused'}")


@group(
    "schedule",
    commands=(list_, show, run, pause, resume),
    examples=["calve backup schedule list", "calve backup schedule show nightly"],
)
def schedule() -> None:
    """Backups that workers make by rule: [backup.schedule.NAME] in the configuration."""
