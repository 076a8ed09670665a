"""The master of a standalone cluster: whether it answers, and the moment it is gone.

Spark itself says nothing for a minute about a master that refuses connections. A master that was
restarted does not know the application of the one before: it ends its executors and gives it no others,
and the application's jobs wait for ever. So a connection is kept open: its end is the master's.
"""

import contextlib
import socket
import threading
from collections.abc import Callable

from calve.model import reach
from calve.model.errors import UnavailableError, UsageError

_PREFIX = "spark://"
_KEEPALIVE_SECONDS = 5  # a machine that lost its power does not say good-bye


def addresses(master: str) -> list[tuple[str, int]]:
    """`spark://a:7077,b:7077`: one of them leads."""
    found = []
    for piece in master.removeprefix(_PREFIX).split(","):
        host, _, port = piece.rpartition(":")
        if not host or not port.isdigit():
            raise UsageError(
                f"invalid Spark master {master!r}", code="spark_master", hint='master = "spark://host:7077"'
            )
        found.append((host.strip("[]"), int(port)))
    return found


def connect(master: str, seconds: float) -> socket.socket:
    """A connection to the first of its addresses that answers."""
    said = ""
    for address in addresses(master):
        try:
            return socket.create_connection(address, timeout=seconds)
        except OSError as error:
            said = error.strerror or str(error)
    raise away(master, said)


def probe(master: str, seconds: float) -> None:
    """Return if a master answers."""
    connect(master, seconds).close()


def away(master: str, said: str) -> UnavailableError:
    return UnavailableError(
        f"the Spark master {master} cannot be reached: {said}",
        code="spark_unavailable",
        hint="start it, or correct master in [spark]; waiting processes continue once it answers",
        service=reach.spark(master),
    )


class MasterWatch:
    """Calls `gone` once, when the master is. Thread-safe."""

    def __init__(self, master: str, seconds: float, gone: Callable[[UnavailableError], None]) -> None:
        self._master = master
        self._seconds = seconds
        self._gone = gone
        self._over = threading.Event()
        self._connection = connect(master, seconds)
        threading.Thread(target=self._watch, name="calve-spark-master", daemon=True).start()

    def stop(self) -> None:
        self._over.set()
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _watch(self) -> None:
        while not self._over.is_set():
            said = self._wait()
            if self._over.is_set():
                return
            if len(addresses(self._master)) > 1:
                try:
                    self._connection = connect(self._master, self._seconds)
                    continue  # another one leads now, and takes the application over
                except UnavailableError as error:
                    said = error.message
            self._gone(away(self._master, said))
            return

    def _wait(self) -> str:
        """Until the connection ends; how it did."""
        with self._connection as connection:
            try:
                connection.settimeout(None)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for option in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT"):
                    if hasattr(socket, option):  # not on every system
                        value = 3 if option == "TCP_KEEPCNT" else _KEEPALIVE_SECONDS
                        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
                while connection.recv(1024):
                    pass
            except OSError as error:
                return error.strerror or str(error)
        return "it closed the connection"
