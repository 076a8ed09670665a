"""How every command is made: the options they share, help with examples, one session.

The modules of commands import nothing heavy at the top, so that `calve --help` and `calve ps`
answer at once; a test holds them to it.

Options that several commands share, and how spans of time are read.
"""

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calve.app.arguments import span
from calve.cli import output
from calve.model.errors import UsageError

if TYPE_CHECKING:
    from calve.app.config import Config
    from calve.app.front import Front
    from calve.client.transport import Transport


@dataclass(kw_only=True)
class CliSession:
    """One run of one command."""

    json: bool = False
    debug: bool = False
    config_path: str | None = None
    server_url: str | None = None
    token_file: str | None = None
    environ: Mapping[str, str] | None = None  # in place of the program's own
    migrate: bool = False

    @cached_property
    def config(self) -> "Config":
        from calve.app.config import load_config

        return load_config(self.config_path, environ=self.environ)

    @property
    def server(self) -> str:
        """The address of the server that answers; "" if this program does."""
        environ = os.environ if self.environ is None else self.environ
        return self.server_url or environ.get("CALVE_SERVER", "")

    @cached_property
    def calve(self) -> "Front":
        made = self._remote() if self.server else self._local()
        click.get_current_context().call_on_close(made.close)
        return made

    def _local(self) -> "Front":
        from calve.app.calve import Calve

        return Calve(self.config, migrate=self.migrate)

    def _remote(self) -> "Front":
        from calve.client.remote import RemoteCalve

        return RemoteCalve(self.transport)

    @cached_property
    def transport(self) -> "Transport":
        """To the server that answers."""
        from calve.client.transport import Transport

        environ = os.environ if self.environ is None else self.environ
        config = Path(self.config_path or environ.get("CALVE_CONFIG") or "calve.toml")
        return Transport(
            self.server,
            self.named_token,
            local_file=config.absolute().with_name("calve.token"),
            ca_file=environ.get("CALVE_CA_FILE", ""),
        )

    @property
    def named_token(self) -> str:
        """That of --token-file, CALVE_TOKEN or CALVE_TOKEN_FILE; "" if none was named."""
        from calve.client.transport import given_token

        return given_token(self.token_file, os.environ if self.environ is None else self.environ)

    def only_here(self, what: str) -> None:
        """UsageError if a server was asked to do it."""
        if self.server_url:
            raise UsageError(f"calve {what} runs here only", code="runs_here", hint="omit --server")

    def answer(self, document: Any, text: str) -> None:
        """The command's data: JSON where it was asked for, otherwise text for people."""
        if self.json:
            output.document(document)
        elif text:
            output.data(text)

    def answer_each(self, documents: Sequence[Any], text: str) -> None:
        """One document for one thing, a list for several."""
        self.answer(documents[0] if len(documents) == 1 else documents, text)

    def say(self, text: str) -> None:
        """For people; with --json nobody reads it."""
        if not self.json:
            output.say(text)

    def within(self, shared: Mapping[str, Any]) -> "CliSession":
        """The session of a command below this one; its own options win."""
        return replace(self, **{name: value for name, value in shared.items() if value})


class _WithExamples(click.Command):
    """Help ends with examples: each a command that can be pasted."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


class CalveCommand(_WithExamples):
    """A command that does something."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`--no-wait` alone takes no value, not even the next argument: one is given by `=`."""
        if any(isinstance(param, NoWaitOption) for param in self.params):
            given = args[: args.index("--")] if "--" in args else args
            spelled = [f"--no-wait={PINNED}" if arg == "--no-wait" else arg for arg in given]
            args = spelled + args[len(given) :]
        return super().parse_args(ctx, args)


PINNED, QUEUED = "pinned", "queued"


class NoWaitOption(click.Option):
    """`--no-wait`, or `--no-wait=queued`."""


class CommandGroup(_WithExamples, click.Group):
    """Commands below a name, listed in the order in which a person meets them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The whole first sentence of each, wrapped where it is long: click would cut it."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, self.commands[name].get_short_help_str(200)) for name in self.commands]
            )


def command(name: str, *, examples: Sequence[str]) -> Callable[[Callable[..., int | None]], CalveCommand]:
    """A command whose function takes the session first and returns its exit code (None is 0)."""

    def make(body: Callable[..., int | None]) -> CalveCommand:
        @functools.wraps(body)
        def run(ctx: click.Context, /, **given: Any) -> int:
            above: CliSession = ctx.obj or CliSession()
            shared = {name: given.pop(name) for name in SHARED}
            return body(above.within(shared), **given) or 0

        made = click.command(name, cls=CalveCommand, examples=examples)(
            shared_options(click.pass_context(run))
        )
        assert isinstance(made, CalveCommand)
        made.params.sort(key=lambda one: one.name in SHARED)  # its own options first
        return made

    return make


def group(
    name: str, *, commands: Sequence[click.Command], examples: Sequence[str]
) -> Callable[[Callable[[], None]], CommandGroup]:
    """The decorated function gives the help, and does nothing."""

    def make(body: Callable[[], None]) -> CommandGroup:
        @functools.wraps(body)
        def run(ctx: click.Context, /, **shared: Any) -> None:
            above: CliSession = ctx.obj or CliSession()
            ctx.obj = above.within(shared)

        made = click.group(name, cls=CommandGroup, examples=examples)(shared_options(click.pass_context(run)))
        assert isinstance(made, CommandGroup)
        for one in commands:
            made.add_command(one)
        return made

    return make


SHARED = ("json", "debug", "config_path", "server_url", "token_file")  # fields of `CliSession`


def shared_options(body: Callable[..., Any]) -> Callable[..., Any]:
    """The options that every command takes, and the group before it."""
    for option in (
        click.option("--debug", is_flag=True, help="Show tracebacks."),
        click.option("--config", "config_path", metavar="PATH", help="Configuration file. [default: ./calve.toml]"),
        click.option("--token-file", metavar="PATH", help="File with the token for --server. [default: CALVE_TOKEN, CALVE_TOKEN_FILE]"),
        click.option("--server", "server_url", metavar="URL", help="Let the `calve serve` at this address do it. [default: CALVE_SERVER]"),
        click.option("--json", is_flag=True, help="Print one JSON document on stdout."),
    ):  # fmt: skip
        body = option(body)
    return body


def _timeout(_ctx: click.Context, _option: click.Parameter, text: str | None) -> float | None:
    if text is None:
        return None
    return span(text, what="timeout", code="bad_timeout", units="smhd").total_seconds()


def ids_argument(body: Callable[..., Any]) -> Callable[..., Any]:
    return click.argument("ids", metavar="ID…", nargs=-1, required=True)(body)


def no_wait_option(body: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--no-wait", cls=NoWaitOption, type=click.Choice([PINNED, QUEUED]), metavar="[=queued]",
        help="Print the ids and return once the data is pinned, or at once: --no-wait=queued. A worker does the work.",
    )(body)  # fmt: skip


def log_level_option(body: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--log-level", type=click.Choice(["debug", "info", "warning", "error"]),
        help="The least level that is logged. [default: info]",
    )(body)  # fmt: skip


def timeout_option(body: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--timeout", "timeout_seconds", metavar="30m", callback=_timeout,
        help="Stop waiting after this long (90s, 30m, 2h). The work goes on; the exit code is 130.",
    )(body)  # fmt: skip
