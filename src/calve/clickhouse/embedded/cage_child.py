"""The child of a cage: ClickHouse's engine over tables in memory, with everything else taken away.

`python -I -m calve.clickhouse.embedded.cage_child` makes its tables, gives up files, network and programs, says
so, and then answers statements over its standard input and output. What a statement can reach is what was loaded
for it. An error in the engine that let a statement run code of its own would reach no more.

It ends when its input ends, and by its own alarm when a statement takes too long, also if its parent is gone.
"""

import json
import math
import os
import resource
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from calve.clickhouse.embedded import seccomp
from calve.clickhouse.embedded.host import Answer, read_frame, take_pipes, write_frame
from calve.clickhouse.engine.engine import ChdbSession, EngineError
from calve.clickhouse.sql import tokens

_GRACE_SECONDS = 2  # the parent's limit comes first: it knows what to say
_SETTINGS = (
    "max_threads = 1, max_block_size = 8192, implicit_select = 0, "
    "http_max_tries = 1, "  # a request that is denied is denied at once
    # nothing is spilled: there is no disk
    "max_bytes_before_external_group_by = 0, max_bytes_ratio_before_external_group_by = 0, "
    "max_bytes_before_external_sort = 0, max_bytes_ratio_before_external_sort = 0"
)


# max_result_bytes is not heeded by an embedded engine (tried); memory is limited before this is
_LARGEST = 64 << 20
_TOO_LARGE = b"Code: 396. DB::Exception: the answer is larger than 64 MiB. (TOO_MANY_ROWS_OR_BYTES)"


def main() -> None:
    requests, answers = take_pipes()
    told = read_frame(requests)
    if told is None:
        return
    given = json.loads(told)
    try:
        session = _open(given["tables"], given["memory_mb"])
    except EngineError as error:
        write_frame(answers, Answer(ok=False, data=str(error).encode()).pack())
        return
    write_frame(answers, Answer(ok=True, data=_shut(given["memory_mb"]).encode()).pack())
    while (frame := read_frame(requests)) is not None:
        write_frame(answers, _answer(session, json.loads(frame), requests).pack())


def _open(tables: Sequence[tuple[str, Sequence[tuple[str, str]]]], memory_mb: int) -> ChdbSession:
    session = ChdbSession(Path.cwd())
    session.run("CREATE DATABASE calve ENGINE = Memory")
    for table, columns in tables:
        listed = ", ".join(f"{tokens.name(column)} {type_}" for column, type_ in columns)
        session.run(f"CREATE TABLE {table} ({listed}) ENGINE = Memory")
    session.run("USE calve")
    session.run(f"SET {_SETTINGS}, max_memory_usage = {memory_mb << 19}")  # half: the error, before the limit
    # Once each, while files can be opened: what the engine and Python load at the first use.
    session.run("SELECT formatQuerySingleLine('SELECT 1'), now()")
    session.run("EXPLAIN AST SELECT 1")
    return session


def _shut(memory_mb: int) -> str:
    """Give everything up; why not, where this machine cannot."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (memory_mb << 20, memory_mb << 20))
    if why := seccomp.missing():
        return why
    try:
        seccomp.install()
    except OSError as error:
        return f"the kernel refused the filter: {error}"
    return ""


def _answer(session: ChdbSession, request: dict[str, Any], requests: BinaryIO) -> Answer:
    signal.alarm(math.ceil(request["seconds"]) + _GRACE_SECONDS)
    try:
        error = _load(session, request["loads"], requests)
        if error is not None:
            raise error
        data = session.run(request["sql"], request["settings"], request["form"])
        return Answer(ok=True, data=data) if len(data) <= _LARGEST else Answer(ok=False, data=_TOO_LARGE)
    except EngineError as raised:
        return Answer(ok=False, data=str(raised).encode("utf-8", "replace"))
    except MemoryError:
        return Answer(ok=False, data=b"Code: 241. DB::Exception: no memory left (MEMORY_LIMIT_EXCEEDED)")
    finally:
        for table in request["loads"]:
            session.run(f"TRUNCATE TABLE {table}")
        signal.alarm(0)


def _load(session: ChdbSession, tables: Sequence[str], requests: BinaryIO) -> EngineError | None:
    """Every frame is read, also after an error: the next request follows them."""
    failed: EngineError | None = None
    for table in tables:
        while rows := read_frame(requests):
            try:
                if failed is None:
                    session.run(f"INSERT INTO {table} FORMAT JSONEachRow {rows.decode()}")
            except EngineError as error:
                failed = error
    return failed


if __name__ == "__main__":
    main()
    os._exit(0)  # the engine's own threads need no farewell
