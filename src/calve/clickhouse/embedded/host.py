"""The child process that opens an embedded source: `python -m calve.clickhouse.embedded.host FOLDER [CONFIG]`.

It answers statements over its standard input and output until the input ends, then closes
the folder and goes. When the input ends in the middle of a statement its parent is gone or
has given up, and it ends at once: nothing that it was doing outlives the visit.

The words between a visit and its host process: length, then bytes.
"""

import json
import os
import queue
import struct
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

from calve.clickhouse.engine.engine import ChdbSession, EngineError

_LENGTH = struct.Struct(">Q")


@dataclass(frozen=True, kw_only=True)
class Request:
    sql: str
    settings: Mapping[str, str]

    def pack(self) -> bytes:
        return json.dumps({"sql": self.sql, "settings": dict(self.settings)}).encode()

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        return cls(**json.loads(data))


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The rows as the engine wrote them, or its error's message."""

    ok: bool
    data: bytes

    def pack(self) -> bytes:
        return (b"+" if self.ok else b"-") + self.data

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        return cls(ok=data[:1] == b"+", data=data[1:])


def header(data: bytes) -> bytes:
    return _LENGTH.pack(len(data))


def length_of(head: bytes) -> int:
    size: int = _LENGTH.unpack(head)[0]
    return size


HEADER_BYTES = _LENGTH.size


def write_frame(stream: BinaryIO, data: bytes) -> None:
    stream.write(header(data))
    stream.write(data)
    stream.flush()


def read_frame(stream: BinaryIO) -> bytes | None:
    """The next frame; None at the end of the stream, also in the middle of a frame."""
    head = stream.read(HEADER_BYTES)
    if len(head) < HEADER_BYTES:
        return None
    size = length_of(head)
    data = stream.read(size)
    return data if len(data) == size else None


def main() -> None:
    requests, answers = _take_pipes()
    try:
        session = ChdbSession(Path(sys.argv[1]), *sys.argv[2:])
    except EngineError as error:
        write_frame(answers, Answer(ok=False, data=str(error).encode()).pack())
        return
    write_frame(answers, Answer(ok=True, data=b"").pack())
    inbox: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
    idle = threading.Event()
    idle.set()
    threading.Thread(target=_listen, args=(requests, inbox, idle), daemon=True).start()
    while (request := inbox.get()) is not None:
        answer = _answer(session, request)
        idle.set()
        write_frame(answers, answer.pack())
    session.close()


def _take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Our end of both pipes under numbers of their own: the engine prints to 1 and reads from 0."""
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return requests, answers


def _listen(requests: BinaryIO, inbox: "queue.SimpleQueue[Request | None]", idle: threading.Event) -> None:
    while True:
        try:
            frame = read_frame(requests)
        except (OSError, EOFError, struct.error):
            frame = None
        if frame is None:
            if not idle.is_set():
                os._exit(1)
            inbox.put(None)
            return
        idle.clear()
        inbox.put(Request.unpack(frame))


def _answer(session: ChdbSession, request: Request) -> Answer:
    try:
        return Answer(ok=True, data=session.run(request.sql, request.settings))
    except EngineError as error:
        return Answer(ok=False, data=str(error).encode())


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # the engine's own threads need no farewell
