"""The targets of a configuration, the threads that serve them, and one message for a person who tries one.

A program that serves a target may end at any moment: what is not sent yet waits in the store for the next one.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import cast

from calve.app.config import Config
from calve.app.front import Json
from calve.app.wiring import App
from calve.control.registry import Registry, ServedStore
from calve.model.errors import CalveError, NotFoundError, UnavailableError
from calve.notify.delivery import send, trial
from calve.notify.notices import WantedNotice
from calve.notify.notifier import Notifier
from calve.notify.targets import Ping, Target, Webhook

EVERY_SECONDS = 5.0
LAST_SECONDS = 10.0  # that a command waits at its end for what it has to tell
_log = logging.getLogger(__name__)


def targets(config: Config) -> list[Target]:
    return [
        *(Webhook(name=name, **given) for name, given in config.notify.items()),
        *(Ping(name=name, **given) for name, given in config.pings.items()),
    ]


def wants(app: App) -> list[WantedNotice]:
    """What a person must see though no process stands for it."""
    from calve.app.pages.attention import told

    now = app.store.now()
    return [
        WantedNotice(
            key=" ".join((card.kind, card.source, card.destination, card.state)),
            kind=card.work,
            code=card.kind,
            message=f"{card.title}. {card.why}" if card.why else card.title,
            hint=card.command,
            source=card.source,
            destination=card.destination,
            since=card.since or now,
        )
        for card in told(app)
    ]


@contextmanager
def notifying(
    config: Config,
    registry: Registry,
    *,
    wants: Callable[[], Sequence[WantedNotice]] = tuple,
    last_seconds: float = 0.0,
) -> Iterator[None]:
    """Serve every target for as long as the block lasts, each in a thread of its own: one that drips holds up
    no other. At its end, unless it is left by an exception, what is due is sent for at most `last_seconds`."""
    store, stop = cast("ServedStore", registry), threading.Event()
    last = 0.0
    threads = [
        threading.Thread(
            target=_serve,
            args=(Notifier(store, target, wants=wants), stop, lambda: last),
            name=target.key,
            daemon=True,
        )
        for target in targets(config)
    ]
    for thread in threads:
        with suppress(CalveError):  # its thread says so
            store.follow_target(thread.name)  # a new one hears of all that happens from here on
        thread.start()
    try:
        yield
        last = last_seconds
    finally:
        stop.set()
        until = time.monotonic() + last
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))


def _serve(notifier: Notifier, stop: threading.Event, last: Callable[[], float]) -> None:
    while not stop.is_set():
        try:
            while notifier.tick() and not stop.is_set():
                pass
        except Exception as error:  # noqa: BLE001 - the border of the thread: it must not end
            _warn(notifier.target, error)
        stop.wait(EVERY_SECONDS)
    try:
        notifier.drain(last())
    except Exception as error:  # noqa: BLE001 - as above
        _warn(notifier.target, error)


def _warn(target: Target, error: Exception) -> None:
    """By its name and, if it is ours, its words: those of libraries may hold the URL."""
    words = error.message if isinstance(error, CalveError) else type(error).__name__
    _log.warning("%s: looking for news failed, retrying: %s", target.key, words)


def find_target(config: Config, name: str) -> Target:
    """Of a webhook and a ping with the same name the webhook is meant; `ping.NAME` is the other."""
    known = targets(config)
    target = next((one for one in known if name in (one.name, one.key)), None)
    if target is None:
        listed = ", ".join(one.key for one in known) or "none"
        raise NotFoundError(
            f"no target {name!r} is configured (configured: {listed})",
            code="target_not_found",
            hint=f"add [notify.{name}] with its url to calve.toml",
        )
    return target


def notify_test(target: Target) -> Json:
    """Send one message now, past the outbox."""
    call = trial(target)
    answer = send(call)
    if answer.error:
        raise UnavailableError(
            f"could not notify {target.key}: {answer.error}",
            code="notify_failed",
            hint=f"check the URL of [{target.key}], and whether this host may reach it",
            service=target.key,
        )
    return {"target": target.key, "host": target.host, "event": call.event, "status": answer.status}
