"""Where slow work runs: at once (tests, single-threaded and deterministic) or beside the loop."""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

_log = logging.getLogger("calve.control")


def inline(work: Callable[[], None]) -> None:
    work()


class Pool:
    """Threads for waves, slow steps, releases and probes: enough that none waits for another."""

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="calve")

    def __call__(self, work: Callable[[], None]) -> None:
        self._threads.submit(_logged, work)

    def close(self, *, wait: bool) -> None:
        self._threads.shutdown(wait=wait, cancel_futures=True)


def _logged(work: Callable[[], None]) -> None:
    try:
        work()
    except Exception:  # noqa: BLE001 - nobody reads the future; what happened is found in the store at the next tick
        _log.exception("work beside the loop failed")
