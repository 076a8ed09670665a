"""The proxy fails as it is told to, exactly where it is told to, and counts."""

import socket
import socketserver
import threading
from collections.abc import Iterator

import pytest

from support.network_proxy import Fault, Mode, NetworkProxy

ANSWER = bytes(range(256)) * 400  # 102,400 bytes


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


class Handler(socketserver.BaseRequestHandler):
    """Answers one request of four bytes."""

    def handle(self) -> None:
        if self.request.recv(4) == b"ask!":
            self.request.sendall(ANSWER)


@pytest.fixture(scope="module")
def target() -> Iterator[int]:
    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def ask(port: int, seconds: float = 20.0) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as client:
        client.sendall(b"ask!")
        found = b""
        while piece := client.recv(65_536):
            found += piece
        return found


def test_untouched_bytes_pass_and_are_counted(target: int) -> None:
    with NetworkProxy(target) as proxy:
        assert ask(proxy.port) == ANSWER
        assert (proxy.counts.connections, proxy.counts.request_bytes) == (1, 4)
        assert (proxy.counts.answer_bytes, proxy.counts.cut) == (len(ANSWER), 0)


@pytest.mark.parametrize("position", [0, 1, 1000, 16_384, 16_385, 102_399])
def test_an_answer_is_cut_at_exactly_that_byte(target: int, position: int) -> None:
    with NetworkProxy(target, fault=Fault(cut_answer_after_bytes=position)) as proxy:
        assert ask(proxy.port) == ANSWER[:position]
        assert proxy.counts.cut == 1


class Longer(socketserver.BaseRequestHandler):
    """Answers each request of four bytes, the next at more length than the one before."""

    def handle(self) -> None:
        length = 100
        while self.request.recv(4) == b"ask!":
            self.request.sendall(ANSWER[:length])
            length *= 10


def test_the_answer_of_a_later_request_on_a_connection_is_lost_whole() -> None:
    with Server(("127.0.0.1", 0), Longer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with NetworkProxy(server.server_address[1]) as proxy:
            with socket.create_connection(("127.0.0.1", proxy.port), timeout=20.0) as client:
                client.sendall(b"ask!")
                assert client.recv(100, socket.MSG_WAITALL) == ANSWER[:100]
                proxy.set(Fault(reset_answer_after_bytes=0))
                client.sendall(b"ask!")
                with pytest.raises(ConnectionResetError):
                    client.recv(1)
            assert (proxy.counts.answer_bytes, proxy.counts.cut) == (100, 1)
        server.shutdown()


def test_a_reset_is_a_reset(target: int) -> None:
    broken = NetworkProxy(target, fault=Fault(reset_answer_after_bytes=100))
    with broken as proxy, pytest.raises(ConnectionResetError):
        ask(proxy.port)


def test_a_request_is_cut(target: int) -> None:
    with NetworkProxy(target, fault=Fault(cut_request_after_bytes=2)) as proxy:
        assert ask(proxy.port) == b""
        assert proxy.counts.request_bytes == 2


def test_a_hanging_answer_stays_open_and_silent(target: int) -> None:
    with NetworkProxy(target, fault=Fault(hang_answer_after_bytes=10)) as proxy:
        with pytest.raises(TimeoutError):
            ask(proxy.port, seconds=0.3)
        assert proxy.counts.answer_bytes == 10


def test_a_black_hole_accepts_and_says_nothing_until_it_is_healed(target: int) -> None:
    with (
        NetworkProxy(target, fault=Fault(mode=Mode.BLACK_HOLE)) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), timeout=0.3) as client,
    ):
        client.sendall(b"ask!")
        with pytest.raises(TimeoutError):
            client.recv(1)
        proxy.heal()
        client.settimeout(20)
        assert client.recv(1) == ANSWER[:1]


def test_refused_connections_are_reset(target: int) -> None:
    with NetworkProxy(target, fault=Fault(mode=Mode.REFUSE)) as proxy, pytest.raises(ConnectionError):
        ask(proxy.port)


def test_open_connections_are_cut_on_demand(target: int) -> None:
    with (
        NetworkProxy(target, fault=Fault(hang_answer_after_bytes=10)) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), timeout=20) as client,
    ):
        client.sendall(b"ask!")
        proxy.wait_for_answer_bytes(10)
        assert proxy.cut_open() == 1
        with pytest.raises(ConnectionResetError):
            while client.recv(100):
                """Until the reset."""


def test_only_the_chosen_connections_are_hurt(target: int) -> None:
    with NetworkProxy(
        target, fault=Fault(cut_answer_after_bytes=5, only_connections=frozenset({2}))
    ) as proxy:
        assert [len(ask(proxy.port)) for _ in range(3)] == [len(ANSWER), 5, len(ANSWER)]


def test_a_throttled_answer_still_comes_whole(target: int) -> None:
    with NetworkProxy(target, fault=Fault(bytes_per_second=2_000_000, delay_seconds=0.001)) as proxy:
        assert ask(proxy.port) == ANSWER


def test_a_fault_lasts_for_a_block(target: int) -> None:
    with NetworkProxy(target) as proxy:
        with proxy.behaving(cut_answer_after_bytes=3):
            assert ask(proxy.port) == ANSWER[:3]
        assert ask(proxy.port) == ANSWER
