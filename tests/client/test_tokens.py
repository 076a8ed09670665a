"""Tokens: only their hash is kept, their text is shown once, and a revoked one is refused within seconds."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from calve.app.access import Gatekeeper, token_list, token_new, token_revoke
from calve.app.token_file import make_token, token_id
from calve.model.access import AccessToken, Asked, Role
from calve.model.errors import NotFoundError, RefusedError, UsageError
from calve.store import SqlStore, open_store
from support.calve_command import Run, in_this_process

ASKED = Asked(who="alice", verb="token_new")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    opened = open_store(f"sqlite:///{tmp_path}/store.db")
    yield opened
    opened.close()


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def keeper(store: SqlStore, clock: Clock, local: str = "") -> Gatekeeper:
    return Gatekeeper(store, local_token=local, now=store.now, seconds=clock)


def made(
    store: SqlStore, role: Role = Role.OPERATOR, name: str = "", expires: timedelta | None = None
) -> dict[str, str]:
    return token_new(store, role, ASKED, now=store.now(), name=name, expires=expires)


def test_a_token_is_who_it_was_made_for(store: SqlStore) -> None:
    token = made(store, name="airflow")
    caller = keeper(store, Clock()).caller(token["token"], origin="10.0.0.9")
    assert caller is not None
    assert (caller.name, caller.role, caller.origin) == ("airflow", Role.OPERATOR, "10.0.0.9")


def test_only_its_hash_is_kept(store: SqlStore, tmp_path: Path) -> None:
    text = made(store)["token"]
    secret = text.split("_", 2)[2][:20]  # which may have a "_" itself
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert secret.encode() not in kept
    assert text not in repr(store.tokens())
    assert "hash" not in json.dumps(token_list(store, store.now()))


@pytest.mark.parametrize("change", [lambda t: t[:-1] + ("A" if t[-1] != "A" else "B"), lambda t: t + "x", lambda t: "",
                                    lambda t: make_token(token_id(t) or "")[1], lambda t: t.upper(), lambda t: "Bearer " + t])  # fmt: skip
def test_another_text_is_nobody(store: SqlStore, change: object) -> None:
    assert keeper(store, Clock()).caller(change(made(store)["token"])) is None  # type: ignore[operator]


def test_a_revoked_token_is_refused_within_five_seconds(store: SqlStore) -> None:
    clock, token = Clock(), made(store, name="airflow")
    gate = keeper(store, clock)
    assert gate.caller(token["token"])
    [gone] = token_revoke(store, ("airflow",), ASKED, store.now())
    assert gone["revoked_at"]
    clock.seconds = 5.0
    assert gate.caller(token["token"]) is None
    assert token_revoke(store, (token["id"],), ASKED, store.now())[0]["revoked_at"] == gone["revoked_at"]


def test_a_token_that_was_right_is_remembered_while_the_store_cannot_be_asked(store: SqlStore) -> None:
    clock, token, revoked = Clock(), made(store)["token"], made(store, name="revoked")["token"]
    gate = keeper(store, clock)
    assert gate.caller(token) and gate.caller(revoked)
    token_revoke(store, ("revoked",), ASKED, store.now())
    clock.seconds = 60.0
    assert gate.caller(revoked) is None
    with pytest.raises(LookupError):
        gate.caller(token, ask=False)
    assert gate.remembers(token)
    assert not gate.remembers(revoked) and not gate.remembers(token + "x") and not gate.remembers("")
    clock.seconds = 2 * 3600.0
    assert not gate.remembers(token)


def test_an_expired_token_is_refused(store: SqlStore) -> None:
    past = AccessToken(id="old1", name="old", role=Role.ADMIN, hash="", created_by="x",
                 expires_at=datetime(2020, 1, 1, tzinfo=UTC))  # fmt: skip
    assert not past.valid(store.now())
    token = made(store, expires=timedelta(hours=1))
    late = Gatekeeper(store, now=lambda: store.now() + timedelta(hours=2))
    assert late.caller(token["token"]) is None
    assert keeper(store, Clock()).caller(token["token"])


def test_a_flood_of_wrong_tokens_is_bounded_and_asks_the_store_once_each(store: SqlStore) -> None:
    asked: list[str] = []

    class Counting:
        def token(self, id: str) -> AccessToken | None:
            asked.append(id)
            return store.token(id)

    gate = Gatekeeper(Counting(), now=store.now, seconds=Clock())  # type: ignore[arg-type]
    wrong = [make_token()[1] for _ in range(1200)]
    for text in (*wrong, wrong[-1], wrong[-1]):
        assert gate.caller(text) is None
    assert len(asked) == 1200
    assert gate.caller(wrong[0]) is None
    assert len(asked) == 1201  # the first are forgotten


def test_the_token_of_this_host_counts_only_from_this_host(store: SqlStore) -> None:
    _, local = make_token("local")
    gate = keeper(store, Clock(), local)
    caller = gate.caller(local, loopback=True)
    assert caller is not None
    assert (caller.name, caller.role) == ("local", Role.ADMIN)
    assert gate.caller(local) is None
    assert gate.caller(make_token("local")[1], loopback=True) is None
    assert keeper(store, Clock()).caller(make_token("local")[1], loopback=True) is None


@pytest.mark.parametrize("name", ["local", "local-reader", "a b", "x:y", "-x", "a" * 65, "ü", "a\n"])
def test_a_name_that_could_be_taken_for_another_is_refused(store: SqlStore, name: str) -> None:
    with pytest.raises(UsageError) as caught:
        made(store, name=name)
    assert caught.value.code == "token_name"
    assert store.tokens() == []


def test_a_name_is_given_once_even_after_it_was_revoked(store: SqlStore) -> None:
    made(store, name="airflow")
    token_revoke(store, ("airflow",), ASKED, store.now())
    with pytest.raises(RefusedError):
        made(store, name="airflow")


def test_all_or_none_are_revoked(store: SqlStore) -> None:
    made(store, name="one")
    with pytest.raises(NotFoundError):
        token_revoke(store, ("one", "two"), ASKED, store.now())
    assert [token.revoked_at for token in store.tokens()] == [None]


def test_the_audit_says_who_made_and_revoked_it_and_not_what_it_is(store: SqlStore) -> None:
    token = made(store, name="airflow")
    token_revoke(store, ("airflow",), Asked(who="bob", verb="token_revoke"), store.now())
    entries = store.audited(None, 10)
    assert [(one.who, one.verb, one.subject) for one in entries] == [
        ("bob", "token_revoke", "airflow"),
        ("alice", "token_new", "airflow"),
    ]
    assert token["token"] not in repr(entries)


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return in_this_process(tmp_path, capsys, monkeypatch)


def test_the_commands(run: Run) -> None:
    run("init")
    assert run("token", "list").err == "There are no tokens. Make one: calve token new --role viewer\n"
    answer = run("token", "new", "--role", "operator", "--name", "airflow", "--expires", "90d")
    text = answer.out.strip()
    assert token_id(text)
    assert text not in answer.err
    document = run("token", "new", "--role", "viewer", "--json").json
    assert token_id(document.pop("token")) == document["id"]
    listed = run("token", "list", "--json")
    assert text not in listed.out
    assert [(one["name"], one["role"], one["valid"]) for one in listed.json] == [
        ("airflow", "operator", True),
        (f"viewer-{document['id']}", "viewer", True),
    ]
    assert run("token", "revoke", "airflow").out == "revoked airflow\n"
    table = run("token", "list").out.splitlines()
    assert table[0].split() == ["NAME", "ROLE", "STATE", "CREATED", "BY", "EXPIRES"]
    assert table[1].split()[:3] == ["airflow", "operator", "revoked"]
    run("token", "revoke", "nobody").is_error(3, "no token 'nobody' in this store", "calve token list")
    run("token", "new", "--role", "root").is_error(2, "Invalid value for '--role'")
    run("token", "new", "--role", "viewer", "--expires", "soon").is_error(2, "invalid time 'soon'")
