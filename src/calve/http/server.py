"""`serve`: one program that answers until it is told to stop.

It refuses an address that others reach without tokens and TLS. It beats in the store, so that others know of
it. A worker beside it is a program of its own: a JVM and its threads would be the API's latency.
"""

import asyncio
import errno
import logging
import secrets
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn
from starlette.routing import BaseRoute

from calve import __version__
from calve.app.access import Gatekeeper
from calve.app.actions import Actions, ActionThreads
from calve.app.calve import Calve
from calve.app.config import Config, ServeConfig
from calve.app.desk import Desk
from calve.app.notices import notifying
from calve.app.pages.lookout import Lookout, bounded_for_looks, looking_out
from calve.app.threads import beside
from calve.app.token_file import hello, keep_token
from calve.app.upkeep import upkeep
from calve.http.aliases import Aliases
from calve.http.clickhouse import Beside, routes
from calve.http.errands import Errands
from calve.http.guard import Guard, Rules, Told
from calve.http.identity import Identities, is_loopback
from calve.http.metrics import ServerMeters
from calve.http.protocol import bounded
from calve.http.routes import application
from calve.http.service import VerbService
from calve.http.store_threads import StoreThreads
from calve.http.stream import Streams, Times
from calve.http.tables import Tables
from calve.model.access import Server
from calve.model.errors import CalveError, UsageError
from calve.sql.execution import Sql, cages

BEAT_SECONDS = 10.0
GRACE_SECONDS = 10.0
_log = logging.getLogger("calve.http")


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where a server answers. `stop` may be called from any thread."""

    url: str
    token_file: Path
    takes_local_token: bool
    stop: Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class Shared:
    """What a front has of the server. `cookie` is the name of a session's; `open_reading`: on this host, reading needs
    no token."""

    service: VerbService
    gate: Gatekeeper
    cookie: str
    open_reading: bool
    root_path: str
    lookout: Lookout  # a page says what it shows: `want(document["subjects"])`, `press` for a button
    behind_proxy: bool
    streams: Streams
    last: list[BaseRoute] = field(default_factory=list)  # routes after all others, for what nobody answers
    told: list[Told] = field(default_factory=list)  # refusals as pages, for who wants pages


Front = Callable[[Shared], Sequence[BaseRoute]]


def serve(
    config: Config,
    options: ServeConfig,
    *,
    with_worker: bool = False,
    fronts: Sequence[Front] = (),
    ready: Callable[[Endpoint], None] = lambda _: None,
) -> None:
    """Answer until SIGTERM or SIGINT. UsageError if the address is not safe, or taken."""
    meters = ServerMeters()
    with (
        Calve(config, around_store=meters.around_store) as calve,
        Calve(bounded_for_looks(config)) as looks,
        _listening(options) as listener,
    ):
        local = _is_local(options)
        if not local:
            _refuse_unsafe(calve, options)
        bound = listener.getsockname()
        url = f"{'https' if options.tls_cert else 'http'}://{_printed(bound[0])}:{bound[1]}{_root(options)}"
        token_file = config.folder / "calve.token"
        token = keep_token(token_file)
        threads = StoreThreads(
            answer_seconds=config.limits.answer_seconds,
            probe=calve.registry.feed_state,
            longest_seconds=config.limits.call_seconds,
        )
        errands = Errands(
            at_once=config.limits.errands,
            per_service=config.limits.errands_per_service,
            keep_seconds=config.limits.errand_keep_seconds,
            down_seconds=config.limits.probe_seconds,
        )
        gate = Gatekeeper(calve.registry, local_token=token, now=calve.now)
        open_reading = local and not options.behind_proxy
        # Named by the store: servers of one store share it, and two on one host do not overwrite each other's.
        cookie = f"calve_{calve.registry.feed_state().store_id[:8]}"
        identities = Identities(
            gate,
            open_reading=open_reading,
            login_in_urls=options.login_in_urls,
            cookie=cookie,
            wrong_tokens_per_minute=config.limits.wrong_tokens_per_minute,
        )
        service = VerbService(
            Desk(calve),
            identities,
            threads,
            errands,
            answer_seconds=config.limits.answer_seconds,
            unknown=meters.unknown,
        )
        app = application(service, proof=lambda nonce: hello(token, bound[1], nonce))
        caged, beside = (
            cages(config.limits, required=True),
            Beside(errands, seconds=config.limits.sql_seconds),
        )
        app.router.routes += routes(
            Sql(service.desk, caged, config.limits, selected=meters.selected),
            service.caller,
            beside,
        )
        streams = Streams(
            service.desk,
            service.caller,
            most=config.limits.streams,
            answer_seconds=config.limits.answer_seconds,
            times=Times(look=config.limits.stream_seconds),
        )
        actions = Actions(service.desk, calve.registry, now=calve.now)
        doing = ActionThreads(
            actions, at_once=config.limits.errands, per_service=config.limits.errands_per_service
        )
        given = (service, threads, actions, doing)
        app.router.routes += [streams.route(), *Tables(*given).routes(), *Aliases(*given).routes()]
        app.router.routes.append(meters.route(calve, service.reader, errands, streams))
        lookout = Lookout(looks, overview=calve.overview)
        shared = Shared(
            service=service,
            gate=gate,
            cookie=cookie,
            open_reading=open_reading,
            root_path=_root(options),
            lookout=lookout,
            behind_proxy=options.behind_proxy,
            streams=streams,
        )
        for front in fronts:
            app.router.routes[:0] = front(shared)  # before the others: `GET /` is a page for a browser
        app.router.routes += shared.last
        guard = Guard(app, _rules(config, options), answered=meters.answered, told=shared.told)
        server = _Server(_uvicorn(guard, options, config.limits.client_seconds), streams)
        with (
            _worker(config, with_worker),
            _beating(calve, url),
            notifying(config, calve.registry, wants=calve.wants),
            upkeep(calve.registry, config.limits),
            looking_out(lookout),
        ):
            ready(
                Endpoint(
                    url=url,
                    token_file=token_file,
                    takes_local_token=local and not options.behind_proxy,
                    stop=server.stop,
                )
            )
            _run(server, listener)
        for part in (doing, streams, errands, threads, beside, caged, meters):
            part.close()


class _Server(uvicorn.Server):
    """Uvicorn waits for answers that are under way; streams have to be ended."""

    def __init__(self, config: uvicorn.Config, streams: Streams) -> None:
        super().__init__(config)
        self._streams = streams

    def stop(self) -> None:
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._streams.end()
        await super().shutdown(sockets)


def _run(server: uvicorn.Server, listener: socket.socket) -> None:
    """Until a signal. Uvicorn gives it on, once it has ended, to the handler there was before."""
    with suppress(KeyboardInterrupt):
        asyncio.run(server.serve(sockets=[listener]))


def _uvicorn(guard: Guard, options: ServeConfig, client_seconds: float) -> uvicorn.Config:
    return uvicorn.Config(
        guard,
        http=bounded(seconds=client_seconds, behind_proxy=options.behind_proxy),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=int(GRACE_SECONDS),
        h11_max_incomplete_event_size=32768,
        ssl_certfile=options.tls_cert or None,
        ssl_keyfile=options.tls_key or None,
    )


def _rules(config: Config, options: ServeConfig) -> Rules:
    names = {"localhost", "127.0.0.1", "::1", options.host, *options.hosts}
    return Rules(
        hosts=frozenset(name.lower() for name in names),
        root_path=_root(options),
        behind_proxy=options.behind_proxy,
        request_kb=config.limits.request_kb,
        requests_per_second=config.limits.requests_per_second,
        body_seconds=config.limits.client_seconds,
    )


def _root(options: ServeConfig) -> str:
    return f"/{options.root_path.strip('/')}" if options.root_path.strip("/") else ""


def _is_local(options: ServeConfig) -> bool:
    return options.host == "localhost" or is_loopback(options.host)


def _refuse_unsafe(calve: Calve, options: ServeConfig) -> None:
    """Beyond this host everything needs a token, and a token needs TLS or a proxy that has it."""
    if not any(token["valid"] for token in calve.token_list()):
        raise UsageError(
            f"{options.host} is reachable from other hosts, but there are no tokens",
            code="serve_without_tokens",
            hint="calve token new --role admin; or listen on 127.0.0.1",
        )
    if not options.tls_cert and not options.behind_proxy:
        raise UsageError(
            f"{options.host} is reachable from other hosts, and tokens would be sent unencrypted",
            code="serve_without_tls",
            hint="give --tls-cert and --tls-key, or --behind-proxy if a proxy in front has TLS",
        )


@contextmanager
def _listening(options: ServeConfig) -> Iterator[socket.socket]:
    """The socket, bound before anything is said or started."""
    for path in filter(None, (options.tls_cert, options.tls_key)):
        if not Path(path).is_file():
            raise UsageError(
                f"{path} does not exist", code="tls_file", hint="give --tls-cert and --tls-key as PEM files"
            )
    if options.tls_cert:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(options.tls_cert, options.tls_key or None)
        except (ssl.SSLError, OSError) as error:
            raise UsageError(
                f"the certificate in {options.tls_cert} cannot be used: {getattr(error, 'reason', '') or error}",
                code="tls_file",
                hint="give --tls-cert and --tls-key as PEM files that belong together",
            ) from None
    try:
        found = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)[0]
        # With its protocol: asyncio turns Nagle's delay off only where it is said to be TCP, and each answer
        # waited 40 ms for an acknowledgement.
        listener = socket.socket(found[0], found[1], socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(found[4])
        listener.listen(512)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {options.host} port {options.port}: {error.strerror}",
            code="address",
            hint="give another --port, or stop what uses it"
            if error.errno == errno.EADDRINUSE
            else "give an address of this host with --host, and a port above 1023",
        ) from None
    with listener:
        yield listener


def _printed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


@contextmanager
def _beating(calve: Calve, url: str) -> Iterator[None]:
    """The row of this server in the store, refreshed by a thread: a store that is down stops no request
    but those that need it."""
    me = Server(id=secrets.token_hex(8), host=socket.gethostname(), url=url, version=__version__)

    def beat(stop: threading.Event) -> None:
        while True:
            try:
                # if we die here, the row is old, and soon nobody counts it
                calve.registry.beat_server(me)
            except CalveError as error:
                _log.warning("the store does not know that this server runs: %s", error.message)
            if stop.wait(BEAT_SECONDS):
                return

    try:
        with beside("server-beat", beat, GRACE_SECONDS):
            yield
    finally:
        with suppress(CalveError):
            calve.registry.forget_server(me.id)


@contextmanager
def _worker(config: Config, wanted: bool) -> Iterator[None]:
    """A worker beside the server. Its stdin is a pipe of ours: if we die, it ends, and the worker drains."""
    if not wanted:
        yield
        return
    stop = threading.Event()
    running: list[subprocess.Popen[bytes]] = []

    def keep() -> None:
        wait = 1.0
        while not stop.is_set():
            # if we die here, its stdin ends, and it drains
            child = subprocess.Popen(_worker_command(config), stdin=subprocess.PIPE)
            running[:] = [child]
            code = child.wait()
            if stop.is_set():
                return
            _log.warning("the worker ended with exit code %d; it is started again in %g s", code, wait)
            stop.wait(wait)
            wait = min(60.0, wait * 2)

    thread = threading.Thread(target=keep, name="server-worker", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        for child in running:
            child.terminate()
        thread.join()


def _worker_command(config: Config) -> Sequence[str]:
    chosen = ["--config", str(config.file)] if config.file else []
    level = ["--log-level", config.log.level]
    return [sys.executable, "-m", "calve.cli", *chosen, "worker", "--while-stdin", *level]
