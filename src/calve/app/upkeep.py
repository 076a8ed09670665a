"""Old history is deleted where only servers run too, as workers do it.

Several programs may do so on one store: each deletes a piece in one transaction, and what another deleted first
is simply not there.
"""

import logging
import threading
import time
from contextlib import AbstractContextManager

from calve.app.threads import beside
from calve.control.background import History
from calve.control.ports import StoreWriter
from calve.model.errors import CalveError
from calve.model.limits import Limits

EVERY_SECONDS = 1.0
AFTER_ERROR_SECONDS = 60.0
_log = logging.getLogger(__name__)


def upkeep(store: StoreWriter, limits: Limits) -> AbstractContextManager[None]:
    """Delete what is older than `limits` keep it, a piece at a time, for as long as the block lasts."""
    history = History(store, limits, time.monotonic)

    def run(stop: threading.Event) -> None:
        wait = 0.0
        while not stop.wait(wait):
            try:
                history.tick()
                wait = EVERY_SECONDS
            except CalveError as error:
                _log.warning("old history is not deleted now, retrying: %s", error.message)
                wait = AFTER_ERROR_SECONDS

    return beside("server-upkeep", run, EVERY_SECONDS)
