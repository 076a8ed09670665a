"""Releasing pins: a bounded background drain, after success, failure, cancel and crash alike.

No slot and no lease is held for it (L29). A release that fails is tried again later and fails
nothing else (L31). What it does is in the journal: whoever runs a drain goes on with it (L30).
"""

import threading
from functools import partial

from calve.control.budget import backoff_seconds
from calve.control.steps.context import Context
from calve.model.errors import CalveError, ErrorInfo, StoreError
from calve.model.ids import WorkerId
from calve.model.process import Pin

_RETRY_MOST_SECONDS = 600.0


class ReleaseDrain:
    def __init__(self, context: Context, worker: WorkerId, reach: frozenset[str]) -> None:
        self._context = context
        self._worker = worker
        self._reach = reach
        self._lock = threading.Lock()
        self._active = 0
        self._found_none = False

    @property
    def idle(self) -> bool:
        """Nothing is being released, and at the last look nothing was due."""
        return self._active == 0 and self._found_none

    def tick(self) -> None:
        limits = self._context.limits
        room = limits.releases_at_once - self._active
        if room <= 0:
            return
        # if we die here, the pins are hidden for a while, and then anybody's
        pins = self._context.store.claim_releases(
            self._worker, self._reach, limit=room, lease_seconds=limits.query_seconds
        )
        self._found_none = not pins
        for pin in pins:
            with self._lock:
                self._active += 1
            self._context.spawn(partial(self._release, pin))

    def _release(self, pin: Pin) -> None:
        try:
            error = self._try(pin)
            # if we die here, the pin is gone and still RELEASING: releasing it again finds nothing
            self._context.store.record_release(pin.name, error, self._wait(pin) if error else 0.0)
        except StoreError:
            return  # not recorded: it comes back when its hiding ends, and is released again
        finally:
            with self._lock:
                self._active -= 1
            self._context.wake()

    def _try(self, pin: Pin) -> ErrorInfo | None:
        try:
            process = self._context.store.process(pin.process_id)
            self._context.kind(process).release(pin)
        except StoreError:
            raise
        except CalveError as error:
            return error.info
        return None

    def _wait(self, pin: Pin) -> float:
        limits = self._context.limits
        wait = backoff_seconds(pin.release_attempts + 1, limits, self._context.random)
        if pin.release_attempts >= limits.release_attempts:
            return _RETRY_MOST_SECONDS  # `calve doctor` lists it by now; it is still tried
        return wait
