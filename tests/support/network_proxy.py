"""A TCP proxy that fails as networks do: it cuts, resets, delays, throttles, swallows, refuses.

It listens on a free loopback port. Its behaviour can be changed while connections run; a
change of `mode` acts on the open ones too. Everything is counted.
"""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from types import TracebackType
from typing import Any, Self, TypeVar

from support import tally

T = TypeVar("T")
_CHUNK = 16_384
# SO_LINGER with no time: close() sends RST instead of FIN.
_RESET = struct.pack("ii", 1, 0)

_LAST_CHUNK = b"\r\n0\r\n\r\n"


class Mode(StrEnum):
    """What happens to bytes."""

    PASS = "pass"
    BLACK_HOLE = "black_hole"  # accepted and never answered; open connections fall silent
    REFUSE = "refuse"  # new connections are reset at once; open ones too


@dataclass(frozen=True, kw_only=True)
class Fault:
    """The proxy's behaviour. Byte positions count from the start of each connection."""

    mode: Mode = Mode.PASS
    cut_answer_after_bytes: int | None = None  # a clean close (FIN) at exactly this byte of the answer
    reset_answer_after_bytes: int | None = None  # a reset (RST) there
    hang_answer_after_bytes: int | None = None  # silence from there on, the connection stays open
    cut_before_end: int = 0  # so many bytes before the end of a chunked answer, at least 5
    cut_request_after_bytes: int | None = None
    delay_seconds: float = 0.0  # before each piece, in either direction
    bytes_per_second: float = 0.0  # 0: as fast as it goes; each direction by itself
    only_connections: frozenset[int] | None = None  # by number, from 1; None: all


@dataclass
class Counts:
    """What went through so far."""

    connections: int = 0
    open: int = 0
    request_bytes: int = 0
    answer_bytes: int = 0
    cut: int = 0  # connections that a fault ended


class NetworkProxy:
    """Forwards `port` to `target`. Use it as a context manager."""

    def __init__(self, target_port: int, target_host: str = "127.0.0.1", fault: Fault | None = None) -> None:
        self.target = (target_host, target_port)
        self.counts = Counts()
        self.port = 0
        self._fault = fault or Fault()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network-proxy", daemon=True)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections: set[_Connection] = set()
        self._changed = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def fault(self) -> Fault:
        return self._fault

    def set(self, fault: Fault) -> None:
        """Behave like this from now on."""
        self._call(self._set(fault))

    def heal(self) -> None:
        self.set(Fault())

    def cut_open(self) -> int:
        """Reset every open connection now; says how many."""
        return self._call(self._cut_open())

    def wait_for_answer_bytes(self, count: int, seconds: float = 30.0) -> None:
        """Return once that many bytes of answers went through, over all connections."""
        self._call(self._wait_for(count), seconds)

    @contextmanager
    def behaving(self, **changes: Any) -> Iterator[None]:
        """A fault for the length of a block."""
        before = self._fault
        self.set(replace(before, **changes))
        try:
            yield
        finally:
            self.set(before)

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, T], seconds: float = 10.0) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._cut_open()
        # Not cancelled: each connection ends by itself once it is reset.
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _set(self, fault: Fault) -> None:
        self._fault = fault
        if fault.mode is Mode.REFUSE:
            await self._cut_open()
        for connection in self._connections:
            connection.changed.set()

    async def _cut_open(self) -> int:
        found = list(self._connections)
        for connection in found:
            connection.reset()
        return len(found)

    async def _wait_for(self, count: int) -> None:
        while self.counts.answer_bytes < count:
            self._changed.clear()
            await self._changed.wait()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.counts.connections += 1
        self.counts.open += 1
        try:
            await self._serve(self.counts.connections, reader, writer)
        finally:
            self.counts.open -= 1
            self._tasks.discard(task)

    async def _serve(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._fault.mode is Mode.REFUSE:
            self.counts.cut += 1
            tally.count("connection", "refused")
            _reset(writer)
            return
        connection = _Connection(self, number, reader, writer)
        self._connections.add(connection)
        try:
            with contextlib.suppress(OSError):
                await connection.run()
        finally:
            self._connections.discard(connection)
            connection.close()


class _Connection:
    """One client, one connection to the target."""

    def __init__(
        self, proxy: NetworkProxy, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._proxy = proxy
        self._number = number
        self._client = (reader, writer)
        self._target: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._ended = asyncio.Event()
        self.changed = asyncio.Event()

    async def run(self) -> None:
        if not await self._audible():
            return
        self._target = await asyncio.open_connection(*self._proxy.target)
        pumps = [
            asyncio.create_task(self._pump(self._client[0], self._target[1], answer=False)),
            asyncio.create_task(self._pump(self._target[0], self._client[1], answer=True)),
        ]
        ended: asyncio.Task[bool] = asyncio.create_task(self._wait_for_the_end())
        try:
            # A client that closes its half still gets its answer: only both ends, or a fault, end it.
            both = asyncio.create_task(_all(pumps))
            await asyncio.wait({both, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*pumps, ended):
                task.cancel()
            await asyncio.gather(*pumps, ended, return_exceptions=True)

    async def _wait_for_the_end(self) -> bool:
        await self._ended.wait()
        return True

    async def _audible(self) -> bool:
        """Wait while the proxy is a black hole; False when the connection ended meanwhile."""
        while self._proxy.fault.mode is Mode.BLACK_HOLE and not self._ended.is_set():
            await self._wait_for_a_change()
        return not self._ended.is_set()

    async def _wait_for_a_change(self) -> None:
        self.changed.clear()
        waits = [asyncio.create_task(self.changed.wait()), asyncio.create_task(self._ended.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answer: bool
    ) -> None:
        passed, held = 0, b""
        while data := await reader.read(_CHUNK):
            fault = self._fault()
            if fault.delay_seconds:
                await asyncio.sleep(fault.delay_seconds)
            if not await self._audible():
                return
            fault = self._fault()
            if answer and fault.cut_before_end:
                held += data
                if held.endswith(_LAST_CHUNK):
                    await self._forward(writer, held[: -fault.cut_before_end], answer=answer)
                    await self._act("cut")
                    return
                keep = max(fault.cut_before_end, len(_LAST_CHUNK))
                data, held = held[:-keep], held[-keep:]
            limit, act = _limit(fault, answer=answer)
            if limit is not None and passed + len(data) >= limit:
                await self._forward(writer, data[: max(limit - passed, 0)], answer=answer)
                await self._act(act)
                return
            await self._forward(writer, data, answer=answer)
            passed += len(data)
            if fault.bytes_per_second:
                await asyncio.sleep(len(data) / fault.bytes_per_second)
        if writer.can_write_eof():
            writer.write_eof()

    def _fault(self) -> Fault:
        fault = self._proxy.fault
        if fault.only_connections is not None and self._number not in fault.only_connections:
            return Fault(mode=fault.mode)
        return fault

    async def _forward(self, writer: asyncio.StreamWriter, data: bytes, *, answer: bool) -> None:
        counts = self._proxy.counts
        if answer:
            counts.answer_bytes += len(data)
            self._proxy._changed.set()
        else:
            counts.request_bytes += len(data)
        writer.write(data)
        await writer.drain()

    async def _act(self, act: str) -> None:
        self._proxy.counts.cut += 1
        tally.count("connection", act)
        match act:
            case "reset":
                self.reset()
            case "hang":
                await self._ended.wait()
            case _:
                self._client[1].close()
                self._ended.set()

    def reset(self) -> None:
        _reset(self._client[1])
        self._ended.set()

    def close(self) -> None:
        self._client[1].close()
        if self._target is not None:
            self._target[1].close()


async def _all(tasks: list[asyncio.Task[None]]) -> bool:
    await asyncio.gather(*tasks, return_exceptions=True)
    return True


def _limit(fault: Fault, *, answer: bool) -> tuple[int | None, str]:
    if not answer:
        return fault.cut_request_after_bytes, "cut"
    for act in ("cut", "reset", "hang"):
        limit: int | None = getattr(fault, f"{act}_answer_after_bytes")
        if limit is not None:
            return limit, act
    return None, ""


def _reset(writer: asyncio.StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    if raw is not None:
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
