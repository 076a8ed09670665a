"""The child process that opens an embedded source: `python -m calve.clickhouse.embedded.host FOLDER [CONFIG]`.

It answers statements over its standard input and output until the input ends, then closes
the folder and goes. When the input ends in the middle of a statement its parent is gone or
has given up, and it ends at once: nothing that it was doing outlives the visit.
"""

import os
import queue
import struct
import sys
import threading
from pathlib import Path
from typing import BinaryIO

from calve.clickhouse.embedded.frames import Answer, Request, read_frame, write_frame
from calve.clickhouse.engine.chdb_session import ChdbSession, EngineError


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
