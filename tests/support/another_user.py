"""Files that a test may not touch, whoever runs it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_NOBODY = 65534


@contextmanager
def another_user() -> Iterator[None]:
    """Root may read and write everything, so it becomes another user for a moment."""
    me = os.geteuid()
    if me == 0:
        os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(me)
