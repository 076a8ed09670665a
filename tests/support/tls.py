"""TLS in front of any server on the loopback, with an authority made for the test.

    authority = Authority(folder)
    with TlsFront(server.port, authority) as front:
        … https://127.0.0.1:<front.port>, checked against authority.ca_file

Whoever knows the authority talks to the server as if TLS were not there.
"""

import asyncio
import contextlib
import ssl
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

_CHUNK = 1 << 16


class Authority:
    """A certificate authority of one's own, and one certificate of its making for 127.0.0.1."""

    def __init__(self, folder: Path, name: str = "Calve's test authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.ca_file = folder / "ca.pem"
        self.certificate = folder / "certificate.pem"
        self.key = folder / "key.pem"
        _openssl(
            *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"),
            *("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=keyCertSign,cRLSign"),
            *("-keyout", str(folder / "ca.key"), "-out", str(self.ca_file)),
        )
        _openssl(
            *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"),
            *("-CA", str(self.ca_file), "-CAkey", str(folder / "ca.key")),
            *("-addext", "basicConstraints=critical,CA:FALSE"),
            *("-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"),
            *("-keyout", str(self.key), "-out", str(self.certificate)),
        )


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


class TlsFront:
    """Ends TLS and hands the bytes on to a plain server. Use it as a context manager."""

    def __init__(self, target_port: int, authority: Authority) -> None:
        self.port = 0
        self._target_port = target_port
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(authority.certificate, authority.key)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tls-front", daemon=True)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> None:
        # A client that does not trust us hangs up in mid-handshake: that is its right, and no news.
        self._loop.set_exception_handler(lambda _loop, _context: None)
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._context)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if sys.version_info >= (3, 13):
            # Those in mid-handshake too: a transport that outlives its loop fails when it is collected.
            self._server.abort_clients()
            await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        finally:
            self._tasks.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target_reader, target_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        pumps = (_pump(reader, target_writer), _pump(target_reader, writer))
        try:
            # TLS has no half-closed connections: the first end is the end.
            running = [asyncio.create_task(pump) for pump in pumps]
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for pump in running:
                pump.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        finally:
            target_writer.close()
            writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
