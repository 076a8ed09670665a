"""A session is never more than its token, for nobody longer, and no page but our own can use it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from calve.app.access import Gatekeeper, token_new, token_revoke
from calve.app.token_file import LOCAL, make_token
from calve.http.guard import _headers
from calve.http.identity import Identities, given_cookie
from calve.http.problem import HttpError
from calve.model.access import Asked, Role
from calve.testing.clock import FakeClock
from calve.testing.memory_store import MemoryStore

ASKED = Asked(who="alice", verb="token_new")
HOUR_SECONDS = 3600.0


class Host:
    """A server's way to tell who asks, with a clock of its own; nothing is remembered between two questions."""

    def __init__(self, *, local: str = "", open_reading: bool = True) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock)
        self.seconds = 0.0
        self.gate = self.another(local)
        self.identities = Identities(
            self.gate, open_reading=open_reading, cookie="calve_x", now=self.clock.offset_seconds
        )

    def status(self, token: str, peer: str = "127.0.0.1") -> int:
        """What a request with this token gets: 200, or why not."""
        try:
            self.identities.caller({"authorization": f"Bearer {token}"} if token else {}, peer)
        except HttpError as error:
            return error.status
        return 200

    def another(self, local: str = "") -> Gatekeeper:
        return Gatekeeper(
            self.store, local_token=local, now=self.store.now, seconds=self.clock.offset_seconds
        )

    def token(self, role: Role, **given: timedelta) -> str:
        made = token_new(self.store, role, ASKED, now=self.store.now(), name=f"{role.value}-1", **given)
        return str(made["token"])

    def signed_in(self, role: Role, chosen: Role) -> str:
        found = self.gate.sign_in(self.token(role), chosen)
        assert found is not None
        return found[0]


@pytest.mark.parametrize(
    ("role", "chosen", "got"),
    [
        (Role.ADMIN, Role.OPERATOR, Role.OPERATOR),
        (Role.VIEWER, Role.ADMIN, Role.VIEWER),
        (Role.OPERATOR, Role.OPERATOR, Role.OPERATOR),
    ],
)
def test_a_session_has_the_chosen_role_and_at_most_its_tokens(role: Role, chosen: Role, got: Role) -> None:
    host = Host()
    caller = host.gate.signed_in(host.signed_in(role, chosen), origin="1.2.3.4")
    assert caller is not None
    assert (caller.name, caller.role, caller.origin) == (f"{role.value}-1", got, "1.2.3.4")


def test_a_wrong_token_signs_nobody_in_and_the_store_has_no_secret() -> None:
    host = Host()
    assert host.gate.sign_in("calve_abc_wrong", Role.VIEWER) is None
    assert host.store.sessions() == []
    secret = host.signed_in(Role.VIEWER, Role.VIEWER)
    assert secret not in repr(host.store.sessions()) and len(secret) >= 43
    assert host.gate.signed_in(secret[:-1]) is None


def test_a_session_ends_after_its_time_by_signing_out_and_with_its_token() -> None:
    host = Host()
    secret = host.signed_in(Role.ADMIN, Role.OPERATOR)
    host.clock.advance(11.9 * HOUR_SECONDS)
    assert host.gate.signed_in(secret)
    host.clock.advance(0.2 * HOUR_SECONDS)
    assert host.gate.signed_in(secret) is None

    host = Host()
    secret = host.signed_in(Role.ADMIN, Role.OPERATOR)
    assert host.gate.signed_in(secret)
    host.gate.sign_out(secret)
    assert host.gate.signed_in(secret) is None

    host = Host()
    secret = host.signed_in(Role.ADMIN, Role.OPERATOR)
    token_revoke(host.store, ("admin-1",), ASKED, host.store.now())
    assert host.another().signed_in(secret) is None

    host = Host()
    found = host.gate.sign_in(host.token(Role.VIEWER, expires=timedelta(hours=1)), Role.VIEWER)
    assert found is not None
    host.clock.advance(2 * HOUR_SECONDS)
    assert host.gate.signed_in(found[0]) is None


def test_the_hosts_own_token_counts_on_the_host_only_and_ends_with_its_file() -> None:
    _, local = make_token(LOCAL)
    host = Host(local=local)
    assert host.gate.sign_in(local, Role.ADMIN, loopback=False) is None
    found = host.gate.sign_in(local, Role.ADMIN, loopback=True)
    assert found is not None
    assert host.gate.signed_in(found[0], loopback=False) is None
    caller = host.gate.signed_in(found[0], loopback=True)
    assert caller is not None and (caller.name, caller.role) == (LOCAL, Role.ADMIN)
    assert host.another(f"{local[:-4]}aaaa").signed_in(found[0], loopback=True) is None
    assert host.another().signed_in(found[0], loopback=True) is None


def test_servers_of_one_store_know_each_others_sessions() -> None:
    host = Host()
    secret = host.signed_in(Role.OPERATOR, Role.OPERATOR)
    assert host.another().signed_in(secret)


def test_a_cookie_is_looked_at_last_and_a_dead_one_is_not_a_reader() -> None:
    host = Host()
    admin = host.token(Role.ADMIN)
    found = host.gate.sign_in(admin, Role.VIEWER)
    assert found is not None
    cookie = {"cookie": f"other=1; calve_x={found[0]}; calve_y=2"}
    assert host.identities.caller(cookie, "9.9.9.9").role is Role.VIEWER
    both = cookie | {"authorization": f"Bearer {admin}"}
    assert host.identities.caller(both, "9.9.9.9").role is Role.ADMIN
    for headers in ({"cookie": "calve_x=gone"}, {"cookie": f"calve_x={admin}"}):
        with pytest.raises(HttpError) as refused:
            host.identities.caller(headers, "127.0.0.1")
        assert (refused.value.status, refused.value.code) == (401, "session_ended")
    assert host.identities.caller({"cookie": "another=1"}, "127.0.0.1").name == "local-reader"


def test_a_change_by_cookie_says_which_page_asks() -> None:
    host = Host()
    headers = {"cookie": f"calve_x={host.signed_in(Role.OPERATOR, Role.OPERATOR)}"}
    with pytest.raises(HttpError) as refused:
        host.identities.caller(headers, "9.9.9.9", method="POST")
    assert (refused.value.status, refused.value.code) == (403, "origin")
    own = headers | {"origin": "https://calve.example.com"}
    assert host.identities.caller(own, "9.9.9.9", method="POST").role is Role.OPERATOR
    assert host.identities.caller(headers, "9.9.9.9", method="GET").role is Role.OPERATOR


def test_cookies_that_a_client_splits_are_one_list() -> None:
    headers = _headers({"headers": [(b"cookie", b"a=1"), (b"cookie", b"calve_x=2")]})
    assert given_cookie(headers, "calve_x") == "2" and given_cookie(headers, "") == ""


def test_a_role_that_is_lowered_lowers_the_session() -> None:
    host = Host()
    secret = host.signed_in(Role.ADMIN, Role.ADMIN)
    [token] = host.store.tokens()
    host.store._kept.tokens[token.id] = replace(token, role=Role.VIEWER)
    caller = host.another().signed_in(secret)
    assert caller is not None and caller.role is Role.VIEWER


def test_an_address_that_sends_wrong_tokens_waits_and_those_that_were_right_before_do_not() -> None:
    _, local = make_token(LOCAL)
    host = Host(local=local)
    used = host.token(Role.ADMIN)
    assert host.status(used) == 200
    guesses = [make_token()[1] for _ in range(8)] + [make_token(LOCAL)[1], "x"]
    assert [host.status(one) for one in guesses] == [401] * 10
    new = host.token(Role.VIEWER)
    assert [host.status(one) for one in (guesses[0], make_token()[1], make_token(LOCAL)[1], new)] == [429] * 4
    assert [host.status(one) for one in (used, local, "")] == [200] * 3
    assert host.status("x", "9.9.9.9") == 401
    with pytest.raises(HttpError) as refused:
        host.identities.caller({"authorization": "Bearer x"}, "127.0.0.1")
    assert (refused.value.code, refused.value.headers) == ("too_many_requests", {"Retry-After": "6"})
    host.clock.advance(6.1)
    assert [host.status(one) for one in (new, "x", "y")] == [200, 401, 429]
    assert host.status(new) == 200
