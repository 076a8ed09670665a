"""The Spark runner: a wave of task attempts is one job in one job group.

Spark's own retries and speculation are off: attempts belong to the control plane, and what Spark runs again
all the same is refused (`executor`). Results
reach the driver as each task ends, through one accumulator, so that a finished task frees its
slot before its wave ends; the job's own answer repeats them, so a lost update loses nothing.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import calve
from calve.control.ports import TaskOrder, TaskResult
from calve.model.errors import CalveError, TemporaryError, UnavailableError
from calve.spark import executor
from calve.spark.driver import Driver
from calve.spark.java import ClassArchive, java_home
from calve.spark.jvm_files import JvmFolder, log_file, remove_log, sweep

if TYPE_CHECKING:
    from calve.model.process import Granted
    from calve.spark.master import MasterWatch
    from calve.spark.near import Near

OnResult = Callable[[TaskResult], None]

# A cancelled Python worker deep in native code is killed after this; 1 s made a cancel take 2.7 s.
KILL_TIMEOUT = "1s"
CANCEL_AGAIN_SECONDS = 0.5
_END_SECONDS = 30
_GIVEN_UP = "program_ends"
# The better of the JVM's two compilers, for code that runs ten to twenty times as often as by default. What only
# schedules Python never does, and was compiled during a worker's first twenty exports; a compaction soon does.
_COMPILE_LATER = (
    "-XX:Tier4InvocationThreshold=100000",
    "-XX:Tier4MinInvocationThreshold=20000",
    "-XX:Tier4CompileThreshold=300000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
_UNRESPONSIVE = "All masters are unresponsive"


class SparkRunner:
    """Starts its session on first use: holding one costs nothing."""

    def __init__(
        self,
        *,
        master: str,
        conf: Mapping[str, str],
        slots: int = 0,
        log: Path | None = None,
        connect_seconds: float = 5.0,
        brief: bool = False,
        prepare: str = "",
    ) -> None:
        """`prepare` is a function, "module:name", that gets an executor ready for its first task. `brief` is
        for one command that leaves the JVM little to do: it starts with half the CPU, and runs slower what
        takes long."""
        self._master = master
        self._connect_seconds = connect_seconds
        self._conf = conf
        self._slots = slots
        self._brief = brief
        self.prepare = prepare
        self._classes = ClassArchive()
        self.log = log or log_file(os.getpid())
        self._failed = False
        self._lock = threading.Lock()
        self._context: Any = None
        self._waves: dict[str, OnResult] = {}
        self._results: Any = None
        self._driver: Driver | None = None
        self._cancelled: dict[str, threading.Event] = {}
        self._near: Near | None = None
        self._watch: MasterWatch | None = None
        self._gone: CalveError | None = None  # why it is of no use to go on starting
        self._starting = False
        self.jvm: Any = None  # its program
        self._folder: JvmFolder | None = None  # its own files
        self._lost: tuple[Any, CalveError] | None = None  # the last context that ended by itself, and why

    @property
    def slots(self) -> int:
        """Tasks to run at once: twice what runs, so that a core never waits for the next order. Of a cluster
        only Spark knows. Until it runs, or grants an executor, there are two: what waits makes it ask for some."""
        context = self._context
        if self._slots or context is None:
            return self._slots or 1
        if self._is_local:
            return 2 * int(context.defaultParallelism)
        granted = self.granted()
        return 2 * max(1, granted.at_once if granted else 1)

    def granted(self) -> "Granted | None":
        """What the cluster gives; None where there is no cluster, no session yet, or nothing that needs executors."""
        context = self._context
        if context is None or self._is_local or (self._near is not None and self._near.busy):
            return None
        from calve.spark.grants import granted

        return granted(context)

    @property
    def _is_local(self) -> bool:
        return self._master == "local" or self._master.startswith("local[")

    @property
    def _is_standalone(self) -> bool:
        return self._master.startswith("spark://")

    def probe(self) -> None:
        """Return if the master of a standalone cluster answers; of others Spark alone knows."""
        if self._is_standalone:
            from calve.spark.master import probe

            probe(self._master, self._connect_seconds)

    def run(self, group: str, orders: Sequence[TaskOrder], on_result: OnResult) -> None:
        """See `control.ports.Runner`."""
        on_driver = [order for order in orders if order.on_driver]
        if on_driver:
            self._run_on_driver(group, on_driver, on_result)
        near = [order for order in orders if order.near and not self._is_local]
        if near:
            self._near_tasks().run(group, near, on_result)
        shipped = [order for order in orders if not order.on_driver and order not in near]
        if shipped:
            self._ship(group, shipped, on_result)

    def _near_tasks(self) -> "Near":
        from calve.spark.near import Near

        with self._lock:
            self._near = self._near or Near()
            return self._near

    def _ship(self, group: str, orders: Sequence[TaskOrder], on_result: OnResult) -> None:
        from py4j.protocol import Py4JError, Py4JJavaError

        context, results = self.started(), self._results
        version, counts = calve.__version__, repeats_count(self._conf)
        libraries = {} if self._is_local else executor.libraries()
        self._waves[group] = on_result

        def attempt(order: TaskOrder) -> dict[str, Any]:
            from calve.wire import logs

            logs.start_on_executor(order.payload)
            with logs.bound(process=order.process_id, task=order.number, attempt=order.attempt):
                if executor.is_repeat():
                    answer = executor.refuse_repeat(order, counts=counts)
                elif calve.__version__ != version:
                    answer = executor.execute(
                        order, version=version
                    )  # which refuses, in every version of ours
                else:
                    answer = executor.refuse_other_libraries(order, libraries) or executor.execute(order)
            answer["group"] = group
            results.add([answer])
            return answer

        try:
            context.setJobGroup(group, f"calve {group}", interruptOnCancel=True)
            for answer in context.parallelize(orders, len(orders)).map(attempt).collect():
                on_result(executor.result(answer))
        except Py4JJavaError as error:
            # Attempts without a result are lost, and the control plane looks for their receipts before
            # it tries again.
            said = self._message(context, error)
            if why := executor.job_error(said, context.pythonExec, str(self.log)):
                self._failed = True
                raise why from error
        except (Py4JError, OSError, AttributeError, AssertionError) as error:
            # The JVM is gone, and the attempts with it. PySpark meets an AttributeError or an assertion of
            # its own where it was ended between two of its calls.
            stopped = self._context is not context or context._jsc is None
            if isinstance(error, AttributeError | AssertionError) and not stopped:
                raise
            raise self._why_lost(context, error) from error
        finally:
            self._waves.pop(group, None)

    def _run_on_driver(self, group: str, orders: Sequence[TaskOrder], on_result: OnResult) -> None:
        """Threads of this program, each with a JVM thread of its own. Iceberg's actions name job
        groups themselves, so these jobs are known by a tag; an action runs one job after another,
        so a cancel is repeated until the last thread is out."""
        from py4j.protocol import Py4JError

        context = self.started()
        self._cancelled[group] = cancelled = threading.Event()

        def attempt(order: TaskOrder) -> None:
            try:
                context.addJobTag(group)
                context.setInterruptOnCancel(True)
            except (Py4JError, ConnectionError):
                return  # the JVM is gone, and the attempt with it
            from calve.wire import logs

            with logs.bound(process=order.process_id, task=order.number, attempt=order.attempt):
                on_result(executor.result(executor.execute(order, self._driver)))

        threads = [
            threading.Thread(target=attempt, args=(order,), name=f"{group}-{order.number}", daemon=True)
            for order in orders
        ]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    if cancelled.is_set():
                        with suppress(Py4JError, OSError):
                            context.cancelJobsWithTag(group)
                    thread.join(CANCEL_AGAIN_SECONDS)
        finally:
            self._cancelled.pop(group, None)
        if self._lost is not None and self._lost[0] is context:
            raise self._lost[1]

    def cancel(self, group: str) -> None:
        """See `control.ports.Runner`."""
        if cancelled := self._cancelled.get(group):
            cancelled.set()
        if self._near is not None:
            self._near.cancel(group)
        context = self._context
        if context is not None:
            from py4j.protocol import Py4JError

            with suppress(Py4JError, OSError):  # it is gone, and the group with it
                context.cancelJobGroup(group)

    def close(self) -> None:
        if self._near is not None:
            self._near.close()
        if given_up := self._starting:
            # Nobody will use it, and on a busy machine starting takes longer than anyone waits for an end.
            self._gone = TemporaryError("the program ends", code=_GIVEN_UP)
            if (jvm := self.jvm) is not None:
                jvm.kill()
        with self._lock:
            if self._watch is not None:
                self._watch.stop()
            if self._context is None and given_up:
                self._classes.keep(whole=False)
                remove_log(self.log)
            if self._context is not None:
                ended = False
                try:
                    self._context.stop()
                    ended = _end_jvm()
                except Exception:  # noqa: BLE001 - whatever py4j raises when the JVM is gone
                    _abandon(self._context)
                self._context = None
                self._classes.keep(whole=ended)
                self._remove_folder()
                if not self._failed:
                    remove_log(self.log)

    def warm(self) -> None:
        """Start the session and its executors' Pythons now, to overlap that with planning."""
        context, function = self.started(), self.prepare
        if function and self._master.startswith("local"):
            # What is wrong is met, and shown, by the first wave; and the program may be ending meanwhile, which
            # PySpark meets in many ways.
            with suppress(Exception):
                cores = int(context.defaultParallelism)
                context.parallelize(range(cores), cores).foreach(lambda _: executor.prepare(function))

    def started(self) -> Any:
        with self._lock:
            if self._context is None:
                self._gone, self.jvm = None, None
                if self._is_standalone:
                    from calve.spark.master import MasterWatch

                    self._watch = MasterWatch(self._master, self._connect_seconds, self._master_gone)
                self._starting = True
                try:
                    self._context = self._start()
                finally:
                    self._starting = False
            return self._context

    def _master_gone(self, error: CalveError) -> None:
        """Also while Spark starts, which would take a minute to find out."""
        self._gone = error
        if self.jvm is not None:
            self.jvm.kill()
        if (context := self._context) is not None:
            self._lose(context, error)

    def _lose(self, context: Any, why: CalveError) -> None:
        """Of no use any more: its waves end, and the next one starts another."""
        with self._lock:
            if self._context is not context:
                return
            self._failed = True
            self._lost = (context, self._gone or why)
            self._context = None
            if self._watch is not None:
                self._watch.stop()
            _abandon(context)

    def _why_lost(self, context: Any, error: Exception) -> CalveError:
        self._lose(
            context,
            TemporaryError(
                f"the driver's JVM is gone: {_first_line(error)}",
                code="driver_lost",
                hint=f"it is started again; Spark's log is {self.log}",
            ),
        )
        with self._lock:
            assert self._lost is not None
            return self._lost[1]

    def _message(self, context: Any, error: Any) -> str:
        """What the JVM threw, in its words; the JVM may be gone before it is asked for them."""
        from py4j.protocol import Py4JError

        try:
            return str(error.java_exception.getMessage())
        except (Py4JError, OSError) as gone:
            raise self._why_lost(context, gone) from gone

    def _deliver(self, answers: list[dict[str, Any]]) -> None:
        for answer in answers:
            on_result = self._waves.get(answer["group"])
            if on_result is not None:
                on_result(executor.result(answer))

    def _start(self) -> Any:
        os.environ["JAVA_HOME"] = str(java_home())
        sweep(self.log.parent)
        if self._master.startswith("sc://"):
            from calve.spark.session import no_connect

            raise no_connect(f"[spark] master {self._master!r}")
        import pyspark
        from pyspark.java_gateway import launch_gateway

        os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
        local = self._master.startswith("local")
        if pyspark.SparkContext._active_spark_context is None:
            _end_jvm()  # one that an earlier session of this program left behind has another configuration
        try:
            self._remove_folder()  # of a JVM that was lost
            self._folder = JvmFolder()
            defaults = self._defaults(self._folder, local=local)
            # The JVM's command line, which every user of the machine can read, carries only our
            # own defaults and what must be known at its start; the rest of the configuration,
            # where secrets may be, goes through the gateway (P22).
            launch = defaults | {k: v for k, v in self._conf.items() if k.startswith("spark.driver.")}
            with self.log.open("ab") as log, _environment(self._pythons(local=local)):
                # In a session of its own: a signal to the program's group (Ctrl-C, a supervisor) is for the
                # program, which drains and then ends the JVM.
                options = {"stdout": log, "stderr": log, "start_new_session": True}
                gateway = launch_gateway(_spark_conf(launch), options)
                self.jvm = gateway.proc
                if self._gone is not None:
                    raise self._gone
                conf = pyspark.SparkConf(_jvm=gateway.jvm)
                for key, value in (defaults | dict(self._conf)).items():
                    conf.set(key, value)
                context = pyspark.SparkContext(conf=conf, gateway=gateway)
            self._driver = Driver(context)
            self._results = self._accumulator(context)
            return context
        except Exception as error:  # pyspark raises several unrelated kinds here
            self._failed = self._gone is None or self._gone.code != _GIVEN_UP
            if self._watch is not None:
                self._watch.stop()
            _end_jvm()
            if self.jvm is not None:  # PySpark did not know of it yet
                self.jvm.kill()
                self.jvm.wait()
            self._remove_folder()
            if self._gone is not None:
                raise self._gone from error
            if _UNRESPONSIVE in str(error):
                from calve.spark.master import away

                raise away(self._master, "it does not answer") from error
            raise UnavailableError(
                f"Spark did not start with master {self._master!r}: {_first_line(error)}",
                code="spark_unavailable",
                hint=f"calve doctor; Spark's own log is {self.log}",
            ) from error

    def _accumulator(self, context: Any) -> Any:
        return context.accumulator([], _Results(self._deliver))

    def _pythons(self, *, local: bool) -> dict[str, str]:
        """PySpark itself reads these names only from the environment. Executors on this machine run this very
        environment (D16); on a cluster `spark.pyspark.python` says where theirs is, then PYSPARK_PYTHON."""
        given = os.environ.get("PYSPARK_PYTHON", "python3")
        python = self._conf.get("spark.pyspark.python") or (sys.executable if local else given)
        driver = self._conf.get("spark.pyspark.driver.python") or sys.executable
        return {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": driver}

    def _remove_folder(self) -> None:
        if self._folder is not None:
            self._folder.remove()
            self._folder = None

    def _defaults(self, folder: JvmFolder, *, local: bool) -> dict[str, str]:
        log4j = Path(__file__).with_name("log4j2.properties").as_uri()
        options = [f"-Dlog4j2.configurationFile={log4j}", f"-Dcalve.spark.log={self.log}"]
        options += self._classes.options(os.environ["JAVA_HOME"])
        options += folder.options()
        options += ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"] if self._brief else _COMPILE_LATER
        conf = {
            "spark.app.name": "calve",
            "spark.master": self._master,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.scheduler.mode": "FAIR",
            "spark.task.maxFailures": "1",
            "spark.speculation": "false",
            "spark.python.worker.reuse": "true",  # one engine session per Python worker (W9)
            "spark.python.task.killTimeout": KILL_TIMEOUT,
            "spark.driver.extraJavaOptions": " ".join(options),
        }
        if local:
            conf |= {
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.python.daemon.module": "calve.spark.executor",
                "spark.local.dir": str(folder.path),
            }
        return conf


def repeats_count(conf: Mapping[str, str]) -> bool:
    """Whether an attempt that Spark repeats uses its budget. With Spark's retries and speculation off it repeats
    only what was lost by no fault of the task; where [spark.conf] turns them on, there is no telling."""
    return (conf.get("spark.task.maxFailures", "1"), conf.get("spark.speculation", "false")) != ("1", "false")


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
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


def _end_jvm() -> bool:
    """Whether it ended by itself. PySpark keeps its JVM for the life of the program; another master or another
    configuration needs another one."""
    import pyspark

    gateway = pyspark.SparkContext._gateway
    pyspark.SparkContext._gateway = pyspark.SparkContext._jvm = None
    if gateway is not None:
        with suppress(Exception):  # it may be gone
            gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM ends when its standard input does
        try:
            gateway.proc.wait(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            gateway.proc.kill()
            gateway.proc.wait()
        return bool(gateway.proc.returncode == 0)
    return True


def _abandon(context: Any) -> None:
    """End a context that cannot be asked to stop, and its JVM."""
    import pyspark

    gateway = context._gateway
    pyspark.SparkContext._active_spark_context = None
    pyspark.SparkContext._gateway = pyspark.SparkContext._jvm = None
    context._jsc = None
    with suppress(Exception):  # whatever is left of it
        gateway.shutdown()
    gateway.proc.kill()
    gateway.proc.wait(timeout=30)
    with suppress(Exception):
        context._accumulatorServer.shutdown()


def _spark_conf(values: Mapping[str, str]) -> Any:
    import pyspark

    conf = pyspark.SparkConf(loadDefaults=False)
    for key, value in values.items():
        conf.set(key, value)
    return conf


class _Results:
    """Spark's accumulator protocol: on executors a list that grows; on the driver it hands on
    and stays empty, so that nothing piles up over a worker's life."""

    def __init__(self, deliver: Callable[[list[dict[str, Any]]], None] | None) -> None:
        self._deliver = deliver

    def __reduce__(self) -> tuple[Any, ...]:
        return _Results, (None,)

    def zero(self, value: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return value[:0]

    def addInPlace(self, held: list[dict[str, Any]], more: list[dict[str, Any]]) -> list[dict[str, Any]]:  # noqa: N802
        if self._deliver is None:
            return held + more
        self._deliver(more)
        return []


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
