"""docs/reference/http.md: every route that answers a verb, made from the table that the server makes them from."""

from typing import Any, cast

from calve.app.desk import Desk
from calve.app.verbs.roles import VERBS, Reach
from calve.http.routes import ROUTES

HEAD = """\
# Routes

Below `/v1`, each answering one verb with the JSON that the command line prints with `--json`. *Waits* marks those that
ask a source, a catalog or a storage: they may answer `202`, and the same request is then repeated. Options of `GET` are in
the query, of the others in a JSON body; `/v1/openapi.json` has their types. How to use them: [HTTP API](../http-api.md).

| | | role | options | |
| --- | --- | --- | --- | --- |
"""


def page() -> str:
    desk = Desk(cast(Any, None))  # its options need no façade
    return HEAD + "".join(_row(desk, route.method, route.path, route.verb, route.about) for route in ROUTES)


def _row(desk: Desk, method: str, path: str, name: str, about: str) -> str:
    verb = VERBS[name]
    options = ", ".join(f"`{one}`" for one in desk.options(name) if f"{{{one}}}" not in path)
    waits = " *Waits.*" if verb.reach is Reach.OUTSIDE else ""
    return f"| `{method}` | `{path}` | {verb.role.value} | {options} | {about}.{waits} |\n"
