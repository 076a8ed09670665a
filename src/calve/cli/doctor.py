"""`calve doctor`."""

import click

from calve.cli import output
from calve.cli.command import Session, command
from calve.cli.exits import DONE, FAILED


@command("doctor", examples=["calve doctor", "calve doctor --no-spark --json"])
@click.option("--spark/--no-spark", default=True, show_default=True, help="Also start Spark and run a task.")
def doctor(session: Session, spark: bool) -> int:
    """Check every part end to end: store, sources, catalogs, Java, Spark, and work that needs attention."""
    from calve.app.view import finding_json

    found = []
    for finding in session.calve.doctor(spark=spark):
        found.append(finding)
        if not session.json:
            level = "warn" if finding.warning else "ok" if finding.ok else "BAD"
            output.data(f"{level:<4} {finding.part}: {output.one_line(finding.words)}")
            if finding.remedy and level != "ok":
                output.data(f"     hint: {output.one_line(finding.remedy)}")
    session.answer([finding_json(finding) for finding in found], "")
    bad = sum(not finding.ok for finding in found)
    if not session.json:
        output.say(f"{bad} to fix." if bad else "All is well.")
    return FAILED if bad else DONE
