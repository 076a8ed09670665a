"""`calve serve`: answer over HTTP."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calve.cli.command import CliSession, command, log_level_option
from calve.cli.installation import start_log
from calve.model.errors import UsageError

if TYPE_CHECKING:
    from calve.http.server import Address


@command(
    "serve",
    examples=[
        "calve serve --with-worker",
        "calve serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem",
        "calve serve --behind-proxy --root-path /calve --allow-host data.example.com",
    ],
)
@click.option("--host", metavar="ADDRESS", help="The address to listen on. [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="The port; 0 takes a free one. [default: 8180]")
@click.option("--root-path", metavar="PATH", help="The path below which a proxy shows it.")
@click.option("--allow-host", "hosts", metavar="NAME", multiple=True, help="A name by which it is called.")
@click.option("--tls-cert", type=click.Path(path_type=Path), metavar="FILE", help="Its certificate, as PEM.")
@click.option(
    "--tls-key", type=click.Path(path_type=Path), metavar="FILE", help="The certificate's key, as PEM."
)
@click.option("--behind-proxy", is_flag=True, default=None, help="A proxy with TLS is in front of it.")
@click.option("--with-worker", is_flag=True, help="Also run a worker.")
@log_level_option
def serve(session: CliSession, with_worker: bool, log_level: str | None, **given: Any) -> None:
    """Serve the API, for `calve --server`, for programs, and for ClickHouse.

    On this host reading needs no token, and every change does: the command line finds it in the file
    calve.token beside calve.toml. On another address it starts only with tokens and TLS, or behind a proxy.
    """
    session.only_here("serve")
    try:
        from calve.http.server import serve as serve_http
    except ModuleNotFoundError as missing:
        raise UsageError(
            f"calve serve needs {missing.name}", code="serve_not_installed", hint="pip install 'calve[serve]'"
        ) from None
    say = start_log(session, log_level)
    chosen: dict[str, Any] = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in given.items()
        if value not in (None, ())
    }
    options = replace(session.config.serve, **chosen)

    def ready(address: "Address") -> None:
        say(f"calve serves {address.url}; Ctrl-C stops it")
        say(f"the token of this host is in {address.token_file}")

    config = replace(
        session.config, log=replace(session.config.log, level=log_level or session.config.log.level)
    )
    serve_http(config, options, with_worker=with_worker, ready=ready)
    say("calve serve has ended")
