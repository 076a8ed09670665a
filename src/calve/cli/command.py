"""How every command is made: the options they share, help with examples, one session.

The modules of commands import nothing heavy at the top, so that `calve --help` and `calve ps`
answer at once; a test holds them to it.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import click

from calve.cli import output

if TYPE_CHECKING:
    from calve.app.config import Config
    from calve.app.wiring import App

P = ParamSpec("P")


@dataclass(kw_only=True)
class Session:
    """One run of one command."""

    json: bool = False
    debug: bool = False
    config_path: str | None = None
    environ: Mapping[str, str] | None = None  # in place of the program's own

    @cached_property
    def config(self) -> "Config":
        from calve.app.config import load_config

        return load_config(self.config_path, environ=self.environ)

    @cached_property
    def app(self) -> "App":
        from calve.app.wiring import open_app

        app = open_app(self.config)
        click.get_current_context().call_on_close(app.close)
        return app

    def answer(self, document: Any, text: str) -> None:
        """The command's data: JSON where it was asked for, otherwise text for people."""
        if self.json:
            output.document(document)
        elif text:
            output.data(text)


class CalveCommand(click.Command):
    """Help ends with examples: each a command that can be pasted."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


Body = Callable[Concatenate[Session, P], int | None]


def command(name: str, *, examples: Sequence[str]) -> Callable[[Callable[..., int | None]], CalveCommand]:
    """A command whose function takes the session first and returns its exit code (None is 0)."""

    def make(body: Callable[..., int | None]) -> CalveCommand:
        @functools.wraps(body)
        def run(
            ctx: click.Context, /, as_json: bool, config_path: str | None, debug: bool, **given: Any
        ) -> int:
            above: Session = ctx.obj or Session()
            session = Session(
                json=as_json or above.json,
                debug=debug or above.debug,
                config_path=config_path or above.config_path,
            )
            return body(session, **given) or 0

        made = click.command(name, cls=CalveCommand, examples=examples)(
            shared_options(click.pass_context(run))
        )
        assert isinstance(made, CalveCommand)
        return made

    return make


def shared_options(body: Callable[..., Any]) -> Callable[..., Any]:
    """The options that every command takes, and the group before it."""
    for option in (
        click.option("--debug", is_flag=True, help="Show tracebacks."),
        click.option(
            "--config", "config_path", metavar="PATH", help="The configuration file; ./calve.toml otherwise."
        ),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout."),
    ):
        body = option(body)
    return body
