"""Enough of ClickHouse's HTTP interface for its clients: curl, clickhouse-connect, and what is built on it.

`answer` turns one request into its answer, and `routes` put it at the addresses that clients use. Headers, formats,
parameters and error codes are ClickHouse's, so a client shows our errors as it shows those of a server. Who asks is
for the server to say (`identify`).
"""

import asyncio
import json
import re
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from calve import __version__
from calve.http.errands import Errands, Pending
from calve.model.access import Caller
from calve.model.errors import CalveError, TemporaryError, UsageError
from calve.sql import codes, settings
from calve.sql.execution import TEXT, Sql, StatementResult
from calve.sql.statement import LONGEST_KB, Export, Inspection, Select, Statement, parse

_DATABASES = frozenset({"", "default", "calve", "system"})
# Clients send them to every server; here they change nothing.
_NO_EFFECT = """
user session_id session_timeout session_check wait_end_of_query buffer_size client_protocol_version
send_progress_in_http_headers http_headers_progress_interval_ms enable_http_compression compress
decompress stacktrace quota_key role cancel_http_readonly_queries_on_client_close max_threads readonly
date_time_input_format date_time_output_format
"""
_WITHOUT_EFFECT = frozenset(_NO_EFFECT.split())
_READ_HERE = frozenset({"query", "query_id", "default_format", "database", "max_execution_time"})
_TYPES = {
    "JSON": "application/json; charset=UTF-8",
    "JSONCompact": "application/json; charset=UTF-8",
    "JSONStrings": "application/json; charset=UTF-8",
    "JSONEachRow": "application/x-ndjson; charset=UTF-8",
    "JSONCompactEachRow": "application/x-ndjson; charset=UTF-8",
    "CSV": "text/csv; charset=UTF-8; header=absent",
    "CSVWithNames": "text/csv; charset=UTF-8; header=present",
    "TabSeparated": "text/tab-separated-values; charset=UTF-8",
    "TSV": "text/tab-separated-values; charset=UTF-8",
    "Markdown": "text/markdown; charset=UTF-8",
    "Native": "application/octet-stream",
    "RowBinary": "application/octet-stream",
    "Parquet": "application/octet-stream",
    "Arrow": "application/octet-stream",
    "ArrowStream": "application/octet-stream",
}
_LONGEST_HEADER = 4000
_MOST_NAMED = 100  # in a header, which clients bound
_NUMBERED = re.compile(r"#\d+$")
_OTHER_TYPE = "text/plain; charset=UTF-8"


@dataclass(frozen=True, kw_only=True)
class StatementRequest:
    """One request. `parameters` as the URL has them, `headers` by lower-case names."""

    method: str
    parameters: Sequence[tuple[str, str]]
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def query_id(self) -> str:
        """Of the URL or of a header, else a new one, as a server makes it."""
        given = dict(self.parameters).get("query_id") or self.headers.get("x-clickhouse-query-id")
        return given or str(uuid.uuid4())


@dataclass(frozen=True, kw_only=True)
class Answered:
    status: int
    headers: Mapping[str, str]
    body: bytes


Identify = Callable[[Request], Awaitable[Caller]]  # CalveError for who may not come in


class Beside:
    """Threads for statements, which block. What asks a source or a catalog is an errand: so many for each of them,
    and one that is down holds up no other statement."""

    def __init__(self, errands: Errands, *, seconds: float, at_once: int = 4) -> None:
        self._errands = errands
        self._seconds = seconds
        self._at_once = at_once
        self._busy = 0
        self._pool = ThreadPoolExecutor(at_once, "sql")

    async def run(self, work: Callable[[], StatementResult]) -> StatementResult:
        """TemporaryError where all are taken, and where it takes longer: then it goes on all the same."""
        if self._busy >= self._at_once:
            raise TemporaryError(
                f"{self._at_once} statements of this kind are running, and no more run at once",
                code=codes.BUSY,
                hint="send it again",
            )
        self._busy += 1
        done = asyncio.get_running_loop().run_in_executor(self._pool, copy_context().run, work)
        done.add_done_callback(self._ended)
        try:
            async with asyncio.timeout(self._seconds):
                return await asyncio.shield(done)
        except TimeoutError:
            if done.done():  # at the last moment, or the work itself raised it
                return done.result()
            raise self._late() from None

    async def run_outside(
        self, key: str, services: Sequence[str], work: Callable[[], StatementResult]
    ) -> StatementResult:
        """As `run`; the same statement with the same `key` waits for the same answer."""
        made = await self._errands.result(key, services, work, wait_seconds=self._seconds, once=True)
        if isinstance(made, Pending):
            raise self._late()
        found: StatementResult = made
        return found

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _late(self) -> TemporaryError:
        return TemporaryError(
            f"the statement is still being carried out after {self._seconds:g} s",
            code=codes.TIMEOUT,
            hint="send it again with the same query_id: it has one answer",
        )

    def _ended(self, done: "asyncio.Future[StatementResult]") -> None:
        self._busy -= 1
        if not done.cancelled():
            done.exception()  # seen, also where nobody waits for it any more


def routes(sql: Sql, identify: Identify, beside: Beside) -> list[Route]:
    """`POST /`, `GET /?query=`, `/ping` and `/replicas_status`."""

    async def root(request: Request) -> Response:
        if request.method == "GET" and "query" not in request.query_params:
            return _response(pinged())
        asked = StatementRequest(
            method=request.method, parameters=request.query_params.multi_items(), headers=request.headers
        )
        query_id = asked.query_id
        try:
            caller = await identify(request)
            read = _read(replace(asked, body=await _body(request)), query_id)
            work = _Work(sql, caller, read)
            if isinstance(read.statement, Select | Inspection):
                made = await _unless_gone(request, beside.run(work), lambda: sql.leave(work.ticket))
                return _response(_answered(made, query_id))
            if not isinstance(read.statement, Export):
                return _response(_answered(await beside.run(work), query_id))
            services = sql.services(read.statement)
            return _response(_answered(await beside.run_outside(work.key, services, work), query_id))
        except CalveError as error:
            return _response(failed(error, query_id))

    async def ping(_: Request) -> Response:
        return _response(pinged())

    return [
        Route("/", root, methods=["GET", "POST"]),
        Route("/ping", ping, methods=["GET"]),
        Route("/replicas_status", ping, methods=["GET"]),
    ]


async def _unless_gone(
    request: Request, running: Awaitable[StatementResult], leave: Callable[[], None]
) -> StatementResult:
    """A SELECT ends with the connection that asked for it: nobody else reads its rows, and it would block that caller's
    next one."""
    work, gone = asyncio.ensure_future(running), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            leave()
        return await work
    finally:
        gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request) -> bytes:
    """At most what `parse` takes, however much is sent."""
    read = bytearray()
    async for piece in request.stream():
        read += piece
        if len(read) > LONGEST_KB << 10:
            raise codes.wrong(f"the statement is longer than {LONGEST_KB} KB", code=codes.TOO_LONG)
    return bytes(read)


def _response(answered: Answered) -> Response:
    return Response(answered.body, status_code=answered.status, headers=dict(answered.headers))


def answer(sql: Sql, caller: Caller, asked: StatementRequest) -> Answered:
    """Blocks: run it in a thread. Errors are answers too."""
    query_id = asked.query_id
    try:
        return _answered(_Work(sql, caller, _read(asked, query_id))(), query_id)
    except CalveError as error:
        return failed(error, query_id)


class _Work:
    """One statement of a caller; `key` is the same where both and the query_id are."""

    def __init__(self, sql: Sql, caller: Caller, read: "_Read") -> None:
        self._sql, self._caller, self._read = sql, caller, read
        self.key = repr(("sql", caller.name, read.query_id, read.statement))
        self.ticket = uuid.uuid4().hex  # of this request: a query_id may come twice

    def __call__(self) -> StatementResult:
        read = self._read
        return self._sql.execute(
            self._caller,
            read.statement,
            form=read.form,
            seconds=read.seconds,
            key=read.query_id,
            ticket=self.ticket,
        )


def pinged() -> Answered:
    """`/ping`, `/replicas_status`: whether something answers."""
    return Answered(status=200, headers={**_common(""), "Content-Type": _OTHER_TYPE}, body=b"Ok.\n")


def failed(error: CalveError, query_id: str = "") -> Answered:
    """An error as ClickHouse writes it."""
    known = codes.known(error)
    hint = f" Hint: {error.hint}." if error.hint else ""
    text = f"Code: {known.number}. DB::Exception: {error.message}.{hint} ({known.name}) (version calve {__version__})\n"
    headers = {
        **_common(query_id),
        "Content-Type": _OTHER_TYPE,
        "X-ClickHouse-Exception-Code": str(known.number),
    }
    own = json.dumps({**error.info.to_json(), "exit_code": error.exit_code})  # for `calve --server`
    if len(own) <= _LONGEST_HEADER:
        headers["X-Calve-Error"] = own
    if known.status == 401:
        headers["WWW-Authenticate"] = 'Basic realm="calve"'
    if known.status in (429, 503):
        headers["Retry-After"] = getattr(error, "headers", {}).get("Retry-After", "1")
    return Answered(status=known.status, headers=headers, body=text.encode("utf-8", "replace"))


@dataclass(frozen=True, kw_only=True)
class _Read:
    statement: Statement
    form: str
    seconds: float | None
    query_id: str


def _read(asked: StatementRequest, query_id: str) -> _Read:
    """What a request asks for; UsageError where it cannot be read. Connects to nothing."""
    given = dict(asked.parameters)
    if len(given) != len(asked.parameters):
        raise codes.wrong("a parameter is given twice")
    if not _valid(query_id):
        raise codes.wrong(
            "invalid query_id",
            hint="give at most 200 printable ASCII characters that do not end in # and a number",
        )
    if given.get("database", "") not in _DATABASES:
        raise codes.wrong(
            f"there is no database {given['database'][:100]!r}",
            code=codes.DATABASE,
            hint="omit it, and name tables with their database",
        )
    if "password" in given:
        raise codes.wrong(
            "the address has a password in it",
            code=codes.SETTING,
            hint="send the token as a header: X-ClickHouse-Key, or the password of Basic; "
            "make a new one, as logs may have this one",
        )
    if packed := [name for name in ("compress", "decompress") if given.get(name, "0") != "0"]:
        raise codes.wrong(f"{packed[0]} is not supported", code=codes.SETTING, hint=f"give {packed[0]}=0")
    added = [
        (name, value)
        for name, value in given.items()
        if name not in _READ_HERE and name not in _WITHOUT_EFFECT
    ]
    for name, _ in added:
        if name.startswith("param_"):
            raise codes.wrong(
                f"query parameter {name.removeprefix('param_')[:100]!r} is not supported",
                code=codes.SETTING,
                hint="put the value into the statement, as clickhouse-connect's %(name)s does",
            )
    statement = parse(_text(asked, given))
    if asked.method != "POST" and not isinstance(statement, Select | Inspection):
        raise codes.wrong("GET reads only", code=codes.READONLY, hint="send the statement with POST")
    if isinstance(statement, Export):
        statement = replace(statement, settings=(*added, *statement.settings))
    else:
        settings.read(added)  # refuses what is unknown
    return _Read(
        statement=statement,
        form=asked.headers.get("x-clickhouse-format") or given.get("default_format") or TEXT,
        seconds=_seconds(given.get("max_execution_time", "0")),
        query_id=query_id,
    )


def _text(asked: StatementRequest, given: Mapping[str, str]) -> str:
    try:
        body = asked.body.decode()
    except UnicodeDecodeError:
        raise codes.wrong("the statement is not valid UTF-8") from None
    return "\n".join(one for one in (given.get("query", ""), body) if one)


def _seconds(text: str) -> float | None:
    """0 is no limit at ClickHouse, and ours here."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise _bad_time(text)
    return seconds or None


def _bad_time(text: str) -> UsageError:
    return codes.wrong(f"invalid max_execution_time {text[:40]!r}", code=codes.SETTING, hint="give seconds")


def _valid(query_id: str) -> bool:
    """`#` and a number are ours, for what a statement submits beside the first."""
    return (
        len(query_id) <= 200
        and query_id.isascii()
        and query_id.isprintable()
        and not _NUMBERED.search(query_id)
    )


def _answered(result: StatementResult, query_id: str) -> Answered:
    headers = {
        **_common(query_id),
        "Content-Type": _TYPES.get(result.form, _OTHER_TYPE),
        "X-ClickHouse-Format": result.form,
        "X-ClickHouse-Summary": json.dumps(
            {
                "read_rows": "0",
                "read_bytes": "0",
                "written_rows": "0",
                "written_bytes": "0",
                "result_bytes": str(len(result.data)),
            }
        ),
    }
    for name, values in (
        ("Processes", result.processes),
        ("Joined", result.joined),
        ("Truncated", result.truncated),
    ):
        if values:
            headers[f"X-Calve-{name}"] = ",".join(values[:_MOST_NAMED])
    return Answered(status=200, headers=headers, body=result.data)


def _common(query_id: str) -> dict[str, str]:
    return {
        "X-ClickHouse-Query-Id": query_id if query_id and _valid(query_id) else str(uuid.uuid4()),
        "X-ClickHouse-Server-Display-Name": "calve",
        "X-ClickHouse-Timezone": "UTC",
    }
