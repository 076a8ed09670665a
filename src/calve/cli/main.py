"""The `calve` command: its sub-commands, and how every error leaves it.

No traceback without `--debug`: an error is one line, then a `hint:` with what to do.
"""

import gc
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.exceptions import NoArgsIsHelpError

from calve import __version__
from calve.cli import output
from calve.cli.access import token
from calve.cli.backup import backup
from calve.cli.command import CalveCommand, CliSession, CommandGroup, shared_options
from calve.cli.demo import demo
from calve.cli.export import export
from calve.cli.follow import cancel, retry, wait
from calve.cli.hold import hold
from calve.cli.installation import config, doctor, init, notify, spark, support, version, worker
from calve.cli.optimize import health, history, optimize
from calve.cli.output import FAILED, INTERRUPTED, WRONG
from calve.cli.partitions import partitions
from calve.cli.policy import policy
from calve.cli.ps import ps
from calve.cli.serve import serve
from calve.cli.show import events, show, verify, why
from calve.cli.sql import sql
from calve.cli.untier import untier
from calve.cli.view import view
from calve.model.errors import CalveError, ErrorInfo

COMMANDS: tuple[CalveCommand | CommandGroup, ...] = (
    demo, init, config, doctor, partitions, export, backup, health, optimize, history, policy, hold, untier, view, ps, show, events, why, wait, cancel, retry, verify, sql, worker, serve, token, notify, spark, support, version,
)  # fmt: skip

_GARBAGE_EACH = 10_000  # objects: by Python's own 700, what is being loaded is searched hundreds of times


@click.group(
    cls=CommandGroup,
    examples=("calve demo", "calve export db.events --partition 202401 --to lake.ns.events"),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="calve", message="%(prog)s %(version)s")
@click.option(
    "--migrate",
    is_flag=True,
    envvar="CALVE_MIGRATE",
    help="Bring the store to this version's schema also while older workers use it. [env: CALVE_MIGRATE=1]",
)
@shared_options
@click.pass_context
def calve(ctx: click.Context, /, migrate: bool, **shared: Any) -> None:
    """Publish partitions of ClickHouse tables as Apache Iceberg snapshots, exactly once; back the same
    tables up; keep the Iceberg tables healthy.
    """
    ctx.obj = CliSession(migrate=migrate).within(shared)


for made in COMMANDS:
    calve.add_command(made)


def main() -> None:
    """The console script. SIGTERM is as Ctrl-C: what is under way is handed back, and nobody waits for a
    lease to pass. (A worker drains, by a handler of its own.)"""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    _open_streams()
    gc.set_threshold(_GARBAGE_EACH)
    code = run(sys.argv[1:])
    gc.freeze()  # or Python's last collections walk through every module there is: a third of a second
    sys.exit(code)


def _open_streams() -> None:
    """Started with stdout or stderr closed (`calve ps >&-`): nobody reads it, and that is no error."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - for good


def run(argv: Sequence[str]) -> int:
    """Run one command; the exit code."""
    flags = list(argv)[: argv.index("--")] if "--" in argv else list(argv)
    debug, as_json = "--debug" in flags, "--json" in flags
    try:
        code = calve.main(args=list(argv), prog_name="calve", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except CalveError as error:
        return _leave(error.info, error.exit_code, as_json=as_json, debug=debug)
    except NoArgsIsHelpError as error:
        if as_json:
            return _leave(_no_command(error), WRONG, as_json=True, debug=debug)
        output.say(error.ctx.get_help())
        return WRONG
    except click.ClickException as error:
        return _leave(_usage(error), WRONG, as_json=as_json, debug=debug)
    except KeyboardInterrupt as interrupt:
        if not getattr(interrupt, "is_explained", False):
            output.say("interrupted")
        return INTERRUPTED
    except click.Abort as abort:  # what click makes of a KeyboardInterrupt
        if not getattr(abort.__cause__, "is_explained", False):
            output.say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of stdout went away (`calve ps | head`).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:  # noqa: BLE001 - the last line of defence: never a traceback
        return _leave(_internal(error), FAILED, as_json=as_json, debug=debug)


def _leave(info: ErrorInfo, code: int, *, as_json: bool, debug: bool) -> int:
    from calve.app.view import error_json

    if debug:
        traceback.print_exc()
    if as_json:
        output.document({"error": error_json(info)})
    output.error(info)
    return code


def _usage(error: click.ClickException) -> ErrorInfo:
    ctx = getattr(error, "ctx", None)
    path = ctx.command_path if ctx else "calve"
    return ErrorInfo(code="usage", message=error.format_message(), hint=f"{path} --help")


def _no_command(error: NoArgsIsHelpError) -> ErrorInfo:
    path = error.ctx.command_path
    return ErrorInfo(code="usage", message=f"{path} needs a command", hint=f"{path} --help")


def _internal(error: Exception) -> ErrorInfo:
    return ErrorInfo(
        code="internal",
        message=f"{type(error).__name__}: {error}",
        hint="this is a bug in Calve: run it again with --debug and report what it prints",
    )
