"""`/v1/events/stream`: every event once and in order, whatever happens to the connection, or the peer is told."""

import json
import random
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx
import pytest

from calve.app.calve import Calve
from calve.app.config import load_config
from calve.model.process import NewProcess, new_process_id
from support.network_proxy import Fault, NetworkProxy
from support.served import Served

pytestmark = pytest.mark.programs


@pytest.fixture(scope="module")
def facade(served: Served) -> Iterator[Calve]:
    with Calve(load_config(served.folder / "calve.toml", environ={})) as made:
        yield made


def submit(facade: Calve, count: int = 1, *, kind: str = "export") -> list[str]:
    made = [
        NewProcess(id=new_process_id(), kind=kind, source="main:db.t", destination="lake.ns.t", lane="x", needs=(), request="{}")
        for _ in range(count)
    ]  # fmt: skip
    return [facade.registry.submit([one])[0].id for one in made]


@contextmanager
def streamed(client: httpx.Client, cursor: str = "", **query: str) -> Iterator[Iterator[dict[str, str]]]:
    """The messages of one stream, as a browser's EventSource reads them; ends with the connection."""
    headers = {"Last-Event-ID": cursor} if cursor else {}
    with client.stream("GET", "/v1/events/stream", params=query, headers=headers) as response:
        assert response.status_code == 200, response.read()
        yield messages(response)


def messages(response: httpx.Response) -> Iterator[dict[str, str]]:
    """Each message that arrived whole; `id` is the last one seen, as an EventSource keeps it."""
    kept = ""
    found: dict[str, str] = {}
    try:
        for line in whole_lines(response):
            name, _, value = line.partition(": ")
            if line:
                found[name] = value
                continue
            kept = found.get("id", kept)
            yield {"event": "", **found, "id": kept}
            found = {}
    except httpx.HTTPError:
        return


def whole_lines(response: httpx.Response) -> Iterator[str]:
    rest = ""
    for text in response.iter_text():
        *lines, rest = (rest + text).split("\n")
        yield from lines


def processes_of(found: list[dict[str, str]]) -> list[str]:
    return [json.loads(one["data"])["event"]["process"] for one in found if one["event"] == "process"]


def take(source: Iterator[dict[str, str]], name: str, count: int = 1) -> list[dict[str, str]]:
    found = []
    for one in source:
        if one["event"] == name:
            found.append(one)
        if len(found) == count:
            return found
    raise AssertionError(f"the stream ended after {found}")


def test_an_event_comes_with_its_process_and_a_cursor(reader: httpx.Client, facade: Calve) -> None:
    with streamed(reader) as stream:
        first = next(stream)
        assert first["id"].count(".") == 2
        [made] = submit(facade)
        [message] = take(stream, "process")
    said = json.loads(message["data"])
    assert said["event"]["name"] == "submitted"
    assert (said["process"]["id"], said["process"]["state"]) == (made, "PENDING")
    page = reader.get("/v1/events", params={"after": first["id"]}).json()
    assert page["events"] == [said["event"] | {"cursor": message["id"]}]


def test_its_headers_keep_proxies_from_holding_it_back(reader: httpx.Client) -> None:
    with reader.stream("GET", "/v1/events/stream") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["x-accel-buffering"] == "no"
        assert response.headers["cache-control"] == "no-store"
    assert reader.head("/v1/events/stream").status_code == 405


def test_a_stream_that_is_cut_anywhere_goes_on_without_a_gap(served: Served, facade: Calve) -> None:
    with served.client("") as direct, streamed(direct) as stream:
        cursor = next(stream)["id"]
    ids = submit(facade, 300)
    chosen = random.Random(4)
    with NetworkProxy(httpx.URL(served.url).port or 0) as proxy:
        seen: list[str] = []
        for at in range(200):
            kind = "cut_answer_after_bytes" if at % 2 else "reset_answer_after_bytes"
            proxy.set(Fault(**{kind: chosen.randint(200, 40_000)}))
            if at % 5 == 0:
                ids += submit(facade)  # some come while it is away
            with (
                httpx.Client(base_url=proxy.url, timeout=60, trust_env=False) as client,
                streamed(client, cursor) as stream,
            ):
                for message in stream:
                    cursor = message["id"] or cursor
                    seen += processes_of([message])
                    if len(seen) >= len(ids):
                        break
            if len(seen) >= len(ids):
                break
    assert seen == ids
    assert proxy.counts.cut > 10


@pytest.mark.parametrize(
    ("cursor", "reason"),
    [("0123.5.abcde", "foreign"), ("nonsense", "unreadable"), ("0123.1", "unreadable")],
)
def test_a_cursor_that_cannot_be_used_is_said(
    reader: httpx.Client, facade: Calve, cursor: str, reason: str
) -> None:
    with streamed(reader, after=cursor) as stream:
        [told] = take(stream, "reset")
        said = json.loads(told["data"])
        assert (said["reason"], said["cursor"]) == (reason, told["id"])
        made = submit(facade)
        assert processes_of(take(stream, "process")) == made


def test_who_wants_some_processes_gets_those(reader: httpx.Client, facade: Calve) -> None:
    [wanted] = submit(facade)
    with streamed(reader, process=wanted) as one, streamed(reader, kind="backup") as backups:
        next(one), next(backups)
        submit(facade)
        facade.cancel([wanted])
        [backup] = submit(facade, kind="backup")
        [message] = take(one, "process")
        assert processes_of([message]) == [wanted]
        assert json.loads(message["data"])["event"]["name"] == "cancel_requested"
        assert processes_of(take(backups, "process")) == [backup]


def test_a_service_that_goes_down_and_comes_back_is_told_at_once(reader: httpx.Client, facade: Calve) -> None:
    store = facade.registry
    with streamed(reader) as found:
        ids = submit(facade)
        assert processes_of(take(found, "process")) == ids, "it is joined, and has looked"
        store.trip("catalog:gone", "no answer", 60)
        try:
            assert json.loads(take(found, "down")[0]["data"]) == {"services": ["catalog:gone"]}
        finally:
            store.close_breaker("catalog:gone")
        assert json.loads(take(found, "down")[0]["data"]) == {"services": []}


def test_what_cannot_be_streamed_is_a_problem(reader: httpx.Client) -> None:
    wrong = {"kind": "nonsense"}, {"limit": "5"}, {"process": "nosuchprocess"}
    answers = [reader.get("/v1/events/stream", params=one) for one in wrong]
    assert [(one.status_code, one.json()["code"]) for one in answers] == [
        (400, "bad_option"),
        (400, "bad_option"),
        (404, "process_not_found"),
    ]


def test_a_peer_has_so_many_streams_and_no_more(reader: httpx.Client, facade: Calve) -> None:
    with ExitStack() as open_streams:
        streams = [open_streams.enter_context(streamed(reader)) for _ in range(20)]
        for one in streams:
            next(one)
        refused = reader.get("/v1/events/stream")
        assert (refused.status_code, refused.json()["code"]) == (503, "too_many_streams")
        made = submit(facade)
        assert all(processes_of(take(one, "process")) == made for one in streams)


def test_a_server_that_stops_says_bye_and_waits_for_no_service(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    silent = socket.create_server(("127.0.0.1", 0))
    source = f'[source.main]\nurl = "http://127.0.0.1:{silent.getsockname()[1]}"\n'
    made = Served(
        tmp_path_factory.mktemp("bye"),
        settings=f"{source}[limits]\ncall_seconds = 3600\nanswer_seconds = 0.1\n",
    )
    try:
        with made.client("") as client, streamed(client) as stream:
            next(stream)
            assert client.get("/v1/partitions", params={"table": "db.t"}).status_code == 202
            made.program.send(signal.SIGTERM)
            assert json.loads(take(stream, "bye")[0]["data"]) == {"reason": "shutdown"}
            assert list(stream) == []
        assert made.program.wait(60) == 0
    finally:
        made.close()
        silent.close()
