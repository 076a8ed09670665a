"""Pins that are at a source although the journal has them as released: strays.

A worker journals a pin and takes it. If it is stopped in between (SIGSTOP, a paused machine, a connection that hangs),
another one takes its process over and releases the pin, which is not there yet. Wakes the first and takes it after all,
it releases it itself; unless it is killed then, or its store does not answer. Nobody would ever look for that pin again,
and it would keep the files of its parts for ever. So each worker asks its sources now and then what bears a name of ours.

A name is used once, and a released pin is used by no plan: to release it once more is always right. A name that the journal
does not know, of another store or of forgotten history, is left alone; `calve doctor` lists it.
"""

import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from calve.app.wiring import App
from calve.model.errors import CalveError
from calve.model.process import Pin, Process, ProcessId
from calve.model.states import PinState

_LOG = logging.getLogger("calve.control")
_LOOK_SECONDS = 600.0
_LEASES_FIRST = (
    2.0  # after a start: by then what an earlier worker left is released by the drain, if it is known
)
_NAME = re.compile(r"calve-([a-z0-9]+)-\d+")


class Strays:
    """The looks of one worker."""

    def __init__(self, app: App, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._app, self._monotonic = app, monotonic
        self._due = monotonic() + _LEASES_FIRST * app.limits.lease_seconds

    def tick(self) -> Sequence[Process]:
        """Starts no process."""
        if self._monotonic() >= self._due:
            self._due = self._monotonic() + _LOOK_SECONDS
            for name in self._app.config.sources:
                with _reported(f"source {name}"):
                    release_strays(self._app, name)
        return ()


def release_strays(app: App, source: str) -> list[str]:
    """Release what is at that source and released by the journal; says which."""
    with app.source(source).visit() as session:
        found = session.pin_names()
    strays = [pin for name in found if (pin := _released(app, name)) is not None]
    for pin in strays:
        with _reported(f"pin {pin.name}"):
            # if we die here, or it fails, the next look finds it again
            app.kinds[app.store.process(pin.process_id).kind].release(pin)
            _LOG.warning(
                "pin %s of %s was taken after its release, and is released again", pin.name, pin.source
            )
    return [pin.name for pin in strays]


@contextmanager
def _reported(what: str) -> Iterator[None]:
    """A source that is down, or has no folder yet, keeps no other from being asked."""
    try:
        yield
    except CalveError as error:
        _LOG.debug("looking for pins that were taken late: %s: %s", what, error.message)


def _released(app: App, name: str) -> Pin | None:
    parsed = _NAME.fullmatch(name)
    pins = app.store.pins(ProcessId(parsed[1])) if parsed else []
    return next((pin for pin in pins if pin.name == name and pin.state is PinState.RELEASED), None)
