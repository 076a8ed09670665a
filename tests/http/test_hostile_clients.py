"""Two servers on one PostgreSQL, clients that mean harm, and services that are down: every answer is early and says
what is wrong, and whoever asks properly is answered meanwhile.
"""

import json
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import httpx
import psycopg
import pytest

from calve.app.upkeep import upkeep
from calve.clickhouse.embedded.source import EmbeddedSource
from calve.model.limits import Limits
from calve.store.store import open_store
from support.postgres import Postgres
from support.served import Served

pytestmark = pytest.mark.programs

SETTINGS = """
[store]
url = "{store}"
[source.main]
url = "chdb://{folder}/clickhouse"
[source.hole]
url = "http://127.0.0.1:{hole}"
[catalog.lake]
type = "sql"
uri = "sqlite:///{folder}/catalog.db"
warehouse = "file://{folder}/warehouse"
[catalog.down]
type = "rest"
uri = "http://127.0.0.1:9"
[limits]
requests_per_second = 2000
client_seconds = 2
call_seconds = 3
"""


@pytest.fixture(scope="module")
def store_url(postgres_server: Postgres) -> str:
    return postgres_server.new_database()


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, store_url: str) -> Iterator[str]:
    """A source that takes connections and never answers is among them."""
    folder = tmp_path_factory.mktemp("hostile")
    with EmbeddedSource("main", folder / "clickhouse", create=True).visit() as session:
        session.execute("CREATE TABLE t (id UInt64, m UInt8) ENGINE = MergeTree PARTITION BY m ORDER BY id")
        session.execute("INSERT INTO t SELECT number, number % 4 FROM numbers(400)")
    with socket.create_server(("127.0.0.1", 0), backlog=64) as hole:
        yield SETTINGS.format(store=store_url, folder=folder, hole=hole.getsockname()[1])


@pytest.fixture(scope="module")
def one(settings: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("one"), settings=settings)
    yield made
    made.close()


@pytest.fixture
def admin(one: Served) -> Iterator[httpx.Client]:
    with one.client() as client:
        yield client


@contextmanager
def connected(served: Served, first: bytes) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as peer:
        peer.sendall(first)
        yield peer


def ends(peer: socket.socket) -> bytes:
    """All that comes until the server closes."""
    found = b""
    try:
        while piece := peer.recv(1 << 16):
            found += piece
    except ConnectionResetError:
        pass
    return found


def memory_mb(served: Served) -> float:
    status = Path(f"/proc/{served.program.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def test_two_thousand_silent_sockets_are_cut_off_and_cost_little(one: Served, admin: httpx.Client) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    before = memory_mb(one)
    with ExitStack() as stack:
        peers = []
        for _ in range(2000):
            peers.append(stack.enter_context(socket.create_connection(("127.0.0.1", one.port), timeout=30)))
            peers[-1].sendall(b"GET /v1/processes HTTP/1.1\r\nX-Slow: ")
        for peer in peers:  # beyond the bound at once, the others by their deadline
            assert ends(peer) == b""
        assert admin.get("/v1/processes").status_code == 200
    assert memory_mb(one) - before < 100
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_body_that_drips_is_answered_and_closed(one: Served) -> None:
    head = b"POST /v1/exports HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
    with connected(one, head) as peer:
        answer = ends(peer)
    assert answer.startswith(b"HTTP/1.1 408 ") and b'"slow_body"' in answer


def test_who_asks_for_much_and_does_not_read_is_left(one: Served, admin: httpx.Client) -> None:
    size = len(admin.get("/v1/openapi.json").content)
    asked = b"GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    peer = socket.socket()
    with peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.settimeout(30)
        peer.connect(("127.0.0.1", one.port))
        peer.sendall(asked * (8 * 1024 * 1024 // size))  # more than any buffer of the system holds
        port = peer.getsockname()[1]
        for _ in range(600):
            if not connections(one.port, port):
                break
            time.sleep(0.05)
        assert not connections(one.port, port)


def connections(server: int, client: int) -> list[str]:
    """The server's end of a connection, if it is open."""
    ends = f"0100007F:{server:04X} 0100007F:{client:04X} 01"
    return [line for line in Path("/proc/net/tcp").read_text().splitlines() if ends in line]


def test_a_request_that_was_sent_in_advance_has_no_deadline_of_a_head(one: Served) -> None:
    """It is begun as soon as the first one is answered."""
    head = b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connected(one, b"GET /healthz" + head + b"GET /v1/events/stream" + head) as peer:
        peer.settimeout(4)  # twice `client_seconds`
        with pytest.raises(TimeoutError):  # it stays open
            while peer.recv(1 << 16):
                pass


@pytest.mark.parametrize("length", [f"Content-Length: {1 << 30}", "Transfer-Encoding: chunked"])
def test_a_body_of_a_gigabyte_is_refused_early(one: Served, length: str) -> None:
    head = f"POST /v1/exports HTTP/1.1\r\nHost: localhost\r\n{length}\r\n\r\n".encode()
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    sent = 0
    with connected(one, head) as peer:
        peer.settimeout(5)
        try:
            while sent < 1 << 30:
                sent += peer.send(chunk)
        except OSError:  # closed on us
            pass
        answer = ends(peer)
    assert sent < 64 << 20
    assert answer == b"" or answer.startswith(b"HTTP/1.1 413 ")  # a reset may take the answer with it


def test_encodings_that_nobody_reads_are_refused(admin: httpx.Client) -> None:
    for headers in (
        {"Content-Encoding": "gzip"}, {"Content-Encoding": "x-unknown"}, {"Content-Type": "application/json; charset=utf-7"},
    ):  # fmt: skip
        answer = admin.post("/v1/exports", content=b"{}", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (415, "encoding")
    answer = admin.post("/v1/exports", content=b"\xff\xfe{}", headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    answer = admin.post("/v1/exports", content=b"[" * 100_000, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400


def test_a_store_that_stands_still_is_said_within_a_second_or_so(
    postgres_server: Postgres, one: Served, admin: httpx.Client
) -> None:
    assert admin.get("/v1/processes").status_code == 200
    programs = [postgres_server.pid, *children(postgres_server.pid)]
    for pid in programs:
        with suppress(ProcessLookupError):  # a connection that has just ended
            os.kill(pid, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(40) as threads:
            answers = list(threads.map(lambda _: admin.get("/v1/processes"), range(40)))
        for answer in answers:
            said = answer.json()
            assert (answer.status_code, said["code"], said["service"]) == (503, "store_slow", "store")
            left = datetime.fromisoformat(said["until"]) - datetime.now(UTC)
            assert timedelta(seconds=-10) < left <= timedelta(seconds=int(answer.headers["retry-after"]))
        assert admin.get("/healthz").status_code == 200
        assert "calve_store_up 0.0" in admin.get("/metrics").text
    finally:
        for pid in programs:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    assert once(lambda: admin.get("/v1/processes").status_code == 200)


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def once(holds: object, seconds: float = 30.0) -> bool:
    assert callable(holds)
    until = time.monotonic() + seconds
    while not (found := bool(holds())) and time.monotonic() < until:
        threading.Event().wait(0.05)
    return found


def test_a_source_that_swallows_everything_holds_up_nobody_else(admin: httpx.Client) -> None:
    asked = [f"/v1/partitions?table=hole:db.t{number}" for number in range(6)]
    with ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(admin.get, asked))
    assert {answer.status_code for answer in answers} <= {202, 503}
    assert any(answer.status_code == 202 for answer in answers)
    busy = [answer.json() for answer in answers if answer.status_code == 503]
    assert busy and all("source:hole" in one["message"] + one["service"] for one in busy)
    assert admin.get("/v1/partitions?table=main:default.t").status_code in (200, 202)
    assert admin.get("/v1/processes").status_code == 200
    assert once(lambda: admin.get(asked[0]).status_code == 503)
    said = admin.get(asked[0]).json()
    assert said["service"] == "source:hole" and said["until"]


def test_statements_and_actions_for_a_source_that_swallows_everything_hold_up_nobody_else(
    one: Served, admin: httpx.Client
) -> None:
    def alter(number: int) -> httpx.Response:
        with one.client() as client:
            text = f"ALTER TABLE hole:db.t{number} EXPORT PARTITION ALL TO TABLE lake.ns.hole{number}"
            return client.post("/", content=text)

    lines = [f"export hole:db.t{number} --all --to lake.ns.hole" for number in range(20)]
    body = "".join(json.dumps({"command": line}) + "\n" for line in [*lines, "cancel nosuchprocess"])
    assert admin.post("/v1/actions", content=body).status_code == 200
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(alter, number) for number in range(8)]
        assert admin.post("/", content="SELECT count() FROM calve.processes").status_code == 200
        queued = "ALTER TABLE default.t EXPORT PARTITION ID '3' TO TABLE lake.ns.beside"
        assert admin.post("/", content=queued).status_code == 200
        while True:
            rows = [json.loads(line) for line in admin.get("/v1/actions").text.splitlines()]
            if any(row["command"] == "cancel nosuchprocess" and row["status"] == "error" for row in rows):
                break
        assert any(row["status"] == "in progress" for row in rows), "it came last, and waited for the others"
        answers = [one.result() for one in waiting]
    assert {answer.status_code for answer in answers} == {503}
    assert {answer.headers["X-ClickHouse-Exception-Code"] for answer in answers} <= {"202", "210"}


def test_a_catalog_that_is_down_is_named(admin: httpx.Client) -> None:
    assert once(lambda: admin.get("/v1/health?table=down.db.t").status_code == 503)
    said = admin.get("/v1/health?table=down.db.t").json()
    assert (said["status"], said["service"]) == (503, "catalog:down") and said["until"]


def test_one_key_on_two_servers_of_which_one_is_killed_is_one_submission(
    one: Served, settings: str, tmp_path: Path
) -> None:
    other, key = Served(tmp_path / "other", settings=settings), uuid4().hex
    body = {"table": "main:default.t", "to": f"lake.killed.t{key[:8]}", "all": True}

    def submit(served: Served) -> httpx.Response | None:
        with served.client() as client:
            try:
                return client.post("/v1/exports", json=body, headers={"Idempotency-Key": key})
            except httpx.TransportError:
                return None

    with ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(submit, server) for server in (other, one)]
        other.program.kill()
        assert all(one.exception() is None for one in asked)
    assert once(lambda: (answer := submit(one)) is not None and answer.status_code == 200)
    first, again = submit(one), submit(one)
    assert first is not None and again is not None and first.json() == again.json()
    with one.client() as client:
        page = client.get("/v1/processes", params={"to": body["to"]}).json()
    assert {row["id"] for row in page["processes"]} == {row["id"] for row in first.json()["processes"]}
    assert len(page["processes"]) == 4
    other_body = body | {"all": False, "partitions": ["0"]}
    with one.client() as client:
        answer = client.post("/v1/exports", json=other_body, headers={"Idempotency-Key": key})
    assert answer.json()["code"] == "key_reused"


def test_servers_without_workers_delete_what_is_old_and_several_do_it_without_harm(
    one: Served, store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    def left() -> int:
        with psycopg.connect(store_url) as connection:
            (count,) = connection.execute("SELECT count(*) FROM audit WHERE who = 'old'").fetchone() or (0,)
            return int(count)

    with psycopg.connect(store_url) as connection:
        connection.execute(
            "INSERT INTO audit (at, who, verb, subject, outcome, processes, detail)"
            " SELECT 1, 'old', 'export', '', 'done', '[]', '' FROM generate_series(1, 1800)"
        )
    with ExitStack() as stack:
        for _ in range(3):
            store = stack.enter_context(closing(open_store(store_url)))
            stack.enter_context(upkeep(store, Limits()))
        assert once(lambda: left() == 0)
    assert not caplog.records
    with psycopg.connect(store_url) as connection:  # a server that starts looks at once
        connection.execute(
            "INSERT INTO audit (at, who, verb, subject, outcome, processes, detail)"
            " VALUES (1, 'old', 'export', '', 'done', '[]', '')"
        )
    again = Served(one.folder.parent / "upkeep", settings=(one.folder / "calve.toml").read_text())
    assert once(lambda: left() == 0)
    again.close()
    lines = [json.loads(line) for line in again.log.read_text().splitlines() if line.startswith("{")]
    assert not [line for line in lines if line["level"] not in ("info", "debug")]
