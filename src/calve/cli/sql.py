"""`calve sql`: statements that users of ClickHouse know, one as an argument or many at a prompt."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from calve.cli import output
from calve.cli.command import CliSession, command
from calve.model.errors import CalveError

if TYPE_CHECKING:
    from calve.sql.execution import Result

_PROMPT, _MORE = "calve> ", "     > "


@command(
    "sql",
    examples=[
        'calve sql "SELECT id, state, rows FROM calve.processes"',
        "calve sql \"ALTER TABLE db.events EXPORT PARTITION ID '202401' TO TABLE lake.ns.events\"",
        "calve sql \"KILL EXPORT PARTITION WHERE partition_id = '202401'\"",
        'calve sql "SELECT * FROM system.replicated_partition_exports" --format Vertical',
        "calve sql",
        "calve sql --install http://calve.example:8180 --token-file operator.token",
    ],
)
@click.argument("statement", metavar="[STATEMENT]", required=False)
@click.option(
    "--format", "form", metavar="FORMAT", default="", help="Output format of a SELECT: JSON, CSV, TSV, …"
)
@click.option(
    "--install",
    "address",
    metavar="URL",
    help="Print what makes tables of Calve on a ClickHouse server that reaches calve serve at this address.",
)
@click.option(
    "--database", default="calve", metavar="NAME", show_default=True, help="With --install: their database."
)
@click.option(
    "--read-only",
    is_flag=True,
    help="With --install: without a token and calve.actions, for a ClickHouse server on the host of calve serve.",
)
def sql(
    session: CliSession, statement: str | None, form: str, address: str | None, database: str, read_only: bool
) -> int:
    """Run a statement: SELECT, ALTER TABLE … EXPORT, KILL EXPORT, SYSTEM STOP|START EXPORTS. Without one, read
    statements from the terminal or from standard input, each ended by a semicolon.
    """
    if address is not None:
        _install(session, address, database, read_only)
        return 0
    chosen = form or ("JSON" if session.json else "PrettyCompact" if sys.stdout.isatty() else "TabSeparated")
    with _opened(session, chosen) as run:
        if statement is not None:
            _show(session, run(statement))
            return 0
        return _talk(session, run)


def _install(session: CliSession, address: str, database: str, read_only: bool) -> None:
    """The token is one that was named on purpose; that of this host is of no use to another one."""
    from calve.client.transport import checked_address
    from calve.sql.url_tables import statements

    token = "" if read_only else session.named_token
    made = statements(
        checked_address(address), database=database, token=token or "TOKEN", read_only=read_only
    )
    session.answer({"statements": made}, "".join(f"{one};\n" for one in made).rstrip("\n"))
    if not token and not read_only:
        session.say("hint: put a token for TOKEN: calve token new --role operator --name clickhouse")


Run = Callable[[str], "Result"]


@contextlib.contextmanager
def _opened(session: CliSession, form: str) -> Iterator[Run]:
    if session.server:
        yield lambda text: _asked(session, text, form)
        return
    from calve.app.calve import Calve
    from calve.app.desk import Desk, local_caller
    from calve.sql import execution

    calve, limits = session.calve, session.config.limits
    assert isinstance(calve, Calve)
    # Not required here: this user can read these files without us, and is told.
    cages = execution.cages(limits, required=False)
    caller, opened = local_caller(), execution.Sql(Desk(calve), cages, limits)
    try:
        yield lambda text: opened.run(caller, text, form=form)
    finally:
        cages.close()


def _asked(session: CliSession, text: str, form: str) -> "Result":
    from calve.sql.execution import Result

    answer = session.transport.statement(text, form)
    return Result(
        data=answer.data,
        form=answer.form,
        processes=answer.processes,
        joined=answer.joined,
        truncated=answer.truncated,
    )


def _talk(session: CliSession, run: Run) -> int:
    """A statement that fails ends a script, and not a conversation."""
    talks = sys.stdin.isatty()
    if talks:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - lines can be edited and recalled; nothing is kept
    for text in _statements(talks):
        try:
            _show(session, run(text))
        except CalveError as error:
            if not talks:
                raise
            output.error(error.info)
    return 0


def _statements(talks: bool) -> Iterator[str]:
    from calve.sql.statement import split

    if not talks:
        yield from split(sys.stdin.read())
        return
    text = ""
    while True:
        try:
            text += input(_MORE if text else _PROMPT) + "\n"
        except EOFError:
            output.say()
            return
        except KeyboardInterrupt:
            output.say()
            text = ""
            continue
        if text.strip().lower() in ("exit", "quit"):
            return
        if text.rstrip().endswith(";"):
            yield from split(text)
            text = ""


def _show(session: CliSession, result: "Result") -> None:
    if result.data:
        sys.stdout.flush()
        sys.stdout.buffer.write(result.data)
        sys.stdout.flush()
    elif result.processes:
        session.answer({"processes": list(result.processes), "joined": list(result.joined)}, "")
        for process in result.processes:
            session.say(f"{process} {'is under way already' if process in result.joined else 'queued'}")
        if not session.calve.has_workers(session.calve.find(result.processes)):
            session.say("hint: no worker takes it yet; start one: calve worker")
    for table in result.truncated:
        session.say(
            f"warning: {table} has more rows than a SELECT sees (limits.select_rows); the oldest are missing"
        )
    for note in result.notes:
        session.say(f"warning: {note}")
