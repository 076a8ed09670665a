"""`calve doctor`."""

import click

from calve.cli import output, words
from calve.cli.command import CliSession, command
from calve.cli.exits import DONE, FAILED

_SHOWN = {"ok": "ok", "warning": "warn", "error": "BAD"}


@command("doctor", examples=["calve doctor", "calve doctor --no-spark --quiet", "calve doctor --json"])
@click.option("--spark/--no-spark", default=True, show_default=True, help="Also start Spark and run a task.")
@click.option("--quiet", is_flag=True, help="Print only warnings and errors.")
def doctor(session: CliSession, spark: bool, quiet: bool) -> int:
    """Check every part end to end: store, sources, catalogs, Java, Spark, and work that needs attention.

    Each cause is reported once. The exit code is 1 if there are errors, and 0 if there are only
    warnings, so it can be used as a probe.
    """
    from calve.app.view import finding_json

    found = []
    for finding in session.calve.doctor(spark=spark):
        level = finding.severity.value
        if quiet and level == "ok":
            continue
        found.append(finding)
        if not session.json:
            output.data(f"{_SHOWN[level]:<4} {finding.part}: {output.one_line(finding.words)}")
            if finding.remedy and level != "ok":
                output.data(f"     hint: {output.one_line(finding.remedy)}")
    session.answer([finding_json(finding) for finding in found], "")
    errors = sum(finding.severity.value == "error" for finding in found)
    warnings = sum(finding.severity.value == "warning" for finding in found)
    if not quiet:
        counts = [words.counted(n, word) for n, word in ((errors, "error"), (warnings, "warning")) if n]
        session.say(f"{', '.join(counts)}." if counts else "All is well.")
    return FAILED if errors else DONE
