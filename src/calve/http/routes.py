"""The routes: each is a verb of the desk, and its arguments are the verb's options. The document at
`/v1/openapi.json` is made of the same table.

GET never changes anything: only verbs that change nothing have one. `POST /v1/verbs/NAME` serves every verb:
it is what `calve --server` uses.
"""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, create_model
from starlette.exceptions import HTTPException

from calve import __version__
from calve.app.arguments import unknown_option
from calve.app.desk import Desk
from calve.app.verbs.roles import VERBS
from calve.http.problem import MEDIA_TYPE, HttpError, defect, problem
from calve.http.service import VerbService
from calve.model.errors import CalveError, UsageError

API = 1


@dataclass(frozen=True, kw_only=True)
class Route:
    """`path` may name options of the verb; the rest come from the query or the body."""

    method: str
    path: str
    verb: str
    about: str


ROUTES = (
    Route(method="GET", path="/processes", verb="page", about="Processes, newest first, in pages"),
    Route(method="GET", path="/processes/{ids}", verb="show", about="One process with its plan, tasks and pins"),
    Route(method="GET", path="/processes/{ids}/tasks", verb="tasks", about="Tasks of a process, in pages"),
    Route(method="GET", path="/processes/{ids}/events", verb="events", about="What happened to a process"),
    Route(method="GET", path="/processes/{ids}/why", verb="why", about="What a process waits for, or why it ended"),
    Route(method="GET", path="/processes/{id}/sheet", verb="sheet", about="One process as a page shows it, whatever its size"),
    Route(method="GET", path="/attention", verb="attention", about="What a person must do something about now"),
    Route(method="GET", path="/pairs", verb="tables", about="Source tables and destinations, and what was exported"),
    Route(method="GET", path="/pair", verb="table", about="One source table and its destination, as last seen"),
    Route(method="GET", path="/vault", verb="vault", about="Backups as last seen, what proved them, and restores"),
    Route(method="GET", path="/tiering", verb="tiering", about="Policies and holds as a page shows them"),
    Route(method="GET", path="/system", verb="system", about="Workers, servers, outages, halts and errors"),
    Route(method="GET", path="/search", verb="search", about="Ids, tables, partitions and error codes"),
    Route(method="GET", path="/standing", verb="standing", about="The state of processes, for clients that wait for them"),
    Route(method="GET", path="/events", verb="feed", about="Events of all processes, in order, from a cursor on"),
    Route(method="GET", path="/workers", verb="workers", about="Workers, and what they do"),
    Route(method="GET", path="/processes/{ids}/proofs", verb="proofs", about="When a process was verified, and how"),
    Route(method="GET", path="/servers", verb="servers", about="Servers on this store"),
    Route(method="GET", path="/breakers", verb="breakers", about="Services that are down, and when they are asked again"),
    Route(method="GET", path="/halts", verb="halts", about="Work that is stopped until somebody starts it again"),
    Route(method="GET", path="/totals", verb="totals", about="How much there is of everything, and the last success of each table"),
    Route(method="GET", path="/versions", verb="versions", about="Versions of all parts of the server"),
    Route(method="GET", path="/audit", verb="audit", about="Who asked for which change, newest first"),
    Route(method="GET", path="/history", verb="history", about="What optimizing did"),
    Route(method="GET", path="/config", verb="settings", about="The configuration with its origins, secrets masked"),
    Route(method="GET", path="/partitions", verb="partitions", about="Partitions of a table, and what is exported"),
    Route(method="GET", path="/source-tables", verb="source_tables", about="Tables of a source that could be exported"),
    Route(method="GET", path="/parts", verb="parts", about="Parts of a table"),
    Route(method="GET", path="/health", verb="health", about="The health of an Iceberg table"),
    Route(method="GET", path="/backups", verb="backup_list", about="Backups"),
    Route(method="GET", path="/backups/{name}", verb="backup_show", about="One backup"),
    Route(method="GET", path="/schedules", verb="schedule_list", about="Backups by rule, the last of each and the next"),
    Route(method="GET", path="/schedules/{name}", verb="schedule_show", about="One schedule, what became of its backups, and what comes"),
    Route(method="GET", path="/policies", verb="policy_list", about="Policies, and where their partitions stand"),
    Route(method="GET", path="/policies/{name}", verb="policy_show", about="One policy, what it sets aside, and what comes next"),
    Route(method="GET", path="/explain", verb="policy_explain", about="Where one partition stands under policies, and why"),
    Route(method="GET", path="/holds", verb="hold_list", about="Tables and partitions whose rows are to stay"),
    Route(method="GET", path="/views", verb="view_show", about="The view over a table and its lake"),
    Route(method="GET", path="/tokens", verb="token_list", about="Tokens, without their texts"),
    Route(method="POST", path="/exports", verb="export", about="Export partitions"),
    Route(method="POST", path="/exports/preview", verb="export_preview", about="What an export would do"),
    Route(method="POST", path="/optimizes", verb="optimize", about="Optimize an Iceberg table"),
    Route(method="POST", path="/optimizes/preview", verb="optimize_preview", about="What optimizing would do"),
    Route(method="POST", path="/backups", verb="backup_create", about="Back tables up"),
    Route(method="POST", path="/backups/prune", verb="backup_prune", about="Delete backups that no rule keeps"),
    Route(method="POST", path="/backups/{name}/verify", verb="backup_verify", about="Read a backup back"),
    Route(method="POST", path="/backups/{name}/drill", verb="backup_drill", about="Restore a sample of a backup, compare it, remove it"),
    Route(method="POST", path="/backups/{name}/restore", verb="backup_restore", about="Restore a backup"),
    Route(method="POST", path="/backups/{name}/restore/preview", verb="restore_preview", about="What a restore would make"),
    Route(method="DELETE", path="/backups/{name}", verb="backup_delete", about="Delete a backup"),
    Route(method="POST", path="/processes/cancel", verb="cancel", about="Cancel processes"),
    Route(method="POST", path="/processes/stop", verb="stop", about="Carry cancels out where no worker runs"),
    Route(method="POST", path="/processes/retry", verb="retry", about="Run ended processes again"),
    Route(method="POST", path="/processes/verify", verb="verify", about="Compare what was published with what was read"),
    Route(method="POST", path="/halts", verb="halt", about="Stop work of a kind, of one table or of all"),
    Route(method="POST", path="/halts/lift", verb="lift", about="Start it again"),
    Route(method="POST", path="/policies/{name}/run", verb="policy_run", about="Look now, and start what is due"),
    Route(method="POST", path="/policies/{name}/pause", verb="policy_pause", about="Pause a policy"),
    Route(method="POST", path="/policies/{name}/resume", verb="policy_resume", about="Resume a policy"),
    Route(method="POST", path="/policies/{name}/approve", verb="policy_approve", about="Let a policy move partitions out"),
    Route(method="POST", path="/drop", verb="policy_drop", about="Delete partitions that are in quarantine, or plan it"),
    Route(method="POST", path="/undo", verb="policy_undo", about="Bring a partition back out of quarantine"),
    Route(method="POST", path="/schedules/{name}/run", verb="schedule_run", about="Make one more backup of a schedule now"),
    Route(method="POST", path="/schedules/{name}/pause", verb="schedule_pause", about="Pause a schedule"),
    Route(method="POST", path="/schedules/{name}/resume", verb="schedule_resume", about="Resume a schedule"),
    Route(method="POST", path="/untiers", verb="untier", about="Bring a partition back from the lake"),
    Route(method="POST", path="/holds", verb="hold_add", about="Keep policies from replacing or removing rows"),
    Route(method="POST", path="/holds/{id}/release", verb="hold_release", about="End a hold"),
    Route(method="POST", path="/views", verb="view_create", about="Make a view over a table and its lake, or bring it up to date"),
    Route(method="POST", path="/views/drop", verb="view_drop", about="Drop the view over a table and its lake"),
    Route(method="POST", path="/doctor", verb="doctor", about="Check the installation"),
    Route(method="POST", path="/support", verb="support", about="A bundle for a bug report, without secrets"),
    Route(method="POST", path="/notify/test", verb="notify_test", about="Send one message to a webhook or ping"),
    Route(method="POST", path="/tokens", verb="token_new", about="Make a token; its text is in this answer only"),
    Route(method="POST", path="/tokens/revoke", verb="token_revoke", about="Revoke tokens"),
)  # fmt: skip

_TYPES: Mapping[type, Any] = {
    str: str, int: int, float: float, bool: bool, list: list[str], dict: dict[str, str],
    datetime: Annotated[str, Field(description="a time as 2026-01-31T00:00:00Z")],
    timedelta: Annotated[str, Field(description="a span as 90d, 12h or 30m")],
}  # fmt: skip
_TEXT, _NUMBER, _TRUTH = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
_PROBLEM_FIELDS = (
    ("type", _TEXT),
    ("title", _TEXT),
    ("status", _NUMBER),
    ("detail", _TEXT),
    ("code", _TEXT),
    ("message", _TEXT),
    ("hint", _TEXT),
    ("retryable", _TRUTH),
    ("outcome", {"enum": ["not_applied", "applied", "unknown"]}),
    ("exit_code", _NUMBER),
    ("request_id", _TEXT),
)
# Of some problems: the service that is down, and when to ask again.
_PROBLEM_MAY_HAVE = (("service", _TEXT), ("until", {"type": "string", "format": "date-time"}))  # fmt: skip
_PROBLEM = {"content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    202: {"description": "Under way: repeat the same request after the seconds of Retry-After"},
    **{
        status: {"description": text, **_PROBLEM}
        for status, text in {
            400: "The request is wrong", 401: "A token is needed, or it is wrong", 403: "The caller's role may not do this",
            404: "No such thing", 405: "Not this method", 408: "The body came too slowly", 409: "The state of the data forbids it",
            413: "The body is too large", 415: "Not UTF-8, or compressed", 421: "Wrong host name",
            429: "Too many requests", 502: "Another service refused", 503: "A service is down, or busy",
        }.items()
    },
}  # fmt: skip


def application(service: VerbService, *, proof: Callable[[str], str]) -> FastAPI:
    """`proof`: that this server knows the token of its host, for a nonce."""
    app = FastAPI(
        title="Calve",
        version=__version__,
        description="Publishes partitions of ClickHouse tables as Iceberg snapshots, exactly once.",
        openapi_url="/v1/openapi.json",
        docs_url=None,  # both load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    router = APIRouter(prefix="/v1", responses=_ANSWERS, route_class=_JsonRoute)
    for route in ROUTES:
        _add(router, service, route)
    _add_verbs(router, service)
    app.include_router(router)
    app.add_exception_handler(RequestValidationError, partial(_invalid, service.desk))
    app.add_exception_handler(HTTPException, _not_routed)
    app.add_exception_handler(CalveError, _raised)
    app.add_exception_handler(
        Exception, lambda request, _: defect(request.state.request_id)
    )  # and the guard logs it
    _add_open_routes(app, service, proof)
    document = _document(app)
    app.openapi = lambda: document  # type: ignore[method-assign]
    return app


class _JsonRoute(APIRoute):
    """A body is JSON, whatever its Content-Type says: `curl -d` says that it is a form."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def with_json(request: Request) -> Response:
            others = [(name, value) for name, value in request.scope["headers"] if name != b"content-type"]
            scope = {**request.scope, "headers": [*others, (b"content-type", b"application/json")]}
            return await handler(Request(scope, request.receive))

        return with_json


def _document(app: FastAPI) -> dict[str, Any]:
    """FastAPI's, with the form of our problems in place of its own."""
    made = app.openapi()
    schemas = made["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Problem"] = {
        "type": "object",
        "required": [name for name, _ in _PROBLEM_FIELDS],
        "properties": dict((*_PROBLEM_FIELDS, *_PROBLEM_MAY_HAVE)),
    }
    for path in made["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
            operation["responses"].setdefault("400", {"description": "The request is wrong", **_PROBLEM})
    return made


def _add(router: APIRouter, service: VerbService, route: Route) -> None:
    desk, in_path = service.desk, [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    model = _model(desk, route.verb, leaving_out=in_path)
    from_query = route.method == "GET"

    async def endpoint(request: Request, given: BaseModel, named: dict[str, str]) -> Response:
        arguments: dict[str, Any] = given.model_dump(exclude_unset=True)
        for name, value in named.items():
            arguments[name] = [value] if desk.options(route.verb)[name] is list else value
        return await service.answer(request, route.verb, arguments)

    taken: Any = Annotated[model, Query()] if from_query else Annotated[model, Body()]
    if in_path:
        (name,) = in_path

        async def handler(request: Request, value: str, given: Any) -> Response:
            return await endpoint(request, given, {name: value})

        handler.__annotations__["value"] = Annotated[str, Path(alias=name)]
    else:

        async def handler(request: Request, given: Any) -> Response:  # type: ignore[misc]
            return await endpoint(request, given, {})

    handler.__annotations__["given"] = taken
    if (not from_query and not desk.required(route.verb)) or set(desk.required(route.verb)) <= set(in_path):
        handler.__defaults__ = (model(),)  # a body that may be left out
    router.add_api_route(
        route.path,
        handler,
        methods=[route.method],
        name=route.verb,
        operation_id=route.verb,
        summary=route.about,
        description=f"Role: {VERBS[route.verb].role.value}.",
        tags=[route.path.split("/")[1]],
        response_class=JSONResponse,
    )


def _model(desk: Desk, verb: str, *, leaving_out: list[str]) -> type[BaseModel]:
    """The verb's options as a body or a query; an unknown one is an error."""
    fields: dict[str, Any] = {}
    for name, kind in desk.options(verb).items():
        if name in leaving_out:
            continue
        wanted = desk.choices(verb).get(name)
        of: Any = Literal[tuple(wanted)] if wanted else _TYPES[kind]
        fields[name] = (of, ...) if name in desk.required(verb) else (of | None, None)
    config = ConfigDict(extra="forbid", strict=False)
    return create_model(f"{verb.title().replace('_', '')}Arguments", __config__=config, **fields)


def _add_verbs(router: APIRouter, service: VerbService) -> None:
    @router.post(
        "/verbs/{verb}",
        operation_id="verb",
        summary="Any verb, with its options as an object",
        tags=["verbs"],
    )
    async def verb(
        request: Request, verb: str, arguments: Annotated[dict[str, Any], Body(default_factory=dict)]
    ) -> Response:
        return await service.answer(request, verb, arguments)


def _add_open_routes(app: FastAPI, service: VerbService, proof: Callable[[str], str]) -> None:
    """Which need no token. `healthz` asks nobody: the program lives; `readyz` asks the store."""

    @app.get("/v1/version", operation_id="version", summary="The server's version", tags=["server"])
    async def version() -> dict[str, Any]:
        return {"version": __version__, "api": API}

    @app.get(
        "/v1/hello", operation_id="hello", summary="Proof that this server is the host's own", tags=["server"]
    )
    async def hello(nonce: Annotated[str, Query(min_length=16, max_length=200)]) -> dict[str, str]:
        return {"proof": proof(nonce)}

    @app.head("/healthz", include_in_schema=False)
    @app.get("/healthz", include_in_schema=False)
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/readyz", include_in_schema=False)
    async def readyz() -> dict[str, str]:
        await service.ready()
        return {"status": "ok"}


def _invalid(desk: Desk, request: Request, error: Exception) -> Response:
    """Which place is wrong, and how; never the value, which may be a secret."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path"))
    match first["type"]:
        case "json_invalid":
            said, code = "the body is not JSON", "bad_option"
        case "missing":
            said, code = f"{place or 'the body'} is missing", "missing_option"
        case "extra_forbidden":
            verb = request.scope["route"].operation_id
            options = [name for name in desk.options(verb) if name not in request.path_params]
            return problem(unknown_option(place, options), request.state.request_id)
        case _ if not place:
            said, code = "the body is not an object", "bad_option"
        case _:
            said, code = f"invalid {place}: {first['msg']}", "bad_option"
    return problem(UsageError(said[:500], code=code, hint="see /v1/openapi.json"), request.state.request_id)


def _not_routed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "no_such_route", 405: "method"}.get(error.status_code, "request")
    wrong = HttpError(
        error.status_code, str(error.detail), code=code, hint="see /v1/openapi.json", headers=error.headers
    )
    return problem(wrong, request.state.request_id)


def _raised(request: Request, error: Exception) -> Response:
    assert isinstance(error, CalveError)
    return problem(error, request.state.request_id)
