"""`Retry-After`: a server that asks for time gets it, a minute at most, and no call is sent meanwhile (T14)."""

import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import requests

from calve.iceberg.errors import translate
from calve.model.errors import UnavailableError
from calve.wire import bounded_http
from support.http_faults import HttpFaults


@pytest.fixture
def front() -> Iterator[HttpFaults]:
    with HttpFaults(9) as front:  # nothing is passed on
        yield front


@pytest.fixture
def session() -> Iterator[requests.Session]:
    with requests.Session() as session:
        bounded_http.bound(session, connect_seconds=2, call_seconds=5)
        yield session


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("asked", ["20", "3600", "Wed, 21 Oct 2026 07:28:30 GMT"])
def test_T14_a_server_that_asks_for_time_is_left_alone_and_then_asked_again(
    front: HttpFaults,
    session: requests.Session,
    status: int,
    asked: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    front.answer(status, headers={"Retry-After": asked, "Date": "Wed, 21 Oct 2026 07:28:00 GMT"})
    assert session.get(front.url).status_code == status
    with pytest.raises(requests.ConnectionError, match="Retry-After") as told:
        session.get(front.url)
    assert len(front.answered) == 1, "the second was not sent"
    assert isinstance(translate("lake", "loading", told.value), UnavailableError)
    # A minute later it is asked again, whatever it wanted.
    monkeypatch.setattr(bounded_http, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + 61))
    assert session.get(front.url).status_code == status
    assert len(front.answered) == 2


@pytest.mark.parametrize(
    "asked", [{}, {"Retry-After": "soon"}, {"Retry-After": "-5"}, {"Retry-After": "nan"}]
)
def test_T14_without_a_time_that_can_be_read_the_next_call_is_sent(
    front: HttpFaults, session: requests.Session, asked: dict[str, str]
) -> None:
    front.answer(429, headers=asked)
    for _ in range(2):
        assert session.get(front.url).status_code == 429
    assert len(front.answered) == 2


def test_T14_one_host_that_asks_for_time_does_not_stop_calls_to_another(
    front: HttpFaults, session: requests.Session
) -> None:
    front.answer(429, headers={"Retry-After": "20"})
    with HttpFaults(9) as other:
        other.answer(404)
        session.get(front.url)
        assert session.get(other.url).status_code == 404
