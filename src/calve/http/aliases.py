"""`/backup/*`: enough of clickhouse-backup's API for the jobs that call it, so that they need a new address only.

Creating, listing and asking how it went work as there. What there is done in a second step, or means something else
here, is refused with the route that does it. Backups are where they are made, so `upload` has nothing to do.
"""

import shlex
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from calve import __version__
from calve.app.actions import Actions, ActionThreads, acknowledged, read
from calve.http.identity import IN_URL
from calve.http.problem import AnyJson, HttpError, status_of
from calve.http.service import VerbService
from calve.http.store_threads import StoreThreads
from calve.http.tables import MOST_ACTIONS, commands, json_lines
from calve.model.access import Action, Caller
from calve.model.errors import CalveError, UsageError
from calve.sql.url_tables import ACTIONS, plain

LIST_SECONDS = 25.0  # jobs of cron do not ask again
_NEVER = "1970-01-01 00:00:00"
_TRUE, _FALSE = ("", "1", "true"), ("0", "false")
# What clickhouse-backup has and Calve has not, with what to do instead.
_REFUSED = {
    "schema": "back up the tables; restore them with schema_only",
    "rbac-only": "give rbac=true: users and roles beside the tables",
    "configs": "configuration files are not backed up",
    "configs-only": "configuration files are not backed up",
    "diff-from-remote": "omit it: what an earlier backup has stored is never copied again",
    "diff-from": "omit it: what an earlier backup has stored is never copied again",
    "resume": "omit it: a backup that was interrupted goes on when it is created again",
    "resumable": "omit it: a backup that was interrupted goes on when it is created again",
    "callback": "omit it: a server does not call addresses that a request names",
}
_INSTEAD = {
    "restore": "POST /v1/backups/NAME/restore",
    "restore_remote": "POST /v1/backups/NAME/restore",
    "delete": "DELETE /v1/backups/NAME, or POST /v1/backups/prune",
    "download": "POST /v1/backups/NAME/restore, which fetches what it needs",
    "clean": "POST /v1/backups/prune",
    "watch": "a schedule of your own that calls /backup/create",
    "restart": "a restart of calve serve",
    "tables": "GET /v1/partitions?table=TABLE",
}
Handler = Callable[[Request], Awaitable[Response]]


class Aliases:
    def __init__(
        self, service: VerbService, threads: StoreThreads, actions: Actions, doing: ActionThreads
    ) -> None:
        self._service = service
        self._threads = threads
        self._actions = actions
        self._doing = doing

    def routes(self) -> list[Route]:
        return [
            _route("GET", "/backup/version", "version", self.version),
            _route("GET", "/backup/list", "list", self.listed),
            _route("GET", "/backup/list/{where}", "list", self.listed),
            _route("POST", "/backup/create", "create", self.create),
            _route("POST", "/backup/create_remote", "create_remote", self.create),
            _route("POST", "/backup/upload/{name}", "upload", self.upload),
            _route("GET", "/backup/status", "status", self.status),
            _route("GET", "/backup/actions", "actions", self.status),
            _route("POST", "/backup/actions", "actions", self.act),
            _route("GET", "/backup/{rest:path}", "", self.other),
            _route("POST", "/backup/{rest:path}", "", self.other),
        ]

    async def version(self, request: Request) -> Response:
        await self._service.caller(request)
        return JSONResponse({"version": f"calve {__version__}"})

    async def listed(self, request: Request) -> Response:
        caller = await self._service.caller(request)
        where = request.path_params.get("where", "remote")
        if where not in ("local", "remote"):
            raise UsageError("invalid place", code="bad_option", hint="give local or remote")
        if where == "local":
            return json_lines(())
        found = await self._service.waited(caller, "backup_list", {}, seconds=LIST_SECONDS)
        return json_lines(map(_backup, found["backups"]))

    async def create(self, request: Request) -> Response:
        """Acknowledged once it is in the store; `status` says how it goes."""
        caller = await self._service.caller(request)
        given = _options(request.query_params, ("name", "table", "tables", "partitions", "rbac"))
        name = given.get("name") or default_name()
        words = ["create", name]
        if tables := given.get("table") or given.get("tables"):
            words += ["--tables", tables]
        if given.get("partitions"):
            words += ["--partitions", given["partitions"]]
        if given.get("rbac"):
            words.append("--rbac")
        [action] = await self._accepted(request, caller, [shlex.join(words)])
        operation = request.url.path.rpartition("/")[2]
        said = {"operation": operation, "backup_name": name}
        return AnyJson(acknowledged(action) | said, status_code=201)

    async def upload(self, request: Request) -> Response:
        """Nothing is left to do: a backup is stored where it is made."""
        caller = await self._service.caller(request)
        name = request.path_params["name"]
        await self._service.waited(caller, "backup_show", {"name": name}, seconds=LIST_SECONDS)
        return JSONResponse({"status": "acknowledged", "operation": "upload", "backup_name": name})

    async def status(self, request: Request) -> Response:
        await self._service.caller(request)
        query = request.query_params
        wanted = [query["operationid"]] if query.get("operationid") else []
        rows = await self._threads.run(lambda: self._actions.rows(limit=MOST_ACTIONS, ids=wanted))
        found = [plain(ACTIONS, row) for row in reversed(rows) if query.get("filter", "") in row["command"]]
        last = query.get("last", "")
        if not (last.isascii() and last.isdigit() and len(last) <= 6):
            return json_lines(found)
        return json_lines(found[max(0, len(found) - int(last)) :])

    async def act(self, request: Request) -> Response:
        caller = await self._service.caller(request)
        lines = [self._completed(line) for line in commands(await request.body())]
        if not lines:
            raise UsageError("an empty request", code="bad_command", hint='send {"command": "create NAME"}')
        return json_lines(map(acknowledged, await self._accepted(request, caller, lines)))

    async def other(self, request: Request) -> Response:
        await self._service.caller(request)
        raise _instead(request.path_params["rest"].split("/")[0])

    async def _accepted(self, request: Request, caller: Caller, lines: list[str]) -> list[Action]:
        key = request.headers.get("idempotency-key", "")
        found: list[Action] = await self._threads.run(
            lambda: self._actions.accept(caller, lines, key=key), changes=True
        )
        self._doing.wake()
        return found

    def _completed(self, line: str) -> str:
        """A command of clickhouse-backup as one of ours: without a name it is called by the time."""
        word = line.split()[0]
        if word in _INSTEAD:
            raise _instead(word)
        if word == "create_remote":
            line = line.replace("create_remote", "create", 1)
        verb, given = read(self._service.desk, line)
        if verb not in ("backup_create", "cancel"):
            raise UsageError(
                "not a command of clickhouse-backup", code="bad_command", hint="POST /v1/actions"
            )
        return line if verb != "backup_create" or given.get("name") else f"{line} {default_name()}"


def default_name() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S")


def _options(query: Mapping[str, str], known: tuple[str, ...]) -> dict[str, str]:
    """The options of a request; what is not known, or off, is refused by name, never by value."""
    found: dict[str, str] = {}
    for name, value in query.items():
        if name in known and name != "rbac":
            found[name] = value
        elif name == "rbac" and value.lower() in (*_TRUE, *_FALSE):
            found[name] = "true" if value.lower() in _TRUE else ""
        elif name not in IN_URL and value.lower() not in _FALSE:
            hint = _REFUSED.get(name, f"there are {', '.join(known)}")
            raise UsageError(f"invalid {name[:40]}", code="bad_option", hint=hint)
    return found


def _instead(word: str) -> HttpError:
    instead = _INSTEAD.get(word)
    if instead is None:
        return HttpError(
            404, "no such command of clickhouse-backup", code="no_such_route", hint="see docs/http-api.md"
        )
    return HttpError(400, f"{word} is not done this way", code="not_an_alias", hint=f"use {instead}")


def _route(method: str, path: str, operation: str, handler: Handler) -> Route:
    async def endpoint(request: Request) -> Response:
        try:
            return await handler(request)
        except CalveError as error:
            said = f"{error.message}; {error.hint}" if error.hint else error.message
            body = {"status": "error", "operation": operation, "error": said}
            headers = error.headers if isinstance(error, HttpError) else {}
            return AnyJson(body, status_code=status_of(error), headers=headers)

    return Route(path, endpoint, methods=[method])


def _backup(one: Mapping[str, Any]) -> dict[str, Any]:
    """A backup as clickhouse-backup lists it."""
    size = one.get("bytes", 0)
    created = str(one.get("created_at") or _NEVER).replace("T", " ")[:19]
    return {
        "name": one["name"],
        "created": created,
        "size": size,
        "data_size": size,
        "metadata_size": 0,
        "compressed_size": one.get("own_bytes", 0),
        "location": "remote",
        "required": "",
        "desc": f"broken: {one['error']}" if one.get("error") else "calve",
    }
