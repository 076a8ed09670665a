"""Every wait has an end, an answer is whole or an error, and nothing is asked twice behind our back."""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from servers import PASSWORD, Place

from calve.clickhouse.server import errors
from calve.clickhouse.server.source import ServerOptions, ServerSource
from calve.model.errors import CalveError, PermanentError, TemporaryError, UnavailableError, UsageError
from support.clickhouse_front import ClickHouseFront, FrontOptions
from support.network_proxy import Fault, Mode, NetworkProxy
from support.programs import free_ports

pytestmark = pytest.mark.services


def behind(proxy: NetworkProxy, place: Place, **changes: object) -> ServerSource:
    return place.source(**{"url": proxy.url, "connect_seconds": 2.0, "query_seconds": 2.0, **changes})


@pytest.mark.parametrize("user, password", [("default", "wrong"), ("nobody", PASSWORD), ("default", "")])
def test_P9_wrong_credentials_fail_at_once_and_for_good(place: Place, user: str, password: str) -> None:
    proxied = NetworkProxy(int(place.url.rsplit(":", 1)[1]))
    with proxied as proxy, pytest.raises(PermanentError) as refused:
        behind(proxy, place, user=user, password=password).visit().__enter__()
    assert refused.value.code == "authentication"
    assert "password_file" in refused.value.hint
    assert not refused.value.retryable
    assert proxy.counts.connections == 1


def test_a_server_that_nobody_runs_is_unavailable(today: Place) -> None:
    (port,) = free_ports(1)
    with pytest.raises(UnavailableError) as missed:
        today.source(url=f"http://127.0.0.1:{port}").visit().__enter__()
    assert (missed.value.service, missed.value.code) == ("source:main", "source_unreachable")


def test_an_unknown_host_is_unavailable(today: Place) -> None:
    with pytest.raises(UnavailableError, match="name is unknown"):
        today.source(url="http://no-such-host.invalid:8123").visit().__enter__()


@pytest.mark.timeout(30)
def test_a_server_that_never_answers_is_given_up(place: Place) -> None:
    """Without a limit of our own this would wait for ever."""
    proxied = NetworkProxy(int(place.url.rsplit(":", 1)[1]), fault=Fault(mode=Mode.BLACK_HOLE))
    with proxied as proxy, pytest.raises(UnavailableError) as hung:
        behind(proxy, place, query_seconds=1000.0, call_seconds=0.5).visit().__enter__()
    assert hung.value.code == "source_timeout"
    assert proxy.counts.connections == 1


@pytest.mark.timeout(30)
def test_an_answer_that_trickles_for_ever_is_given_up(today: Place) -> None:
    """Each read succeeds in time; only the statement as a whole does not."""
    with NetworkProxy(int(today.url.rsplit(":", 1)[1])) as proxy:
        source = behind(proxy, today, query_seconds=3.0)
        with source.visit() as session:
            proxy.set(Fault(bytes_per_second=65_536))
            with pytest.raises(UnavailableError) as hung:
                session.rows("SELECT repeat('x', 1000) AS x FROM numbers(1000000)")
    assert hung.value.code == "source_timeout"


def test_a_statement_that_we_gave_up_is_ended_at_the_server(today: Place) -> None:
    with today.source().visit() as session:
        with pytest.raises(errors.HungError):
            session.execute(
                "SELECT count() FROM numbers(1000000000000) WHERE NOT ignore(sipHash64(number))", seconds=0.3
            )
        assert session.rows("SELECT count() AS n FROM system.processes WHERE query LIKE '%sipHash64%'") == [
            {"n": 1}  # this look itself
        ]


def test_a_kill_reaches_a_statement_by_its_own_id(today: Place) -> None:
    outcome: list[CalveError] = []

    def run() -> None:
        with today.source().visit() as session:
            try:
                session.execute("SELECT count() FROM numbers(1000000000000)", query_id="mine")
            except CalveError as error:
                outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    with today.source().visit() as session:
        while thread.is_alive():  # it may not have begun yet: then there is nothing to kill
            session.kill("mine")
    thread.join()
    assert outcome[0].code == "clickhouse_394"


@pytest.mark.parametrize("kind", ["cut_answer_after_bytes", "reset_answer_after_bytes"])
def test_an_answer_cut_at_any_kilobyte_is_an_error_and_never_a_short_list(place: Place, kind: str) -> None:
    sql = "SELECT number AS n, toString(number) AS s FROM numbers(2000)"
    with NetworkProxy(int(place.url.rsplit(":", 1)[1])) as proxy:
        source = behind(proxy, place)
        with source.visit() as session:
            before = proxy.counts.answer_bytes
            whole = session.rows(sql)
            size = proxy.counts.answer_bytes - before
            for position in range(0, size, 1024):
                proxy.set(Fault(**{kind: position}))  # type: ignore[arg-type]
                with pytest.raises(TemporaryError):
                    session.rows(sql)
            proxy.heal()
            assert session.rows(sql) == whole


def test_a_cut_right_before_the_last_bytes_is_seen(place: Place) -> None:
    sql = "SELECT number AS n FROM numbers(100)"
    with NetworkProxy(int(place.url.rsplit(":", 1)[1])) as proxy, behind(proxy, place).visit() as session:
        session.rows(sql)
        for missing in range(5, 12):  # the last five bytes only say that there is no more
            proxy.set(Fault(cut_before_end=missing))
            with pytest.raises(TemporaryError):
                session.rows(sql)


def test_an_exception_in_mid_stream_is_raised(place: Place) -> None:
    """The server has said 200 OK by then."""
    sql = "SELECT number AS n, throwIf(number = 1500000) AS t FROM numbers(2000000)"
    with place.source().visit() as session, pytest.raises(PermanentError, match="throwIf") as raised:
        session.rows(sql, {"max_block_size": "1000"})
    assert raised.value.code == "clickhouse_395"


def test_an_exception_in_the_words_of_older_servers_is_raised(front: Callable[..., ClickHouseFront]) -> None:
    """Bare text behind the rows, and a body that looks complete."""
    source = ServerSource("main", ServerOptions(url=front(FrontOptions(tagged_exceptions=False)).url))
    with source.visit() as session, pytest.raises(PermanentError) as raised:
        session.rows("SELECT throwIf(number = 1500000) AS t FROM numbers(2000000)")
    assert raised.value.code == "clickhouse_395"


def test_rows_that_only_look_like_an_exception_are_rows(place: Place) -> None:
    text = "Code: 395. DB::Exception: Value passed to 'throwIf' function is non-zero"
    with place.source().visit() as session:
        assert session.rows("SELECT '" + text.replace("'", "\\'") + "' AS x") == [{"x": text}]


def test_values_come_exact(place: Place) -> None:
    with place.source().visit() as session:
        [row] = session.rows(
            "SELECT 18446744073709551615 AS big, -9223372036854775808 AS low, 0.1 AS f, "
            "toDecimal64('1234567890.12345678', 8) AS d, [toNullable(1), NULL] AS a, 'ä\\n\\'\"' AS s"
        )
    assert (row["big"], row["low"], row["f"], row["s"]) == (2**64 - 1, -(2**63), 0.1, "ä\n'\"")
    assert str(row["d"]) == "1234567890.12345678"
    assert row["a"] == [1, None]


def test_the_first_replica_that_answers_is_taken(today: Place) -> None:
    dead, hanging = free_ports(1)[0], NetworkProxy(1, fault=Fault(mode=Mode.BLACK_HOLE))
    with hanging as proxy:
        port = today.url.rsplit(":", 1)[1]
        url = f"http://127.0.0.1:{dead},127.0.0.1:{proxy.port},127.0.0.1:{port}"
        with today.source(url=url, call_seconds=3.0).visit() as session:
            assert session.address.url == today.url


def test_wrong_credentials_are_no_reason_to_try_another_replica(today: Place) -> None:
    port = int(today.url.rsplit(":", 1)[1])
    with NetworkProxy(port) as proxy, pytest.raises(PermanentError):
        url = f"{today.url},http://127.0.0.1:{proxy.port}"
        today.source(url=url, password="wrong").visit().__enter__()
    assert proxy.counts.connections == 0


def test_when_no_replica_answers_all_are_named(today: Place) -> None:
    one, two = free_ports(2)
    with pytest.raises(UnavailableError) as missed:
        today.source(url=f"http://127.0.0.1:{one},127.0.0.1:{two}").visit().__enter__()
    assert str(one) in missed.value.message
    assert str(two) in missed.value.message


def test_something_that_is_no_clickhouse_is_said(front: Callable[..., ClickHouseFront]) -> None:
    with NetworkProxy(1, fault=Fault(mode=Mode.REFUSE)) as proxy:
        source = ServerSource("main", ServerOptions(url=proxy.url))
        with pytest.raises(UnavailableError):
            source.visit().__enter__()


@pytest.mark.parametrize(
    "url",
    ["ftp://host", "host:8123", "http://", "http://host:99999", "http://host/path", "http://a,ftp://b/x"],
)
def test_a_wrong_url_is_the_user_s_to_mend(url: str) -> None:
    with pytest.raises(UsageError) as wrong:
        ServerSource("main", ServerOptions(url=url))
    assert wrong.value.code == "source_url"


def test_a_connection_is_bounded_by_its_limit_too() -> None:
    """A host that swallows packets: only the limit ends the wait. A full queue of a socket that nobody
    accepts from does."""
    with ExitStack() as stack:
        deaf = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(8):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(deaf.getsockname())
        started = time.monotonic()
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        source = ServerSource("main", ServerOptions(url=url, connect_seconds=0.2))
        with pytest.raises(UnavailableError):
            source.visit().__enter__()
        assert time.monotonic() - started < 60  # for ever, without one
