"""The bounds of a driver's JVM, over programs and sockets that stand where it would: no Spark is started. With a real one:
`test_a_jvm_that_does_not_answer`."""

import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from calve.model.errors import CalveError, TemporaryError
from calve.model.process import Granted
from calve.spark import grants, jvm


@contextmanager
def listening(answer: bytes) -> Iterator[Any]:
    """A gateway: it accepts, and says this to each greeting, or nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                if answer:
                    connection.recv(100)
                    connection.sendall(answer)
                    connection.close()

        threading.Thread(target=serve, daemon=True).start()
        address, port = server.getsockname()
        yield SimpleNamespace(
            gateway_parameters=SimpleNamespace(address=address, port=port, auth_token="secret")
        )
        server.shutdown(socket.SHUT_RDWR)


@contextmanager
def watched(
    gateway: Any, seconds: float, tmp_path: Path
) -> Iterator[tuple[threading.Event, list[CalveError]]]:
    met: list[CalveError] = []
    gone = threading.Event()

    def tell(error: CalveError) -> None:
        met.append(error)
        gone.set()

    watch = jvm.JvmWatch(gateway, seconds, tmp_path / "spark.log", tell)
    try:
        yield gone, met
    finally:
        watch.stop()


def test_one_that_accepts_and_never_answers_is_told_of_once(tmp_path: Path) -> None:
    with listening(b"") as gateway, watched(gateway, 0.4, tmp_path) as (gone, met):
        assert gone.wait(30)
    [error] = met
    assert (error.code, error.retryable) == ("driver_silent", True)
    assert str(tmp_path / "spark.log") in error.hint


def test_one_that_answers_is_left_alone(tmp_path: Path) -> None:
    with listening(b"!yv\n") as gateway, watched(gateway, 4.0, tmp_path) as (gone, _):
        assert not gone.wait(5)


def test_a_call_that_does_not_return_is_left_behind() -> None:
    assert jvm.within(30, lambda: None)
    assert not jvm.within(30, lambda: 1 / 0)
    assert not jvm.within(0.1, threading.Event().wait)


def test_what_a_cluster_grants_is_the_last_answer_while_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, hangs = Granted(executors=2, at_once=4), threading.Event()
    answers = [first]
    monkeypatch.setattr(grants, "granted", lambda _: answers.pop() if answers else hangs.wait())
    monkeypatch.setattr(grants, "_ANSWER_SECONDS", 0.05)
    asked = grants.Grants(None)
    while asked.now() is None:
        pass
    assert [asked.now() for _ in range(3)] == [first] * 3
    asked.stop()
    hangs.set()


@pytest.fixture
def spark_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    return tmp_path / "bin" / "spark-submit"


@pytest.mark.programs
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exec sleep 600", "did not start within 1 s"),
        ("exit 0", "ended with code 0"),  # for which PySpark's own launch waits for ever
        ("exit 3", "ended with code 3"),
    ],
)
def test_one_that_does_not_start_is_an_error_and_nothing_of_it_stays(
    spark_home: Path, script: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jvm, "_LAUNCH_SECONDS", 1.0)
    spark_home.write_text(f"#!/bin/sh\n{script}\n")
    spark_home.chmod(0o755)
    began: list[subprocess.Popen[bytes]] = []
    with (spark_home.parent / "log").open("ab") as log, pytest.raises(TemporaryError, match=words):
        jvm.launch({"spark.app.name": "calve"}, log, began.append)
    assert began[0].poll() in (0, 3, -signal.SIGKILL)


@pytest.mark.programs
def test_one_that_is_ended_while_it_starts_is_an_error_at_once(spark_home: Path) -> None:
    spark_home.write_text("#!/bin/sh\nexec sleep 600\n")
    spark_home.chmod(0o755)
    with (spark_home.parent / "log").open("ab") as log, pytest.raises(TemporaryError, match="code -9"):
        jvm.launch({}, log, lambda program: program.kill())
