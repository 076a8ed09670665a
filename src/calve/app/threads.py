"""What a program does beside its work, in a thread of its own for as long as a block lasts."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def beside(name: str, run: Callable[[threading.Event], None], join_seconds: float) -> Iterator[None]:
    """`run` ends soon after the event that it is given is set, and lets no error end it before that."""
    stop = threading.Event()
    thread = threading.Thread(target=run, args=(stop,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(join_seconds)
