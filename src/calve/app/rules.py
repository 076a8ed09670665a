"""Policies and schedules in a worker: each is looked at on an interval, by threads that no error ends."""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

from calve.app.threads import beside
from calve.app.wiring import App
from calve.model.errors import CalveError
from calve.model.process import Process

_LOG = logging.getLogger(__name__)
_TICK_SECONDS = 15.0


@dataclass(frozen=True, kw_only=True)
class Rule:
    name: str  # "policy events"
    tick: Callable[[], Sequence[Process]]  # do what is due; what was started


@contextmanager
def following_rules(app: App) -> Iterator[None]:
    """Carry out the policies and the schedules of the configuration for as long as the block lasts. A look
    that fails is tried again at the next."""
    from calve.app.backups import schedules
    from calve.app.policies import starts
    from calve.app.policies.releases import announcing

    followed = (
        [Rule(name=f"policy {one.name}", tick=partial(starts.tick, app, one)) for one in app.config.policies],
        [Rule(name=one.subject, tick=partial(schedules.tick, app, one)) for one in app.config.schedules],
    )
    with ExitStack() as stack:
        if app.config.policies:
            stack.enter_context(announcing(app))
        for rules in followed:
            if rules:
                stack.enter_context(following(app, rules))
        yield


def following(app: App, rules: Sequence[Rule]) -> AbstractContextManager[None]:
    """Look at these for as long as the block lasts."""
    return beside("calve-rules", partial(_run, rules), 2 * app.limits.call_seconds)


def _run(rules: Sequence[Rule], stop: threading.Event) -> None:
    while not stop.is_set():
        for rule in rules:
            try:
                for process in rule.tick():
                    _LOG.info("%s: process %s: %s of %s", rule.name, process.id, process.kind, process.source)
            except CalveError as error:
                _LOG.warning("%s: %s", rule.name, error.message)
            except Exception:  # noqa: BLE001 - the border of the thread: it must not end
                _LOG.warning("%s failed; retrying", rule.name, exc_info=True)
            if stop.is_set():
                return
        stop.wait(_TICK_SECONDS)
