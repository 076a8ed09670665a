"""`calve doctor`, `calve support`, `calve version` and `calve notify`.

`calve init` and `calve config`. `calve spark package`.

`calve worker`.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import click

from calve import __version__
from calve.cli import output
from calve.cli.command import CliSession, command, group, log_level_option
from calve.cli.output import DONE, FAILED
from calve.model.errors import UsageError

_SHOWN = {"ok": "ok", "warning": "warn", "error": "BAD"}


@command("doctor", examples=["calve doctor", "calve doctor --no-spark --quiet", "calve doctor --json"])
@click.option("--spark/--no-spark", default=True, show_default=True, help="Also start Spark and run a task.")
@click.option("--quiet", is_flag=True, help="Print only warnings and errors.")
def doctor(session: CliSession, spark: bool, quiet: bool) -> int:
    """Check every part end to end: store, sources, catalogs, Java, Spark, and work that needs attention.

    Each cause is reported once. The exit code is 1 if there are errors, and 0 if there are only
    warnings, so it can be used as a probe.
    """
    found = []
    for finding in session.calve.doctor(spark=spark):
        level = finding["severity"]
        if quiet and level == "ok":
            continue
        found.append(finding)
        if not session.json:
            output.data(f"{_SHOWN[level]:<4} {finding['part']}: {output.one_line(finding['words'])}")
            if finding["remedy"] and level != "ok":
                output.data(f"     hint: {output.one_line(finding['remedy'])}")
    session.answer(found, "")
    errors = sum(finding["severity"] == "error" for finding in found)
    warnings = sum(finding["severity"] == "warning" for finding in found)
    if not quiet:
        counts = [output.counted(n, word) for n, word in ((errors, "error"), (warnings, "warning")) if n]
        session.say(f"{', '.join(counts)}." if counts else "All is well.")
    return FAILED if errors else DONE


@command("support", examples=["calve support", "calve support --output report.zip --with-names"])
@click.option(
    "--output",
    "file",
    metavar="FILE",
    help="[default: calve-support-TIME.zip]",
    type=click.Path(path_type=Path),
)
@click.option("--with-names", is_flag=True, help="Keep the names of callers in the audit.")
def support(session: CliSession, file: Path | None, with_names: bool) -> None:
    """Write a bundle for a bug report: versions, the masked configuration, processes, events, doctor's findings.

    Contains no secret, no row and no condition of an export; names of tables and hosts are in it.
    """
    from calve.app.support import zipped

    found = session.calve.support(with_names=with_names)
    file = file or Path(f"calve-support-{session.calve.now():%Y%m%dT%H%M%SZ}.zip")
    try:
        number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise UsageError(
            f"cannot write {file}: {error.strerror}",
            code="support_file",
            hint="name another one: --output FILE",
        ) from None
    with os.fdopen(number, "wb") as opened:
        opened.write(zipped(found))
    session.answer({"file": str(file.absolute()), "parts": list(found)}, str(file))
    session.say("Look through it before you send it: it names tables and hosts.")


@command("version", examples=["calve version", "calve version --json"])
def version(session: CliSession) -> None:
    """Show the versions of all parts: Calve, its libraries, Java. With --server: the server's."""
    if session.server:
        found = session.calve.versions()
    else:
        from calve.app.support import versions

        found = versions()  # without a configuration too
    session.answer(found, output.facts([(part, one or "not installed") for part, one in found.items()]))
    if session.server and found["calve"] != __version__:
        session.say(f"this command is of calve {__version__}")


@command("test", examples=["calve notify test ops"])
@click.argument("name", metavar="NAME")
def notify_test(session: CliSession, name: str) -> None:
    """Send one message to [notify.NAME], or call the success URL of [ping.NAME], and say what it answered."""
    done = session.calve.notify_test(name)
    session.answer(done, f"{done['target']}: {done['host']} answered {done['status']} to {done['event']}")


@group("notify", commands=(notify_test,), examples=["calve notify test ops"])
def notify() -> None:
    """Try the webhooks and pings of the configuration."""


@command("package", examples=["calve spark package", "calve spark package --output /shared/calve.tar.gz"])
@click.option(
    "--output",
    "file",
    metavar="FILE",
    help="[default: calve-executors-VERSION.tar.gz]",
    type=click.Path(path_type=Path),
)
def spark_package(session: CliSession, file: Path | None) -> None:
    """Write an archive of Calve and the libraries that its tasks need, for a cluster's executors.

    Spark ships it: the lines that are printed belong under [spark.conf]. Executors need a Python of the same minor
    version, and nothing else.
    """
    from calve.app.support import executor_package

    session.only_here("spark package")
    file = (file or Path(f"calve-executors-{__version__}.tar.gz")).absolute()
    session.say("packing, which takes a minute")
    found = executor_package(file)
    session.answer(
        found, "\n".join(["[spark.conf]", *(f'"{key}" = "{value}"' for key, value in found["conf"].items())])
    )
    session.say(f"{file}: {output.size(found['bytes'])}, {len(found['packages'])} packages")


@group("spark", commands=(spark_package,), examples=["calve spark package"])
def spark() -> None:
    """Get a Spark cluster ready for Calve."""


@command("init", examples=["calve init", "calve init my-lake"])
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
def init(session: CliSession, folder: Path) -> None:
    """Write a calve.toml with embedded defaults and every key explained.

    An existing file is never overwritten.
    """
    from calve.app.config.template import write

    session.only_here("init")
    file = write(folder)
    session.answer({"file": str(file.absolute())}, str(file))
    session.say("Edit it, then check everything with: calve doctor")


@command("config", examples=["calve config", "calve config --json", "CALVE_LIMITS__SLOTS=4 calve config"])
def config(session: CliSession) -> None:
    """Show each setting and where it came from. Secrets are masked."""
    from calve.app.config.template import toml_value

    found = session.calve.settings()
    rows = [(key, toml_value(one["value"]), one["origin"]) for key, one in found["settings"].items()]
    session.say(found["file"] or "no file: settings from the environment only")
    session.answer(found, output.table(("KEY", "VALUE", "ORIGIN"), rows))


@command("worker", examples=["calve worker", "calve worker --until-idle"])
@click.option("--until-idle", is_flag=True, help="Exit once nothing is left to do.")
@click.option("--while-stdin", is_flag=True, hidden=True)  # of `calve serve --with-worker`
@log_level_option
def worker(session: CliSession, until_idle: bool, while_stdin: bool, log_level: str | None) -> None:
    """Run a worker: do the work of every process that this configuration reaches.

    SIGTERM or Ctrl-C drains it: no new tasks start, and running ones finish or are handed back. A
    second signal stops it quickly, and still safely: another worker takes over what was under way.
    """
    program = session.calve.worker()
    say = start_log(session, log_level, worker=program.id)

    def stop(_number: int, _frame: FrameType | None) -> None:
        program.request_stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    if while_stdin:  # `calve serve` holds it open, and has ended when it ends
        threading.Thread(target=_at_end_of_stdin, args=(program.request_stop,), daemon=True).start()
    say(f"worker {program.id} reaches {', '.join(sorted(session.config.reach))}; Ctrl-C drains it")
    program.run(until_idle=until_idle)
    session.answer({"worker": program.id}, "")
    say(f"worker {program.id} has ended; unfinished work waits for the next worker")


def _at_end_of_stdin(then: Callable[[], None]) -> None:
    sys.stdin.read()
    then()


def start_log(session: CliSession, level: str | None, **fixed: Any) -> Callable[[str], None]:
    """Start the log of a long-running program. Returns how to announce what it does: a sentence on a terminal,
    otherwise a line of the log."""
    from calve.wire import logs

    config = session.config
    as_json = logs.start(
        level=level or config.log.level,
        form=config.log.format,
        secrets=(*config.secrets, *_of_environment()),
        **fixed,
    )
    return logging.getLogger("calve.cli").info if as_json else output.say


def _of_environment() -> list[str]:
    """Keys that the environment may give in place of the configuration."""
    names = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "CALVE_TOKEN")
    return [os.environ[name] for name in names if os.environ.get(name)]
