"""Deliveries to a real receiver that fails, drips, redirects, dies: bounded, repeated with the same id, signed."""

import hashlib
import hmac
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from calve.model.access import Notice
from calve.model.states import ProcessState
from calve.notify.delivery import SEND_SECONDS, Delivered, Delivery, send
from calve.notify.notifier import DAMAGED, LEASE_SECONDS, MOST_ATTEMPTS, Notifier
from calve.notify.targets import Ping, Webhook
from calve.testing.clock import FakeClock
from calve.testing.contracts.contract import claim_one, claimed, move, new
from calve.testing.memory_store import MemoryStore
from support.receiver import Bad, Receiver, receiver

SECRET = "canary-of-the-webhook"
PAGE = Path(__file__).parents[2] / "docs" / "notices.md"


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> MemoryStore:
    return MemoryStore(clock)


def quickly(call: Delivery, _seconds: float) -> Delivered:
    return send(call, 1.5)  # a good answer comes before, also on a busy machine


def notifier(store: MemoryStore, hook: Receiver, **given: Any) -> Notifier:
    target = Webhook(**{"name": "ops", "url": hook.url(f"/{SECRET}"), "secret": SECRET} | given)
    made = Notifier(store, target, send=quickly)
    made.tick()
    return made


def fail(store: MemoryStore, count: int = 1) -> None:
    for _ in range(count):
        move(store, claimed(store), ProcessState.FAILED)


def settle(made: Notifier, clock: FakeClock, seconds: float = 1800.0) -> None:
    """Until nothing is due, and once more after a while."""
    for _ in range(2):
        while made.tick():
            pass
        clock.advance(seconds)


@pytest.mark.parametrize("bad", [*Bad, 500, 301, 302, 307, 404, 429])
def test_whatever_a_receiver_does_the_notice_comes_again_with_its_id(
    store: MemoryStore, clock: FakeClock, hook: Receiver, bad: int | Bad
) -> None:
    made = notifier(store, hook)
    fail(store)
    hook.script = [bad, bad]
    begun = time.monotonic()
    for _ in range(4):
        settle(made, clock)
    assert time.monotonic() - begun < 60  # none is waited for
    assert len(hook.got) == 3
    assert len({got.id for got in hook.got}) == 1
    assert {got.path for got in hook.got} == {f"/{SECRET}"}  # no redirect was followed
    assert store.totals().notices_waiting == 0


def test_one_that_is_gone_is_given_up_at_once_and_doctor_s_list_has_it(
    store: MemoryStore, clock: FakeClock, hook: Receiver
) -> None:
    made = notifier(store, hook)
    fail(store)
    hook.script = [410]
    settle(made, clock)
    assert len(hook.got) == 1
    (lost,) = store.given_up(10)
    assert (lost.target, lost.error) == ("notify.ops", "127.0.0.1 answered 410")


def test_a_receiver_that_stays_away_is_given_up_within_its_budget(
    store: MemoryStore, clock: FakeClock, hook: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    made = notifier(store, hook)
    fail(store)
    hook.then = 500
    for _ in range(2 * MOST_ATTEMPTS):
        settle(made, clock)
    assert len(hook.got) == MOST_ATTEMPTS
    assert len({got.id for got in hook.got}) == 1
    assert [lost.error for lost in store.given_up(10)] == ["127.0.0.1 answered 500"]
    assert "given up" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize(("bad", "at_once"), [(400, 3), (500, 1), (429, 1)])
def test_one_notice_that_is_not_taken_holds_none_of_the_others_up(
    store: MemoryStore, clock: FakeClock, hook: Receiver, bad: int, at_once: int
) -> None:
    made = notifier(store, hook)
    fail(store, 3)
    hook.script = [bad]
    made.tick()
    assert len(hook.got) == at_once
    clock.advance(LEASE_SECONDS + 1)
    while made.tick():
        pass
    first, second, third, again = [got.id for got in hook.got]
    assert first == again
    assert len({first, second, third}) == 3


def test_a_start_that_is_not_taken_is_not_sent_after_the_end(
    store: MemoryStore, clock: FakeClock, hook: Receiver
) -> None:
    made = Notifier(store, Ping(name="n", start=hook.url("/start"), fail=hook.url("/fail")), send=quickly)
    made.tick()
    process = claimed(store)
    hook.script = [500]
    settle(made, clock)
    move(store, claim_one(store, process.id), ProcessState.FAILED)
    settle(made, clock)
    assert [got.path for got in hook.got] == ["/start", "/fail"]
    assert [lost.name for lost in store.given_up(10)] == ["start"]


def test_a_failed_digest_comes_again_whole(store: MemoryStore, clock: FakeClock, hook: Receiver) -> None:
    made = notifier(store, hook)
    fail(store, 25)
    hook.script = [503]
    settle(made, clock)
    settle(made, clock)
    first, second = hook.got
    assert first.id == second.id
    assert first.body == second.body
    assert len(json.loads(first.body)["notices"]) == 25
    assert store.totals().notices_waiting == 0


def test_nothing_listens(store: MemoryStore, clock: FakeClock) -> None:
    with receiver() as gone:
        made = notifier(store, gone)
    fail(store)
    while made.tick():
        pass
    with receiver() as back:
        made = notifier(store, back)
        settle(made, clock)
        settle(made, clock)
        assert len(back.got) == 1


@pytest.mark.parametrize("bad", [*Bad, 500, 302])
def test_no_error_repeats_the_url(hook: Receiver, bad: int | Bad) -> None:
    hook.then = bad
    answer = send(_call(hook.url(f"/{SECRET}?token={SECRET}")), 0.3)
    assert answer.error
    assert SECRET not in repr(answer)
    assert SECRET not in repr(_call(hook.url(f"/{SECRET}")))


def test_a_host_that_does_not_exist_and_a_port_that_speaks_no_tls_are_errors_in_our_words(
    hook: Receiver,
) -> None:
    assert "cannot be reached" in send(_call(f"http://no-such-host.invalid/{SECRET}"), 5).error
    answer = send(_call(hook.url(f"/{SECRET}").replace("http:", "https:")), 5)
    assert answer.error.startswith("TLS with 127.0.0.1 failed")
    assert SECRET not in answer.error


def test_a_proxy_of_the_environment_is_not_used(hook: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    assert send(_call(hook.url()), 5).error == ""
    assert hook.got[0].path == "/hook"


def test_the_receiver_of_the_docs_takes_ours_and_refuses_others(
    store: MemoryStore, clock: FakeClock, hook: Receiver
) -> None:
    """The code of `docs/notices.md` is run as it stands there."""
    made = notifier(store, hook)
    fail(store)
    settle(made, clock)
    (got,) = hook.got
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(block.strip().splitlines()) <= 15
    shown: dict[str, Any] = {"__name__": "receiver"}
    exec(block.replace("the secret of [notify.ops]", SECRET), shown)
    headers = {"X-Calve-Id": got.headers["x-calve-id"], "X-Calve-Signature": got.headers["x-calve-signature"]}
    assert shown["is_ours"](headers, got.body)
    assert not shown["is_ours"](headers, got.body + b" ")
    assert not shown["is_ours"](headers | {"X-Calve-Id": "other"}, got.body)
    assert not shown["is_ours"](headers | {"X-Calve-Signature": "t=1,v1=00"}, got.body)
    assert not shown["is_ours"]({"X-Calve-Id": got.id}, got.body)
    old = int(time.time()) - 3600
    signed = hmac.new(SECRET.encode(), f"{old}.{got.id}.".encode() + got.body, hashlib.sha256).hexdigest()
    assert not shown["is_ours"](headers | {"X-Calve-Signature": f"t={old},v1={signed}"}, got.body)


def test_without_a_secret_nothing_is_signed(store: MemoryStore, clock: FakeClock, hook: Receiver) -> None:
    made = notifier(store, hook, secret="")
    fail(store)
    settle(made, clock)
    assert "x-calve-signature" not in hook.got[0].headers


def test_a_ping_is_a_get_without_a_body(store: MemoryStore, clock: FakeClock, hook: Receiver) -> None:
    made = Notifier(store, Ping(name="n", start=hook.url("/a?x=1"), fail=hook.url("/c")), send=quickly)
    made.tick()
    fail(store)
    settle(made, clock)
    assert [(got.method, got.path, got.body) for got in hook.got] == [
        ("GET", "/a?x=1", b""),
        ("GET", "/c", b""),
    ]


def test_draining_ends_in_time_also_at_a_receiver_that_drips(store: MemoryStore, hook: Receiver) -> None:
    target = Webhook(name="ops", url=hook.url())
    made = Notifier(store, target)
    made.tick()
    fail(store, 3)
    hook.then = Bad.DRIPS
    begun = time.monotonic()
    made.drain(0.4)
    assert time.monotonic() - begun < SEND_SECONDS
    assert store.totals().notices_waiting == 3


def _call(url: str) -> Delivery:
    return Delivery(notices=(), id="i", event="test", method="POST", url=url, body=b"{}")


@pytest.mark.parametrize("body", ["", "{", "[1, 2]", '{"id": "x"}', "[" * 100_000])
def test_T10_a_notice_that_cannot_be_read_holds_none_of_the_others_up(
    store: MemoryStore, hook: Receiver, body: str
) -> None:
    made = notifier(store, hook)
    position = store.follow_target(made.target.key)
    [process] = store.submit([new()])
    damaged = Notice(id="damaged", target=made.target.key, name="failed", process_id=process.id, body=body)
    store.add_notices(made.target.key, after=position, upto=position, notices=[damaged])
    fail(store)
    while made.tick():
        pass
    assert len(hook.got) == 1
    assert [(lost.id, lost.error) for lost in store.given_up(10)] == [("damaged", DAMAGED)]
