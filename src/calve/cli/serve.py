"""`calve serve`: answer over HTTP."""

import gc
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calve.cli.command import CliSession, command, log_level_option
from calve.cli.installation import start_log
from calve.model.errors import UsageError

if TYPE_CHECKING:
    from calve.http.server import Endpoint

_END_SECONDS = 3.0  # for what is under way


@command(
    "serve",
    examples=[
        "calve serve --with-worker",
        "calve serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem",
        "calve serve --behind-proxy --root-path /calve --allow-host data.example.com",
    ],
)
@click.option("--host", metavar="ADDRESS", help="Address to listen on. [default: 127.0.0.1]")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one. [default: 8180]"
)
@click.option(
    "--root-path", metavar="PATH", help="Path prefix under which a proxy publishes it, such as /calve."
)
@click.option(
    "--allow-host",
    "hosts",
    metavar="NAME",
    multiple=True,
    help="Host name that requests may use, besides --host. Repeatable.",
)
@click.option(
    "--tls-cert",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Certificate chain (PEM): serve HTTPS.",
)
@click.option(
    "--tls-key", type=click.Path(path_type=Path), metavar="FILE", help="Private key of the certificate (PEM)."
)
@click.option(
    "--behind-proxy",
    is_flag=True,
    default=None,
    help="A proxy that does TLS is in front: take the caller's address from X-Forwarded-For; reading needs a token too.",
)
@click.option("--with-worker", is_flag=True, help="Also run a worker, in a process of its own.")
@log_level_option
def serve(session: CliSession, with_worker: bool, log_level: str | None, **given: Any) -> None:
    """Serve Calve over HTTP: for `calve --server`, for programs, for SQL clients and for ClickHouse.

    On this host, reading needs no token and every change does. Commands in this folder use the token in
    calve.token, beside calve.toml, by themselves; for others make one: `calve token new`. On an address that
    other hosts reach it starts only with tokens and TLS, or behind a proxy, and then reading needs a token too.
    """
    session.only_here("serve")
    serve_http, dashboard = load_server()
    say = start_log(session, log_level)
    chosen: dict[str, Any] = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in given.items()
        if value not in (None, ())
    }
    options = replace(session.config.serve, **chosen)

    def ready(address: "Endpoint") -> None:
        say(f"calve serves {address.url}; Ctrl-C stops it")
        if address.takes_local_token:
            say(f"the token of this host is in {address.token_file}; try: calve --server {address.url} ps")
        else:
            say("every caller needs a token (calve token new); the token of this host does not count")
        _keep_what_is_loaded()

    config = replace(
        session.config, log=replace(session.config.log, level=log_level or session.config.log.level)
    )
    with without_pandas():
        serve_http(config, options, with_worker=with_worker, fronts=[dashboard], ready=ready)
    say("calve serve has ended")
    _leave_threads()


def _keep_what_is_loaded() -> None:
    """It stays to the end. Python's collector walked through all of it every few seconds, for a tenth of a second, and
    whatever page was being made waited for that."""
    gc.collect()
    gc.freeze()


def _leave_threads() -> None:
    """Python would wait for threads that still ask a source, a catalog or a storage, for as long as those may take
    (`limits.query_seconds`). Whatever they do may be left at any point, as if the program had died."""
    until = time.monotonic() + _END_SECONDS
    for thread in threading.enumerate():
        if thread.daemon or thread is threading.current_thread():
            continue
        thread.join(max(0.0, until - time.monotonic()))
        if thread.is_alive():
            logging.shutdown()
            os._exit(0)


class _NoPandas(MetaPathFinder):
    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("a server does not use pandas", name=name)


@contextmanager
def without_pandas() -> Iterator[None]:
    """PyArrow imports pandas, if it is installed, with the first scalar that it makes: 35 MB that a server never uses."""
    refusing = _NoPandas()
    sys.meta_path.insert(0, refusing)
    try:
        yield
    finally:
        sys.meta_path.remove(refusing)


def load_server() -> tuple[Any, Any]:
    """`serve` of the server, and the front that it has for browsers. UsageError where they are not installed."""
    try:
        from calve.http.server import serve as serve_http
        from calve.web.front import dashboard
    except ModuleNotFoundError as missing:
        raise UsageError(
            f"calve serve needs {missing.name}", code="serve_not_installed", hint="pip install 'calve[serve]'"
        ) from None
    return serve_http, dashboard
