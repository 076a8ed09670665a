"""Commands that have commands of their own, with examples and the shared options like any other."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import click

from calve.cli.command import CalveCommand, Session, shared_options


class CommandGroup(click.Group):
    """Lists its commands in the order in which a person meets them."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The whole first sentence of each, wrapped where it is long: click would cut it."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, self.commands[name].get_short_help_str(200)) for name in self.commands]
            )

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


def group(
    name: str, *, commands: Sequence[CalveCommand], examples: Sequence[str]
) -> Callable[[Callable[[], None]], CommandGroup]:
    """The decorated function gives the help, and does nothing."""

    def make(body: Callable[[], None]) -> CommandGroup:
        @functools.wraps(body)
        def run(ctx: click.Context, /, as_json: bool, config_path: str | None, debug: bool) -> None:
            above: Session = ctx.obj or Session()
            ctx.obj = Session(
                json=as_json or above.json,
                debug=debug or above.debug,
                config_path=config_path or above.config_path,
            )

        made = click.group(name, cls=CommandGroup, examples=examples)(shared_options(click.pass_context(run)))
        assert isinstance(made, CommandGroup)
        for one in commands:
            made.add_command(one)
        return made

    return make
