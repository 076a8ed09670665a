"""Which certificates an S3 client trusts.

obstore takes no file of certificates; its TLS reads SSL_CERT_FILE while a client is built, and never
again. So the variable is set for that moment only: ClickHouse's engine, in the same process, has one
of its own in it (`source.server.trust`), which must be neither lost nor used here.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_VARIABLE = "SSL_CERT_FILE"
_OF_THE_PROGRAM = os.environ.get(_VARIABLE, "")  # before anybody changed it
_lock = Lock()


@contextmanager
def trusting(ca_file: str) -> Iterator[None]:
    """A client that is built inside trusts that file alone; without one, what the program trusts."""
    wanted = ca_file or _OF_THE_PROGRAM
    with _lock:
        before = os.environ.get(_VARIABLE, "")
        _set(wanted)
        try:
            yield
        finally:
            _set(before)


def _set(value: str) -> None:
    if value:
        os.environ[_VARIABLE] = value
    else:
        os.environ.pop(_VARIABLE, None)
