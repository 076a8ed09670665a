"""Every verb by every role, through every way in. What is expected is written out here, so a verb, a route, a
statement or a command that nobody thought about fails.
"""

import json
from collections.abc import Iterator
from typing import Any, get_args

import httpx
import pytest

from calve.app.actions import COMMANDS
from calve.app.verbs.roles import VERBS
from calve.http.aliases import Aliases
from calve.http.routes import ROUTES
from calve.sql.statement import Statement, parse
from support.served import Served

pytestmark = pytest.mark.programs

ROLES = ("", "viewer", "operator", "admin")  # "": without a token, on the host of the server
VIEWER, OPERATOR, ADMIN = ROLES[1:]
BY_ROLE = {
    VIEWER: """
        now find has_workers notes outages processes show events why standing workers history page servers breakers
        halts proofs keys feed tasks totals versions partitions parts health export_preview optimize_preview
        backup_list backup_show source_tables seen attention tables table sheet vault tiering system search
        policy_list policy_show policy_explain policy_drop hold_list view_show schedule_list schedule_show
    """,
    OPERATOR: "settings audit halt lift verify backup_verify doctor support export backup_create optimize cancel retry stop"
    " notify_test policy_run policy_pause policy_resume policy_undo hold_add untier schedule_run backup_drill schedule_pause schedule_resume",
    ADMIN: "backup_restore restore_preview backup_delete backup_prune token_list token_new token_revoke hold_release"
    " view_create view_drop policy_approve",
}
NEEDED = {verb: role for role, verbs in BY_ROLE.items() for verb in verbs.split()}
NEVER_SERVED = {"follow", "run", "pin", "worker"}
# Options that need another role than their verb.
OPTIONS = {
    ("partitions", "keep"): OPERATOR,
    ("export", "ignore_row_policies"): ADMIN,
    ("export", "discard_deletes"): ADMIN,
    ("export", "allow_shrink"): ADMIN,
    ("export", "allow_overlap"): ADMIN,
    ("export", "unsigned"): ADMIN,
    ("backup_create", "ignore_row_policies"): ADMIN,
    ("backup_prune", "dry_run"): VIEWER,
    ("policy_run", "dry_run"): VIEWER,
    ("policy_approve", "dry_run"): VIEWER,
    ("policy_undo", "force"): ADMIN,
    ("policy_drop", "approve"): ADMIN,
}


@pytest.fixture(scope="module")
def clients(served: Served) -> Iterator[dict[str, httpx.Client]]:
    with served.client() as admin:
        tokens = {role: admin.post("/v1/tokens", json={"role": role}).json()["token"] for role in ROLES[1:]}
    made = {role: served.client(tokens.get(role, "")) for role in ROLES}
    yield made
    for client in made.values():
        client.close()


def may(role: str, needed: str) -> bool:
    """On the host of the server one reads without a token."""
    return ROLES.index(role or VIEWER) >= ROLES.index(needed)


def denied(answer: httpx.Response) -> bool:
    """Refused for the role, and for nothing else."""
    if answer.status_code == 403:
        assert " needs " in answer.text, answer.text
    assert answer.status_code not in (401, 429, 500), answer.text
    return answer.status_code == 403


def test_the_verbs_are_these() -> None:
    assert {name: str(verb.role) for name, verb in VERBS.items() if name not in NEVER_SERVED} == NEEDED
    assert set(VERBS) - set(NEEDED) == NEVER_SERVED
    own = {(verb.name, option) for verb in VERBS.values() for option in (*verb.raised, *verb.lowered)}
    assert own == set(OPTIONS)


@pytest.mark.parametrize("role", ROLES)
def test_through_the_route_of_all_verbs(clients: dict[str, httpx.Client], role: str) -> None:
    """With an option that no verb has: whoever may ask is told so, and nothing is done."""
    asked = [(verb, {}, needed) for verb, needed in NEEDED.items()]
    asked += [(verb, {option: True}, needed) for (verb, option), needed in OPTIONS.items()]
    for verb, option, needed in asked:
        answer = clients[role].post(f"/v1/verbs/{verb}", json={**option, "nonsense": 1})
        assert denied(answer) == (not may(role, needed)), (verb, option)
        assert answer.json()["code"] in ("role", "unknown_option")
    for verb in NEVER_SERVED:
        answer = clients[role].post(f"/v1/verbs/{verb}", json={})
        assert (answer.status_code, answer.json()["code"]) == (400, "unknown_verb")


# What a route must be given, beside what its path names, to be asked at all; of things that do not exist.
GIVEN: dict[str, dict[str, Any]] = {
    "standing": {"ids": ["none"]},
    "search": {"q": "none"},
    "table": {"source": "none.none", "to": "lake.none.none"},
    "partitions": {"table": "none.none"},
    "parts": {"table": "none.none"},
    "policy_explain": {"table": "none.none", "partition": "none"},
    "policy_undo": {"table": "none.none", "partition": "none"},
    "policy_drop": {"table": "none.none", "partitions": ["none"]},
    "hold_add": {"table": "none.none", "reason": "none"},
    "untier": {"table": "none.none", "partition": "none"},
    "view_show": {"table": "none.none"},
    "view_create": {"table": "none.none", "to": "lake.none.none", "into": "none.all"},
    "view_drop": {"table": "none.none"},
    "health": {"table": "lake.none.none"},
    "export": {"table": "none.none", "to": "lake.none.none", "all": True},
    "export_preview": {"table": "none.none", "to": "lake.none.none", "all": True},
    "optimize": {"table": "lake.none.none"},
    "optimize_preview": {"table": "lake.none.none"},
    "backup_create": {"name": "roles", "tables": ["none.none"]},
    "cancel": {"ids": ["none"]},
    "retry": {"ids": ["none"]},
    "stop": {"ids": ["none"]},
    "verify": {"ids": ["none"]},
    "halt": {"table": "none.none"},
    "lift": {"table": "none.none"},
    "token_new": {"role": "viewer"},
    "token_revoke": {"names": ["none"]},
    "notify_test": {"name": "none"},
}


@pytest.mark.parametrize("role", ROLES)
def test_through_the_route_of_each_verb(clients: dict[str, httpx.Client], role: str) -> None:
    for route in ROUTES:
        needed = NEEDED[route.verb]
        if may(role, needed) and role != needed:
            continue  # the least that may is enough
        path = "/v1" + route.path.replace("{ids}", "none").replace("{id}", "none").replace("{name}", "none")
        given = GIVEN.get(route.verb, {})
        sent: dict[str, Any] = {"params": given} if route.method == "GET" else {"json": given}
        if route.method == "DELETE":
            sent = {}
        answer = clients[role].request(route.method, path, **sent)
        assert denied(answer) == (not may(role, needed)), (route, answer.text)


STATEMENTS = [
    ("SELECT count() FROM calve.processes", VIEWER),
    ("SHOW TABLES", VIEWER),
    ("ALTER TABLE none.none EXPORT PARTITION ALL TO TABLE lake.none.none", OPERATOR),
    ("KILL EXPORT PARTITION WHERE 0", OPERATOR),
    ("KILL EXPORT PARTITION WHERE 1 TEST", OPERATOR),
    ("SYSTEM STOP EXPORTS none.none", OPERATOR),
    ("SYSTEM START EXPORTS none.none", OPERATOR),
]


@pytest.mark.parametrize("role", ROLES)
def test_through_sql(clients: dict[str, httpx.Client], role: str) -> None:
    assert {type(parse(text)) for text, _ in STATEMENTS} == set(get_args(Statement))
    for text, needed in STATEMENTS:
        answer = clients[role].post("/", content=text)
        assert denied(answer) == (not may(role, needed)), (text, answer.text)
        if answer.status_code == 403:
            assert answer.headers["X-ClickHouse-Exception-Code"] == "497"


LINES = [
    ("create roles --tables none.none", OPERATOR),
    ("create roles --tables none.none --ignore-row-policies", ADMIN),
    ("restore none", ADMIN),
    ("verify none", OPERATOR),
    ("delete none", ADMIN),
    ("export none.none --all --to lake.none.none", OPERATOR),
    *(
        (f"export none.none --all --to lake.none.none --{option.replace('_', '-')}", ADMIN)
        for verb, option in OPTIONS
        if verb == "export"
    ),
    ("cancel none", OPERATOR),
    ("kill none", OPERATOR),
    ("retry none", OPERATOR),
]


@pytest.mark.parametrize("role", ROLES)
def test_through_actions(clients: dict[str, httpx.Client], role: str) -> None:
    assert {line.split()[0] for line, _ in LINES} == set(COMMANDS)
    for line, needed in LINES:
        answer = clients[role].post("/v1/actions", content=json.dumps({"command": line}))
        assert denied(answer) == (not may(role, needed)), (line, answer.text)
    assert clients[role].get("/v1/actions").status_code == 200


REFUSED = "refused"
ALIASES = [
    ("GET", "/backup/version", "", VIEWER),
    ("GET", "/backup/list", "", VIEWER),
    ("GET", "/backup/list/{where}", "local", VIEWER),
    ("POST", "/backup/create", "?name=roles&table=none.none", OPERATOR),
    ("POST", "/backup/create_remote", "?name=roles&table=none.none", OPERATOR),
    ("POST", "/backup/upload/{name}", "none", VIEWER),  # looks, and does nothing
    ("GET", "/backup/status", "", VIEWER),
    ("GET", "/backup/actions", "", VIEWER),
    ("POST", "/backup/actions", "", OPERATOR),
    ("GET", "/backup/{rest:path}", "tables", REFUSED),
    ("POST", "/backup/{rest:path}", "delete/remote/none", REFUSED),
    ("POST", "/backup/{rest:path}", "restore/none", REFUSED),
]


@pytest.mark.parametrize("role", ROLES)
def test_through_the_routes_of_clickhouse_backup(clients: dict[str, httpx.Client], role: str) -> None:
    routes = {
        (method, route.path)
        for route in Aliases(None, None, None, None).routes()  # type: ignore[arg-type]
        for method in route.methods or ()
        if method != "HEAD"
    }
    assert {(method, path) for method, path, _, _ in ALIASES} == routes
    for method, path, given, needed in ALIASES:
        body = '{"command": "create roles --tables none.none"}' if path == "/backup/actions" else None
        answer = clients[role].request(method, path.split("{")[0] + given, content=body)
        if needed is REFUSED:
            assert answer.status_code == 400
        else:
            assert denied(answer) == (not may(role, needed)), (method, path, answer.text)


OPEN = {"/v1/version", "/v1/hello", "/v1/openapi.json", "/healthz", "/ping", "/replicas_status"}


def test_from_elsewhere_nothing_is_answered_without_a_token(tmp_path_factory: pytest.TempPathFactory) -> None:
    made = Served(tmp_path_factory.mktemp("elsewhere"), ["--behind-proxy"])
    try:
        with made.client("") as client:
            document = client.get("/v1/openapi.json").json()
            asked = {
                (method.upper(), path) for path, methods in document["paths"].items() for method in methods
            }
            asked |= {(method, path.split("{")[0]) for method, path, _, _ in ALIASES}
            asked |= {
                ("GET", "/metrics"),
                ("GET", "/backup/nonsense"),
                ("GET", "/v1/events/stream"),
                ("GET", "/v1/tables/exports.jsonl"),
                ("GET", "/v1/actions"),
                ("POST", "/v1/actions"),
                ("POST", "/"),
                ("GET", "/?query=SELECT%201"),
            }
            for method, path in sorted(asked):
                verb = document["paths"].get(path, {}).get(method.lower(), {}).get("operationId", "")
                given = GIVEN.get(verb, {})
                target = (
                    path.replace("{ids}", "none")
                    .replace("{id}", "none")
                    .replace("{name}", "none")
                    .replace("{verb}", "now")
                )
                sent: dict[str, Any] = (
                    {"json": given} if method == "POST" else {"params": given} if given else {}
                )
                answer = client.request(method, target, **sent)
                assert answer.status_code == 401 or path in OPEN, (method, path, answer.text)
    finally:
        made.close()
