"""docs/reference/cli.md: the help of every command."""

from collections.abc import Iterator

import click

from calve.cli.main import COMMANDS, calve

HEAD = """\
# Commands

Every command takes `--json` (one JSON document on stdout), `--config PATH` and `--debug`.
Data goes to stdout, messages to stderr. TABLE is `[source:]db.table`, with backquotes
where needed. DEST is `catalog.namespace.table`, or a folder or `s3://…/` for plain Parquet. ID is a process id, a unique prefix of
one, or a batch id.

| exit code | means |
| --- | --- |
| 0 | done, or nothing to do |
| 1 | the work failed or was cancelled |
| 2 | an error in the command or the configuration; fix it there |
| 3 | not found |
| 4 | refused, because of the state of the data |
| 130 | interrupted, safely; also a `--timeout` that passed |

Of several processes the worst code wins: 130, 1, 4, 3, 2, 0.
"""


def page() -> str:
    parts = [HEAD, _help(calve, "calve", None)]
    above = click.Context(calve, info_name="calve")
    for command in COMMANDS:
        parts += _pages(command, "calve", above)
    return "\n".join(parts)


def _pages(command: click.Command, path: str, above: click.Context) -> Iterator[str]:
    """Its own, and those of the commands below it."""
    title = f"{path} {command.name}"
    yield _help(command, title, above)
    if isinstance(command, click.Group):
        inside = click.Context(command, info_name=command.name, parent=above)
        for below in command.commands.values():
            yield from _pages(below, title, inside)


def _help(command: click.Command, title: str, above: click.Context | None) -> str:
    context = click.Context(
        command, info_name=command.name, parent=above, max_content_width=100, terminal_width=100
    )
    return f"## {title}\n\n```text\n{command.get_help(context)}\n```\n"
