"""The driver's JVM: started, asked whether it lives, and ended, each within a bound.

Py4J waits for an answer for ever, and PySpark for a JVM that starts. So the bound is here: a JVM that no longer answers (it
is out of memory, deadlocked, stopped) is ended, and every call that waits for it fails.
"""

import os
import shlex
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from calve.model.errors import CalveError, TemporaryError

_LAUNCH_SECONDS = 300.0  # a machine that does much else
_LOOK_SECONDS = 0.05
_STOP_SECONDS = 30.0
_SHUTDOWN_SECONDS = 5.0
_MISSES = 2  # one answer that is missed proves nothing: this program may have been stopped meanwhile
_TELL = "_PYSPARK_DRIVER_CONN_INFO_PATH"  # where the JVM writes its port and its secret


def silent(doing: str, seconds: float, log: Path) -> TemporaryError:
    """It was given so many seconds."""
    return TemporaryError(
        f"the driver's JVM has not {doing} for {seconds:g} s, and was ended",
        code="driver_silent",
        hint=f"it is started again; Spark's log is {log}",
    )


def launch(conf: Mapping[str, str], log: IO[bytes], began: Callable[[subprocess.Popen[bytes]], None]) -> Any:
    """PySpark's gateway to a JVM that this program starts. `began` gets it before it answers, so that it can be
    ended at any time. PySpark's own launch cannot: it tells nobody, and waits for ever for one that hangs, or that ended
    without an error."""
    from pyspark.java_gateway import launch_gateway
    from pyspark.serializers import UTF8Deserializer, read_int

    command = [str(Path(os.environ["SPARK_HOME"]) / "bin" / "spark-submit")]
    for name, value in conf.items():
        command += ["--conf", f"{name}={value}"]
    command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    with tempfile.TemporaryDirectory(prefix="calve-jvm-") as folder:
        told = Path(folder) / "gateway"
        # if we die here or later, the JVM sees its input end, and ends
        jvm = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=os.environ | {"SPARK_CONNECT_MODE": "0", _TELL: str(told)},
            # In a session of its own: a signal to the program's group (Ctrl-C, a supervisor) is for the
            # program, which drains and then ends the JVM.
            start_new_session=True,
        )
        began(jvm)
        try:
            until = time.monotonic() + _LAUNCH_SECONDS
            while not told.exists():  # it is renamed into its place
                if jvm.poll() is not None:
                    raise TemporaryError(f"the JVM ended with code {jvm.returncode}", code="driver_lost")
                if time.monotonic() > until:
                    raise TemporaryError(
                        f"the JVM did not start within {_LAUNCH_SECONDS:g} s", code="driver_silent"
                    )
                time.sleep(_LOOK_SECONDS)
            with told.open("rb") as answer:
                port, secret = read_int(answer), UTF8Deserializer().loads(answer)
            with environment({"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}):
                gateway = launch_gateway()
        except BaseException:
            end_program(jvm)
            raise
    gateway.proc = jvm
    return gateway


class JvmWatch:
    """Calls `gone` once, when the JVM has not answered for so many seconds. Thread-safe."""

    def __init__(self, gateway: Any, seconds: float, log: Path, gone: Callable[[CalveError], None]) -> None:
        parameters = gateway.gateway_parameters
        self._address = (parameters.address, parameters.port)
        self._greeting = f"A\n{parameters.auth_token}\n".encode()  # Py4J's
        self._seconds, self._log, self._gone = seconds, log, gone
        self._over = threading.Event()
        threading.Thread(target=self._watch, name="calve-spark-jvm", daemon=True).start()

    def stop(self) -> None:
        self._over.set()

    def _watch(self) -> None:
        pause = self._seconds / (2 * _MISSES)
        missed = 0
        while missed < _MISSES:
            if self._over.wait(pause):
                return
            missed = 0 if self._answers(pause) else missed + 1
        if not self._over.is_set():
            self._gone(silent("answered", self._seconds, self._log))

    def _answers(self, seconds: float) -> bool:
        """On a connection of its own: those of Py4J may wait for the end of a job."""
        try:
            with socket.create_connection(self._address, timeout=seconds) as asked:
                asked.sendall(self._greeting)
                return bool(asked.recv(16))
        except OSError:
            return False


def within(seconds: float, call: Callable[[], object]) -> bool:
    """Whether the call returned in time, without an error. One that does not is left behind: it fails once the JVM
    has been ended."""
    returned = threading.Event()

    def run() -> None:
        with suppress(Exception):  # whatever Py4J raises when the JVM is gone
            call()
            returned.set()

    thread = threading.Thread(target=run, name="calve-spark-call", daemon=True)
    thread.start()
    thread.join(seconds)
    return returned.is_set()


def end_program(jvm: "subprocess.Popen[bytes]") -> None:
    jvm.kill()
    jvm.wait(_STOP_SECONDS)
    if jvm.stdin is not None:
        with suppress(OSError):
            jvm.stdin.close()


def stop(context: Any) -> bool:
    """End a context and its JVM; whether they did by themselves."""
    if within(_STOP_SECONDS, context.stop):
        return end_jvm()
    abandon(context)
    return False


def end_jvm() -> bool:
    """Whether it ended by itself. PySpark keeps its JVM for the life of the program; another master or another
    configuration needs another one."""
    import pyspark

    gateway = pyspark.SparkContext._gateway
    pyspark.SparkContext._gateway = pyspark.SparkContext._jvm = None
    if gateway is None:
        return True
    within(_SHUTDOWN_SECONDS, gateway.shutdown)
    with suppress(OSError):
        gateway.proc.stdin.close()  # the JVM ends when its standard input does
    try:
        gateway.proc.wait(timeout=_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        end_program(gateway.proc)
    return bool(gateway.proc.returncode == 0)


def abandon(context: Any) -> None:
    """End a context that cannot be asked to stop, and its JVM: first that, since it may not answer."""
    import pyspark

    gateway = context._gateway
    pyspark.SparkContext._active_spark_context = None
    pyspark.SparkContext._gateway = pyspark.SparkContext._jvm = None
    context._jsc = None
    end_program(gateway.proc)
    within(_SHUTDOWN_SECONDS, gateway.shutdown)  # whatever is left of it
    within(_SHUTDOWN_SECONDS, context._accumulatorServer.shutdown)


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """For the JVM that starts here, and for nothing after it."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
