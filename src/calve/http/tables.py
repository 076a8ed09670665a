"""`/v1/tables/*.jsonl` and `/v1/actions`: what a ClickHouse server reads and writes through URL tables.

Both are JSON lines (`calve.sql.url_tables`). `GET /v1/actions` answers the rows of `POST /v1/actions`, so one table
is read and inserted into.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from calve.app.actions import MOST_LINES, Actions, ActionThreads, acknowledged
from calve.app.arguments import unknown_option
from calve.http.identity import IN_URL
from calve.http.problem import HttpError
from calve.http.service import VerbService
from calve.http.store_threads import StoreThreads
from calve.model.errors import UsageError
from calve.sql.url_tables import ACTIONS, URL_TABLES, plain, rows

MOST_ROWS = 10_000
MOST_ACTIONS = 200  # each asks for its processes
_LIMIT = "limit"
_ROWS = 1000  # unless the request says how many
_MEDIA_TYPE = "application/x-ndjson"


class Tables:
    def __init__(
        self, service: VerbService, threads: StoreThreads, actions: Actions, doing: ActionThreads
    ) -> None:
        self._service = service
        self._threads = threads
        self._actions = actions
        self._doing = doing

    def routes(self) -> list[Route]:
        return [
            Route("/v1/tables/{name}.jsonl", self.table, methods=["GET"]),
            Route("/v1/actions", self.listed, methods=["GET"]),
            Route("/v1/actions", self.accept, methods=["POST"]),
        ]

    async def table(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name == ACTIONS:
            return await self.listed(request)
        caller, limit = await self._service.caller(request), _limit(request)
        if name not in URL_TABLES:
            raise HttpError(
                404, "no such table", code="no_such_table", hint=f"there are {', '.join((*URL_TABLES, ACTIONS))}"
            )  # fmt: skip
        return await self._read(lambda: rows(self._service.desk, caller, name, limit))

    async def listed(self, request: Request) -> Response:
        await self._service.caller(request)
        limit = min(_limit(request), MOST_ACTIONS)
        return await self._read(lambda: (plain(ACTIONS, row) for row in self._actions.rows(limit=limit)))

    async def accept(self, request: Request) -> Response:
        """All lines, or none."""
        caller = await self._service.caller(request)
        lines = commands(await request.body())
        key = request.headers.get("idempotency-key", "")
        found = await self._threads.run(lambda: self._actions.accept(caller, lines, key=key), changes=True)
        self._doing.wake()
        return json_lines(map(acknowledged, found))

    async def _read(self, found: Callable[[], Iterable[Any]]) -> Response:
        return json_lines(await self._threads.run(lambda: list(found())))


def commands(body: bytes) -> list[str]:
    """The commands of JSON lines. Other keys are ignored: an INSERT sends every column."""
    lines = [line for line in body.split(b"\n") if line.strip()]
    if len(lines) > MOST_LINES:
        raise UsageError(
            f"{len(lines)} commands at once", code="bad_command", hint=f"send up to {MOST_LINES} lines"
        )
    return [_command(at, line) for at, line in enumerate(lines, 1)]


def _command(at: int, line: bytes) -> str:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        said = None
    command = said.get("command") if isinstance(said, dict) else None
    if not isinstance(command, str) or not command.strip():
        raise UsageError(
            f"line {at} has no command",
            code="bad_command",
            hint='send lines as {"command": "create nightly --tables db.*"}',
        )
    return command.strip()


def json_lines(found: Iterable[Any], *, status: int = 200) -> Response:
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found)
    return Response(text.encode("utf-8", "backslashreplace"), status_code=status, media_type=_MEDIA_TYPE)


def _limit(request: Request) -> int:
    for name in request.query_params:
        if name not in (_LIMIT, *IN_URL):
            raise unknown_option(name, [_LIMIT])
    text = request.query_params.get(_LIMIT, str(_ROWS))
    if not (text.isascii() and text.isdigit() and len(text) <= 6 and 1 <= int(text) <= MOST_ROWS):
        raise UsageError("invalid limit", code="bad_option", hint=f"give a number from 1 to {MOST_ROWS}")
    return int(text)
