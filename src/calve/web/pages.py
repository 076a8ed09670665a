"""The table of pages: an address, a verb, a template. Each is given as HTML, as the document it shows (`.json`), and some
as a file (`.csv`); a script asks for its `<main>` alone.

A page has one document. While the store does not answer, the last one is shown with its age, and without buttons.
"""

import csv
import io
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route

from calve.app.arguments import span
from calve.app.desk import NotAllowedError
from calve.app.view import Json
from calve.http.problem import HttpError
from calve.model.access import Caller
from calve.model.errors import CalveError, NotFoundError, TemporaryError, UsageError
from calve.web.documents import Documents, is_store_down
from calve.web.fields import parsed, refuse_tokens
from calve.web.frame import HEADERS, Frame
from calve.web.links import target
from calve.web.words import STANDINGS

Given = Mapping[str, Any]
VIEWS: Mapping[str, Sequence[str]] = {
    "running": ["RUNNING", "PUBLISHING"], "failed": ["FAILED"], "waiting": ["PENDING"], "all": []
}  # fmt: skip
_WEEK, _SPAN = "7d", re.compile(r"\d+[a-z]")
_ROWS = 50
_RISKY_CELL = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would compute


def _asked_page(given: Given) -> Json:
    """A view is a name for states; `failed` is of the last week. Ages are rounded, so that viewers share a document."""
    view = given.get("view", "")
    if view and view not in VIEWS:
        raise UsageError("invalid view", code="bad_option", hint=f"there are {', '.join(VIEWS)}")
    asked: Json = {name: value for name, value in given.items() if name not in ("view", "state")}
    states = given.get("state") or VIEWS.get(view, ())
    if states:
        asked["states"] = list(states)
    if view == "failed":
        asked.setdefault("since", _WEEK)
    for name in ("since", "until"):
        if _SPAN.fullmatch(asked.get(name, "")):
            minute = datetime.now(UTC).replace(second=0, microsecond=0)
            asked[name] = (minute - span(asked[name])).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"limit": _ROWS, **asked, "why": True}


def _asked_sheet(given: Given) -> Json:
    asked = {name: value for name, value in given.items() if name != "state"}
    return asked | ({"states": given["state"]} if given.get("state") else {})


def _asked_backup(given: Given) -> Json:
    if not given.get("name"):
        raise UsageError("no backup is chosen", code="missing_option", hint="choose one from the list")
    return dict(given)


def _asked_policy(given: Given) -> Json:
    if not given.get("name"):
        raise UsageError("no policy is chosen", code="missing_option", hint="choose one of the list")
    return dict(given)


def _every_table(given: Given) -> Json:
    return {**{name: value for name, value in given.items() if name != "page"}, "every": True}


@dataclass(frozen=True, kw_only=True)
class Page:
    """`name` stands in the links of documents. `options`: what its address may say. `asked`: the verb's arguments."""

    name: str
    path: str
    title: str
    template: str
    verb: str = ""
    options: Mapping[str, type] = field(default_factory=dict)
    asked: Callable[[Given], Json] = dict
    wants: Callable[[Json], Json] = lambda _: {"all": True}  # which messages of the stream concern it
    # Verbs for those whose role allows them, with their arguments for a document.
    beside: Mapping[str, Callable[[Json], Json]] = field(default_factory=dict)
    file: Callable[[Given], Json] | None = None  # the arguments for a file
    rows: str = ""
    columns: tuple[str, ...] = ()


PAGES: Mapping[str, Page] = {
    page.name: page
    for page in (
        Page(name="attention", path="/", title="Attention", template="attention.html"),
        Page(
            name="tables", path="/tables", title="Tables", template="tables.html",
            options={"q": str, "sort": str, "order": str, "page": int},
            file=_every_table, rows="rows",
            columns=("source", "destination", "counts.exported", "counts.changed", "counts.new", "counts.missing",
                     "hot", "cold", "last.state", "last.finished_at", "live", "proven_at", "score", "seen_at", "error"),
        ),
        Page(
            name="table", path="/tables/of", title="Table", template="table.html",
            options={"source": str, "to": str, "page": int, "exported": str},
            wants=lambda doc: {"source": doc["source"], "destination": doc["destination"]},
        ),
        Page(
            name="page", path="/processes", title="Processes", template="processes.html", asked=_asked_page,
            options={"view": str, "kind": str, "state": list, "table": str, "to": str, "batch": str,
                     "since": str, "until": str, "after": str},
            file=lambda given: _asked_page(given) | {"limit": 1000}, rows="processes",
            columns=("id", "kind", "state", "source", "destination", "partitions", "rows", "bytes", "created_at",
                     "finished_at", "error.code", "error.message", "why"),
        ),
        Page(
            name="sheet", path="/processes/{id}", title="Process", template="process.html", asked=_asked_sheet,
            options={"id": str, "state": list, "after": int, "before": int},
            wants=lambda doc: {"processes": [doc["process"]["id"]]},
            beside={"audit": lambda doc: {"process": doc["process"]["id"]}},
        ),
        Page(
            name="vault", path="/backups", title="Backups", template="backups.html", options={"page": int},
            file=dict, rows="backups",
            columns=("name", "created_at", "source", "process", "tables", "parts", "rows", "bytes", "shares", "frees",
                     "proven.at", "proven.how", "proven.ok", "error"),
        ),
        Page(
            name="backup", path="/backups/of", title="Backup", template="backup.html", verb="vault",
            options={"name": str}, asked=_asked_backup,
        ),
        Page(
            name="policies", path="/policies", title="Policies", template="policies.html", verb="tiering",
            file=dict, rows="policies",
            columns=("name", "source", "to", "paused", "release", "asks", "tables", *(f"states.{one}" for one in STANDINGS),
                     "next.at", "next.action", "next.partition", "seen_at", "error"),
        ),
        Page(
            name="policy", path="/policies/of", title="Policy", template="policy.html", verb="tiering",
            options={"name": str}, asked=_asked_policy,
        ),
        Page(name="system", path="/system", title="System", template="system.html",
             beside={"settings": lambda _: {}, "audit": lambda _: {}}),
        Page(
            name="search", path="/search", title="Search", template="search.html",
            options={"q": str}, wants=lambda _: {},
        ),
    )
}  # fmt: skip
PLAN = Page(
    name="plan", path="/tables/plan", title="Plan", template="plan.html", verb="export_preview",
    options={"source": str, "to": str, "partition": list, "first": str, "last": str, "older_than": str, "all": bool,
             "force": bool, "was": str},
    wants=lambda _: {},
)  # fmt: skip
NEW = Page(
    name="new", path="/tables/new", title="New export", template="new.html", verb="source_tables",
    options={"source": str, "q": str, "look": str}, wants=lambda _: {},
)  # fmt: skip
RESTORE = Page(
    name="restore", path="/backups/restore", title="Restore", template="restore.html", verb="restore_preview",
    options={"name": str, "source": str, "tables": list, "partitions": list, "into": str, "existing": str,
             "schema_only": bool, "data_only": bool, "plan": bool, "was": str},
    wants=lambda _: {},
)  # fmt: skip
PATHS = {page.name: page.path for page in (*PAGES.values(), PLAN, NEW, RESTORE)}
TITLES = {page.name: page.title for page in PAGES.values()}


class Pages:
    def __init__(self, frame: Frame, documents: Documents) -> None:
        self._frame = frame
        self._documents = documents
        self._service = frame.shared.service

    def routes(self) -> list[BaseRoute]:
        made: list[BaseRoute] = []
        for page in PAGES.values():
            path = "/attention" if page.path == "/" else page.path
            made.append(Route(f"{path}.json", self._json(page), methods=["GET"]))
            if page.file:
                made.append(Route(f"{path}.csv", self._frame.handler(self._csv(page)), methods=["GET"]))
            made.append(Route(path, self._frame.handler(self._html(page)), methods=["GET"]))
            if page.path == "/":
                made.append(_ForBrowsers("/", self._frame.handler(self._html(page)), methods=["GET"]))
        made += [
            Route("/processes/{id}/plan.json", self._part(_plan_of, {}), methods=["GET"]),
            Route("/processes/{id}/task.json", self._part(_task_of, {"number": int}), methods=["GET"]),
        ]
        self._frame.shared.last.append(
            _ForBrowsers("/{path:path}", self._frame.handler(self._nothing), methods=["GET", "POST"])
        )
        return made

    async def _nothing(self, request: Request) -> Response:
        caller = await self._frame.visitor(request)
        if isinstance(caller, Response):
            return caller
        hint = "the search finds ids and tables"
        error = HttpError(404, "There is no such page", code="no_such_route", hint=hint)
        if request.method != "GET":
            hint = "open the page, and use its buttons"
            error = HttpError(405, "This address takes no form", code="method", hint=hint)
        return await self._frame.error(request, error, caller=caller)

    def _html(self, page: Page) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            if page.path == "/" and request.scope["state"].get("bare_root"):
                # Relative links would lead out of the root path.
                bare = self._frame.shared.root_path.rpartition("/")[2]
                query = f"?{request.url.query}" if request.url.query else ""
                return Response(status_code=307, headers={"Location": f"{bare}/{query}"})
            caller = await self._frame.visitor(request)
            if isinstance(caller, Response):
                return caller
            given = given_of(request, page)
            if page.name == "search" and not given.get("q"):
                return await self.shown(
                    request, page, caller, {**given, "q": ""}, {"q": "", "hits": [], "note": ""}
                )
            return await self._document(request, page, caller, given)

        return answer

    async def _document(self, request: Request, page: Page, caller: Caller | None, given: Json) -> Response:
        verb, asked = page.verb or page.name, page.asked(given)
        started = time.perf_counter()
        stale: float | None = None
        try:
            if caller is None:
                raise store_down()
            self._service.desk.check(caller, verb, asked)
            made = await self._documents.get(verb, asked, after=request.headers.get("x-calve-after", ""))
        except CalveError as error:
            if error.code == "several_processes":
                return self._frame.go(request, target(PAGES["page"].path, {"batch": given["id"]}))
            last = self._documents.last(verb, asked) if is_store_down(error) else None
            if last is None:
                return await self._frame.error(request, error, caller=caller)
            made, stale = last
        document = json.loads(made.data)
        if stale is None:
            self._frame.shared.lookout.want(document["subjects"])
        if page.name == "sheet" and document["process"]["id"] != given["id"]:
            return self._frame.go(request, target(page.path, {**given, "id": document["process"]["id"]}))
        hits: list[Json] = document["hits"] if page.name == "search" else []
        if len(hits) == 1:
            name, arguments = hits[0]["href"]
            return self._frame.go(request, target(PATHS[name], arguments))
        beside = {} if stale is not None or caller is None else await self._beside(page, caller, document)
        spent = time.perf_counter() - started
        return await self.shown(
            request,
            page,
            caller,
            given,
            document,
            stale=stale,
            store_seconds=spent,
            **beside,
            prints=None if stale is not None or beside else made.prints,
        )

    async def shown(
        self,
        request: Request,
        page: Page,
        caller: Caller | None,
        given: Json,
        document: Json,
        *,
        template: str = "",
        **context: Any,
    ) -> Response:
        links = self._frame.links(request)

        def here(**changes: Any) -> str:
            return links.to(page.name, **{**given, **changes})

        def file(ending: str) -> str:
            path = "/attention" if page.path == "/" else page.path
            return links.at(target(f"{path}.{ending}", given))

        return await self._frame.page(
            request,
            template or page.template,
            caller=caller,
            page={"name": page.name, "title": page.title, "path": page.path},
            doc=document,
            given=given,
            here=here,
            file=file,
            address=target(page.path, given),
            now=_time(document.get("now")),
            wants=json.dumps(page.wants(document)),
            **{"stale": None, **context},
        )

    async def _beside(self, page: Page, caller: Caller, document: Json) -> Json:
        """What only some roles see: asked for this caller each time, and by its name in the template."""
        found: Json = {}
        for verb, asked in page.beside.items():
            with suppress(NotAllowedError):
                found[verb] = json.loads(await self._service.document(caller, verb, asked(document)))
        return found

    def _json(self, page: Page) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            caller = await self._frame.known(request)
            asked = page.asked(given_of(request, page))
            self._service.desk.check(caller, page.verb or page.name, asked)
            made = await self._documents.get(
                page.verb or page.name, asked, after=request.headers.get("x-calve-after", "")
            )
            return Response(
                made.data,
                media_type="application/json",
                headers={"X-Calve-Version": HEADERS["X-Calve-Version"]},
            )

        return answer

    def _part(
        self, part: "Callable[[Json], tuple[str, Json, Callable[[Any], Any]]]", options: Mapping[str, type]
    ) -> Callable[[Request], Any]:
        """What a page of a process has no room for: all of its plan, and a task with its receipt."""

        async def answer(request: Request) -> Response:
            caller = await self._frame.known(request)
            verb, asked, of = part(given_of(request, replace(PAGES["sheet"], options={**options, "id": str})))
            found = of(json.loads(await self._service.document(caller, verb, asked)))
            return Response(json.dumps(found, ensure_ascii=False), media_type="application/json")

        return answer

    def _csv(self, page: Page) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            caller = await self._frame.visitor(request)
            if isinstance(caller, Response):
                return caller
            if caller is None:
                raise store_down()
            assert page.file
            asked = page.file(given_of(request, page))
            made = json.loads(await self._service.document(caller, page.verb or page.name, asked))
            name = page.path.rpartition("/")[2]
            return Response(
                table_file(made[page.rows], page.columns),
                media_type="text/csv; charset=utf-8",
                headers={"Content-Disposition": f'attachment; filename="{name}.csv"'},
            )

        return answer


def _plan_of(given: Json) -> tuple[str, Json, Callable[[Any], Any]]:
    return "show", {"ids": [given["id"]]}, lambda found: found[0]["plan"]


def _task_of(given: Json) -> tuple[str, Json, Callable[[Any], Any]]:
    number = given.get("number", 0)

    def one(found: Json) -> Json:
        tasks: list[Json] = [task for task in found["tasks"] if task["number"] == number]
        if not tasks:
            raise NotFoundError(
                f"there is no task {number}", code="no_task", hint="the page lists those there are"
            )
        return tasks[0]

    return "tasks", {"ids": [given["id"]], "first": max(number - 1, 0), "limit": 2}, one


def given_of(request: Request, page: Page) -> Json:
    """What the address says. What another page or a browser's extension put into it is passed over."""
    pairs = [*request.query_params.multi_items(), *request.path_params.items()]
    refuse_tokens(pairs)
    return parsed([(name, value) for name, value in pairs if name in page.options], page.options)


class _ForBrowsers(Route):
    """`GET /` is a page for a browser; for clients of ClickHouse it is a ping, and with `query` a statement. So is what
    nobody answers: a program gets a problem."""

    def matches(self, scope: Any) -> tuple[Match, Any]:
        headers = scope.get("headers_by_name", {})
        statement = any(part.startswith(b"query=") for part in scope.get("query_string", b"").split(b"&"))
        if "text/html" not in headers.get("accept", "") or statement:
            return Match.NONE, {}
        return super().matches(scope)


def table_file(rows: Sequence[Json], columns: Sequence[str]) -> bytes:
    """As CSV that a spreadsheet reads as text: with a byte order mark, and nothing that it would compute."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row, column) for column in columns])
    return out.getvalue().encode("utf-8-sig", "replace")


def _cell(row: Json, column: str) -> str:
    value: Any = row
    for name in column.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if value is None:
        return ""
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return f"'{text}" if text.startswith(_RISKY_CELL) and not isinstance(value, int | float) else text


def _time(text: Any) -> datetime:
    return datetime.fromisoformat(text) if text else datetime.now(UTC)


def store_down() -> TemporaryError:
    return TemporaryError(
        "the store does not answer", code="store_slow", hint="calve doctor", service="store"
    )
