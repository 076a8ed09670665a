"""What a cluster grants a session now: executors come and go, by dynamic allocation, by losses, by other users."""

import threading
from typing import Any

from calve.model.process import Granted

_ANSWER_SECONDS = 1.0


def granted(context: Any) -> Granted | None:
    """Executors that take tasks, and how many tasks at a time: not those that are lost, taken back or being
    decommissioned. (`defaultParallelism` says 2 where there is none, and what `spark.default.parallelism` says.)
    None if the driver's JVM is gone."""
    from py4j.protocol import Py4JError

    try:
        spark = context._jsc.sc()
        at_once = int(spark.maxNumConcurrentTasks(spark.resourceProfileManager().defaultResourceProfile()))
        known = len(spark.statusTracker().getExecutorInfos()) - 1  # the driver is in it
    except (Py4JError, OSError, AttributeError):
        return None
    return Granted(executors=known if at_once else 0, at_once=at_once)


class Grants:
    """Asks from a thread of its own: the worker's loop, which keeps leases and cancels, never waits for a JVM that does not
    answer. Thread-safe."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._wanted, self._answered = threading.Event(), threading.Event()
        self._last: Granted | None = None
        self._over = False
        threading.Thread(target=self._ask, name="calve-spark-grants", daemon=True).start()

    def now(self) -> Granted | None:
        """Or what was last known, where the answer takes longer than a second."""
        if not self._wanted.is_set():
            self._answered.clear()
            self._wanted.set()
        self._answered.wait(_ANSWER_SECONDS)
        return self._last

    def stop(self) -> None:
        self._over = True
        self._wanted.set()
        self._answered.set()

    def _ask(self) -> None:
        while self._wanted.wait() and not self._over:
            self._last = granted(self._context)
            self._wanted.clear()
            self._answered.set()
