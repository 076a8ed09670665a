"""`calve sql`: statements that users of ClickHouse know, one as an argument or many at a prompt."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from calve.cli import output
from calve.cli.command import CliSession, command
from calve.model.errors import CalveError

if TYPE_CHECKING:
    from calve.sql.execution import StatementResult

_PROMPT, _MORE = "calve> ", "     > "
_GREETING = "Statements end with a semicolon. \\h helps, \\q or Ctrl-D ends."
_HELP = """\
SHOW TABLES;  DESCRIBE calve.processes;
SELECT id, state, rows FROM calve.processes;
ALTER TABLE db.events EXPORT PARTITION ID '202401' TO TABLE lake.ns.events;
KILL EXPORT PARTITION WHERE partition_id = '202401';
SYSTEM STOP EXPORTS db.events;  SYSTEM START EXPORTS db.events;
FORMAT Vertical or FORMAT JSON at the end of a SELECT chooses its form."""
_ENDS = frozenset({"\\q", ":q", "exit", "quit"})
_HELPS = frozenset({"\\h", "\\?", "?", "help"})
_KEPT = 1000  # statements of earlier conversations


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


Run = Callable[[str], "StatementResult"]


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


def _asked(session: CliSession, text: str, form: str) -> "StatementResult":
    from calve.sql.execution import StatementResult

    answer = session.transport.statement(text, form)
    return StatementResult(
        data=answer.data,
        form=answer.form,
        processes=answer.processes,
        joined=answer.joined,
        truncated=answer.truncated,
    )


def _talk(session: CliSession, run: Run) -> int:
    """A statement that fails, or is interrupted, ends a script, and not a conversation."""
    from calve.sql.statement import split

    if not sys.stdin.isatty():
        for text in split(sys.stdin.read()):
            _show(session, run(text))
        return 0
    session.say(_GREETING)
    with _remembered() as remember:
        for text in _typed(remember):
            try:
                for one in split(text):
                    _show(session, run(one))
            except CalveError as error:
                output.error(error.info)
            except KeyboardInterrupt:
                output.say("interrupted; what was queued goes on")
    return 0


def _typed(remember: Callable[[str], None]) -> Iterator[str]:
    """What a person types, up to each semicolon."""
    from calve.sql.statement import is_whole

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
        word = text.strip().rstrip(";").strip().lower()
        if word in _ENDS:
            return
        if word in _HELPS or not word:
            if word:
                output.say(_HELP)
            text = ""
        elif is_whole(text):
            remember(" ".join(text.split("\n")).strip())
            yield text
            text = ""


@contextlib.contextmanager
def _remembered() -> Iterator[Callable[[str], None]]:
    """Statements can be edited and recalled, each as one line, also by the next conversation of this user."""
    try:
        import readline
    except ImportError:
        yield lambda _: None
        return
    kept = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "calve" / "sql_history"
    with contextlib.suppress(OSError):
        readline.read_history_file(kept)
    readline.set_auto_history(False)
    try:
        yield readline.add_history
    finally:
        readline.set_auto_history(True)
        with contextlib.suppress(OSError):
            kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            readline.set_history_length(_KEPT)
            readline.write_history_file(kept)
            kept.chmod(0o600)


def _show(session: CliSession, result: "StatementResult") -> None:
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
