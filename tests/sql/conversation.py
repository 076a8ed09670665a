"""A real server with the routes of ClickHouse's HTTP interface, for real clients in tests."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request

from calve.http.clickhouse import Beside, routes
from calve.http.errands import Errands
from calve.model.access import Caller
from calve.model.errors import DeniedError
from calve.sql.execution import Sql

PASSWORD = "Basic YW55OnRva2Vu"  # any:token
BEARER = "Bearer token"


@contextmanager
def conversation(sql: Sql, caller: Caller) -> Iterator[int]:
    """Its port. Who gives the password of these tests is the caller."""

    async def identify(request: Request) -> Caller:
        if request.headers.get("Authorization") not in (PASSWORD, BEARER):
            raise DeniedError("no token", code="token_missing", hint="calve token new")
        return caller

    errands = Errands(at_once=4, per_service=4, keep_seconds=30.0, down_seconds=5.0)
    beside = Beside(errands, seconds=30.0)
    app = Starlette(routes=routes(sql, identify, beside))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, ws="none", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)  # until uvicorn has its socket
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
        beside.close()
        errands.close()
