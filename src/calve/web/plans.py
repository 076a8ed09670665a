"""Pages of plans: what an export or a restore would do, and the button that does exactly that.

A plan asks outside, so its page comes when that was answered, and says so until then. What is started is what was shown,
or nothing: the form carries the hash of the plan. If it changed meanwhile, both plans are shown, and it is asked again.
"""

import glob
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from calve.app.view import Json
from calve.http.errands import Pending
from calve.model.access import Caller
from calve.model.errors import UsageError
from calve.web.documents import Documents
from calve.web.frame import Frame
from calve.web.links import target
from calve.web.pages import NEW, PLAN, RESTORE, Page, Pages, given_of, store_down
from calve.web.words import count, size

_LISTED_TABLES = 200
_PAGES_OF_A_RANGE = 25  # of a table, of 200 partitions each: as many as a form may send
_KEPT = 50
_KEPT_BYTES = 1 << 20  # of one
_DIFFERENCES = 200
_LISTED = re.compile(r"[,\s]+")
Given = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Of two plans; "" for what one of them does not have."""

    what: str
    before: str
    now: str


class ShownPlans:
    def __init__(self, frame: Frame, pages: Pages, documents: Documents) -> None:
        self._frame = frame
        self._pages = pages
        self._documents = documents
        self._service = frame.shared.service
        # Plans that somebody saw, by their page and hash: who may ask for one kind may not see the other.
        self._shown: OrderedDict[tuple[str, str], bytes] = OrderedDict()

    def routes(self) -> list[BaseRoute]:
        handler = self._frame.handler
        return [
            Route(PLAN.path, handler(self._export), methods=["GET"]),
            Route(NEW.path, handler(self._new), methods=["GET"]),
            Route(RESTORE.path, handler(self._restore), methods=["GET"]),
            Route(f"{NEW.path}.json", self._json(NEW, _of_source), methods=["GET"]),
            Route(f"{PLAN.path}.json", self._json(PLAN, self._of_export), methods=["GET"]),
            Route(f"{RESTORE.path}.json", self._json(RESTORE, self._of_restore), methods=["GET"]),
        ]

    async def _export(self, request: Request) -> Response:
        caller = await self._frame.visitor(request)
        if isinstance(caller, Response):
            return caller
        given = given_of(request, PLAN)
        return await self._plan(request, PLAN, caller, given, await self._of_export(given))

    async def _of_export(self, given: Json) -> Json:
        """The arguments of the verb. A range is of the partitions as the table's page lists them."""
        names = {"source": "table", "partition": "partitions"}
        asked = {names.get(name, name): value for name, value in given.items() if value and name != "was"}
        ends = [asked.pop(name) for name in ("first", "last") if name in asked]
        if ends:
            between = await self._between(given, ends)
            asked["partitions"] = list(dict.fromkeys([*asked.get("partitions", ()), *between]))
        if not any(asked.get(name) for name in ("partitions", "older_than", "all")):
            raise UsageError(
                "nothing is selected",
                code="missing_option",
                hint="go back, and select partitions or a range of them",
            )
        return asked

    async def _between(self, given: Json, ends: list[str]) -> list[str]:
        found: list[str] = []
        pair = {"source": given.get("source", ""), "to": given.get("to", "")}
        for number in range(1, _PAGES_OF_A_RANGE + 1):
            document = json.loads((await self._documents.get("table", {**pair, "page": number})).data)
            found += [row["id"] for row in document["partitions"] if not row["dropped"]]
            if number >= document["pages"] or set(ends) <= set(found):
                break
        missing = [one for one in ends if one not in found]
        if missing:
            raise UsageError(
                f"partition {missing[0][:80]!r} is not among those that were seen",
                code="no_partition",
                hint="choose from the list on the table's page",
            )
        first, last = sorted(found.index(one) for one in ends[:1] + ends[-1:])
        return found[first : last + 1]

    async def _new(self, request: Request) -> Response:
        """Tables that were never exported: of a source that is chosen first, if there are several."""
        caller = await self._frame.visitor(request)
        if isinstance(caller, Response):
            return caller
        if caller is None:
            raise store_down()
        given = given_of(request, NEW)
        if not given.get("source"):
            document = json.loads((await self._documents.get("tables", {})).data)
            if len(document["sources"]) == 1:
                return self._frame.go(request, target(NEW.path, {"source": document["sources"][0]}))
            return await self._pages.shown(request, NEW, caller, given, document, listed=None)
        # An answer is kept for a while: with another key the source is asked again.
        made = await self._service.errand(caller, NEW.verb, await _of_source(given), given.get("look", ""))
        if isinstance(made, Pending):
            return await self._pending(request, caller, made, [given["source"]], "New export")
        document = json.loads(made)
        wanted = given.get("q", "").lower()
        fitting = [one for one in document["tables"] if wanted in one["table"].lower()]
        return await self._pages.shown(
            request, NEW, caller, given, document, listed=fitting[:_LISTED_TABLES], fitting=len(fitting)
        )

    async def _pending(
        self, request: Request, caller: Caller, made: Pending, subject: list[str], title: str
    ) -> Response:
        return await self._frame.page(
            request, "asked.html", caller=caller, outcome="running", subject=subject,
            seconds=made.seconds, refresh=1, answer=None, title=title,
        )  # fmt: skip

    async def _restore(self, request: Request) -> Response:
        """The steps of a restore: which backup, what of it and where to, and the plan."""
        caller = await self._frame.visitor(request)
        if isinstance(caller, Response):
            return caller
        given = given_of(request, RESTORE)
        if given.get("plan"):
            return await self._plan(request, RESTORE, caller, given, await self._of_restore(given))
        if caller is None:
            raise store_down()
        asked = {"name": given["name"]} if given.get("name") else {}
        document = json.loads((await self._documents.get("vault", asked)).data)
        self._frame.shared.lookout.want(document["subjects"])
        contents = document["backups"][0].get("contents") if asked else None
        if not set(given) - {"name"}:
            given["into"] = _another_name(contents or {})
        partitions = sorted({one for ones in (contents or {}).values() for one in ones})
        return await self._pages.shown(
            request, RESTORE, caller, given, document, contents=contents or {}, partitions=partitions,
            allowed=self._frame.may(caller, "backup_restore", asked),
        )  # fmt: skip

    async def _of_restore(self, given: Json) -> Json:
        asked = {name: value for name, value in given.items() if value and name not in ("plan", "was")}
        if not asked.get("name"):
            raise UsageError("no backup is chosen", code="missing_option", hint="go back, and choose one")
        if "tables" in asked:
            vault = json.loads((await self._documents.get("vault", {"name": asked["name"]})).data)
            known = vault["backups"][0].get("contents") or {}
            if set(known) == set(asked["tables"]):
                del asked["tables"]  # all of them, and what belongs to them: views, dictionaries, functions
            else:
                asked["tables"] = [glob.escape(one) if one in known else one for one in asked["tables"]]
        if "partitions" in asked:
            asked["partitions"] = [one for text in asked["partitions"] for one in _LISTED.split(text) if one]
        return asked

    async def _plan(
        self, request: Request, page: Page, caller: Caller | None, given: Json, asked: Json
    ) -> Response:
        if caller is None:
            raise store_down()
        was = given.get("was", "")
        # With another key it is another errand: an answer from before the change is not taken for the new plan.
        made = await self._service.errand(caller, page.verb, asked, was)
        if isinstance(made, Pending):
            subject = [str(asked[one]) for one in ("table", "to", "name") if asked.get(one)]
            return await self._pending(request, caller, made, subject, "Planning")
        document = json.loads(made)
        agreed = document.get("plan_hash") or ""
        before = self._shown.get((page.name, was))
        self._keep((page.name, agreed), made)
        return await self._pages.shown(
            request, page, caller, given, document,
            template="restore_plan.html" if page is RESTORE else "",
            arguments={**asked, **({"plan_hash": agreed} if agreed else {})},
            free=asked,
            was=was if was != agreed else "",
            differences=differences(json.loads(before), document) if before else None,
        )  # fmt: skip

    def _keep(self, key: tuple[str, str], made: bytes) -> None:
        if key[1] and len(made) <= _KEPT_BYTES:
            self._shown.pop(key, None)
            self._shown[key] = made
            while len(self._shown) > _KEPT:
                self._shown.popitem(last=False)

    def _json(self, page: Page, asked: Callable[[Json], Any]) -> Callable[[Request], Any]:
        """As the API answers the verb: 202 while it is under way."""

        async def answer(request: Request) -> Response:
            await self._frame.known(request)
            return await self._service.answer(request, page.verb, await asked(given_of(request, page)))

        return answer


async def _of_source(given: Json) -> Json:
    return {"source": given["source"]} if given.get("source") else {}


def again(name: str, arguments: Given, back: str) -> str:
    """The page of the plan that an action was to carry out, below the root; "" if no page shows it."""
    page = {"export": PLAN, "backup_restore": RESTORE}.get(name)
    agreed = arguments.get("plan_hash")
    if page is None or not agreed:
        return ""
    path, _, query = back.partition("?")
    if path == page.path.lstrip("/"):  # as it was asked for: a range is shorter than what it means
        given = [(one, value) for one, value in parse_qsl(query) if one != "was"]
        return f"{path}?{urlencode([*given, ('was', agreed)], quote_via=quote)}"
    names = {"table": "source", "partitions": "partition"} if page is PLAN else {}
    asked = {names.get(one, one): value for one, value in arguments.items() if one != "plan_hash"}
    if not set(asked) <= set(page.options):
        return ""
    return target(page.path, {**asked, "plan": page is RESTORE, "was": agreed})


def differences(before: Json, now: Json) -> list[Difference]:
    """What is not the same in two plans of one kind, in words: totals first."""
    found = [
        Difference(what=what, before=was, now=is_now)
        for (what, was), (_, is_now) in zip(_totals(before), _totals(now), strict=True)
        if was != is_now
    ]
    earlier, later = dict(_items(before)), dict(_items(now))
    for what in [*later, *(one for one in earlier if one not in later)]:
        was, is_now = earlier.get(what, ""), later.get(what, "")
        if was != is_now:
            found.append(Difference(what=what, before=was, now=is_now))
    return found[:_DIFFERENCES]


def _totals(plan: Json) -> Iterator[tuple[str, str]]:
    yield "rows", count(plan["rows"])
    yield "size", size(plan["bytes"])
    if "creates_table" in plan:
        yield "destination", "is created" if plan["creates_table"] else "exists"
        yield "partitions", count(len(plan["partitions"]))
    else:
        yield "tables", count(len(plan["tables"]))


def _items(plan: Json) -> Iterator[tuple[str, str]]:
    if "creates_table" in plan:
        for one in plan["partitions"]:
            yield f"partition {one['value']}", f"{count(one['rows'])} rows in {count(one['parts'])} parts"
        for one in plan["columns"]:
            yield f"column {one['name']}", f"{one['source_type']} as {one['type']}"
        return
    for one in plan["tables"]:
        state = "exists" if one["exists"] else "is created"
        yield f"table {one['target']}", f"{state}; {count(one['rows'])} rows in {count(one['parts'])} parts"
        yield f"statement of {one['target']}", one["create"]


def _another_name(contents: Given) -> str:
    """Under another name what is there stays as it is: so that is the first choice."""
    databases = {name.partition(".")[0] for name in contents}
    return f"{databases.pop()}_restored" if len(databases) == 1 else "restored" if databases else ""
