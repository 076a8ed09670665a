"""Forgetting history: a bounded piece at a tick while there is any, then a long rest.

The place to go on from is this worker's own and may be forgotten: it then starts from the oldest.
"""

from collections.abc import Callable

from calve.control.ports import StoreWriter
from calve.model.limits import Limits

PIECE = 500  # events looked at in one tick: a few milliseconds of the store's time
REST_SECONDS = 3600.0


class Forgetting:
    def __init__(self, store: StoreWriter, limits: Limits, monotonic: Callable[[], float]) -> None:
        self._store = store
        self._days = limits.keep_history_days
        self._monotonic = monotonic
        self._after = 0
        self._rests_until = monotonic()

    def tick(self) -> None:
        if self._monotonic() < self._rests_until:
            return
        # if we die here, some history is gone and the rest goes later
        self._after = self._store.forget_history(days=self._days, after=self._after, limit=PIECE)
        if not self._after:
            self._rests_until = self._monotonic() + REST_SECONDS
