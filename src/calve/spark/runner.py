"""The Spark runner: a wave of task attempts is one job in one job group.

Spark's own retries and speculation are off: attempts belong to the control plane, and what Spark runs again
anyway is refused (`executor`). Results
reach the driver as each task ends, through one accumulator, so that a finished task frees its
slot before its wave ends; the job's own answer repeats them, so a lost update loses nothing.

No call into the driver's JVM has a bound of its own. One that does not answer is ended (`jvm`), and so is one whose job goes
on after it was cancelled; what the worker's loop itself asks is asked beside it (`grants`).
"""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import calve
from calve.control.ports import TaskOrder, TaskResult
from calve.model.errors import CalveError, TemporaryError, UnavailableError
from calve.spark import executor, jvm
from calve.spark.conf import defaults, pythons, repeats_count
from calve.spark.driver import Driver
from calve.spark.java import ClassArchive, java_home
from calve.spark.jvm_files import JvmFolder, log_file, remove_log, sweep

if TYPE_CHECKING:
    from calve.model.process import Granted
    from calve.spark.grants import Grants
    from calve.spark.master import MasterWatch
    from calve.spark.near import Near

OnResult = Callable[[TaskResult], None]

CANCEL_AGAIN_SECONDS = 0.5
SILENT_SECONDS = 60.0
_CANCELLED_SECONDS = 60.0  # a job ends within a second of its cancel
_ACTION_CANCELLED_SECONDS = 300.0  # an action of Iceberg's may be in the middle of a commit
_GIVEN_UP = "program_ends"
_UNRESPONSIVE = "All masters are unresponsive"


@dataclass(kw_only=True)
class _Wave:
    """A job of task attempts, from before its session is started."""

    on_result: OnResult
    cancelled: bool = False
    ended: threading.Event = field(default_factory=threading.Event)


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
        silent_seconds: float = SILENT_SECONDS,
        cancelled_seconds: float = _CANCELLED_SECONDS,
        brief: bool = False,
        prepare: str = "",
    ) -> None:
        """`silent_seconds` is how long the JVM may give no answer, `cancelled_seconds` how long a cancelled job may go
        on; then the JVM is ended. `prepare` is a function, "module:name", that gets an executor ready for its first task. `brief` is
        for one command that leaves the JVM little to do: it starts with half the CPU, and runs slower what
        takes long."""
        self._master = master
        self._connect_seconds, self._silent_seconds = connect_seconds, silent_seconds
        self._cancelled_seconds = cancelled_seconds
        self._conf = conf
        self._slots = slots
        self._brief = brief
        self.prepare = prepare
        self._classes = ClassArchive()
        self.log = log or log_file(os.getpid())
        self._failed = False
        self._lock = threading.Lock()
        self._context: Any = None
        self._waves: dict[str, _Wave] = {}
        self._results: Any = None
        self._driver: Driver | None = None
        self._cancelled: dict[str, threading.Event] = {}
        self._near: Near | None = None
        self._watch: MasterWatch | None = None
        self._jvm_watch: jvm.JvmWatch | None = None
        self._grants: Grants | None = None
        self._at_once = 0  # tasks, where executors are on this machine
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
            return 2 * self._at_once
        granted = self.granted()
        return 2 * max(1, granted.at_once if granted else 1)

    def granted(self) -> "Granted | None":
        """What the cluster gives; None where there is no cluster, no session yet, or nothing that needs executors."""
        grants = self._grants
        if grants is None or self._is_local or (self._near is not None and self._near.busy):
            return None
        return grants.now()

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

        self._waves[group] = wave = _Wave(on_result=on_result)
        try:
            context, results = self.started(), self._results
        except BaseException:
            self._waves.pop(group).ended.set()
            raise
        version, counts = calve.__version__, repeats_count(self._conf)
        libraries = {} if self._is_local else executor.libraries()

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
            if wave.cancelled:
                return
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
            self._waves.pop(group).ended.set()

    def _run_on_driver(self, group: str, orders: Sequence[TaskOrder], on_result: OnResult) -> None:
        """Threads of this program, each with a JVM thread of its own. Iceberg's actions name job
        groups themselves, so these jobs are known by a tag; an action runs one job after another,
        so a cancel is repeated until the last thread is out."""
        from py4j.protocol import Py4JError

        self._cancelled[group] = cancelled = threading.Event()
        try:
            context = self.started()
        except BaseException:
            del self._cancelled[group]
            raise

        def attempt(order: TaskOrder) -> None:
            if cancelled.is_set():
                return
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
            late: float | None = None
            for thread in threads:
                while thread.is_alive():
                    if cancelled.is_set():
                        late = late or time.monotonic() + _ACTION_CANCELLED_SECONDS
                        with suppress(Py4JError, OSError):
                            context.cancelJobsWithTag(group)
                        if time.monotonic() > late:
                            self._lose(context, self._not_ended(_ACTION_CANCELLED_SECONDS))
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
        if (wave := self._waves.get(group)) is not None and not wave.cancelled:
            wave.cancelled = True
            threading.Thread(
                target=self._cancel_until_out, args=(group, wave), name="calve-spark-cancel", daemon=True
            ).start()

    def _cancel_until_out(self, group: str, wave: _Wave) -> None:
        """Again and again: Spark forgets a cancel that comes before its job. Not within a call of the worker's loop:
        the JVM may not answer."""
        from py4j.protocol import Py4JError

        began: tuple[Any, float] | None = None  # with which context, and when
        while not wave.ended.is_set():
            context = self._context
            if context is not None:
                if began is None or began[0] is not context:
                    began = (context, time.monotonic())
                with suppress(Py4JError, OSError, AttributeError):  # it is gone, and the group with it
                    context.cancelJobGroup(group)
            if wave.ended.wait(CANCEL_AGAIN_SECONDS):
                return
            if began and time.monotonic() - began[1] > self._cancelled_seconds:
                self._lose(began[0], self._not_ended(self._cancelled_seconds))
                return

    def _not_ended(self, seconds: float) -> CalveError:
        return jvm.silent("ended what was cancelled", seconds, self.log)

    def close(self) -> None:
        if self._near is not None:
            self._near.close()
        if given_up := self._starting:
            # Nobody will use it, and on a busy machine starting takes longer than anyone waits for an end.
            self._gone = TemporaryError("the program ends", code=_GIVEN_UP)
            if (program := self.jvm) is not None:
                program.kill()
        with self._lock:
            self._stop_watching()
            if self._context is None and given_up:
                self._classes.keep(whole=False)
                remove_log(self.log)
            if self._context is not None:
                ended = jvm.stop(self._context)
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

                    self._watch = MasterWatch(self._master, self._connect_seconds, self._give_up)
                self._starting = True
                try:
                    self._context = self._start()
                finally:
                    self._starting = False
            return self._context

    def _stop_watching(self) -> None:
        for watch in (self._watch, self._jvm_watch, self._grants):
            if watch is not None:
                watch.stop()
        self._grants = None

    def _give_up(self, error: CalveError) -> None:
        """The master is gone, or the JVM does not answer. Also while Spark starts, which would take a minute to find out."""
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
            self._stop_watching()
            jvm.abandon(context)

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
            wave = self._waves.get(answer["group"])
            if wave is not None:
                wave.on_result(executor.result(answer))

    def _start(self) -> Any:
        os.environ["JAVA_HOME"] = str(java_home())
        sweep(self.log.parent)
        if self._master.startswith("sc://"):
            from calve.spark.session import no_connect

            raise no_connect(f"[spark] master {self._master!r}")
        import pyspark

        os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
        local = self._master.startswith("local")
        if pyspark.SparkContext._active_spark_context is None:
            jvm.end_jvm()  # one that an earlier session of this program left behind has another configuration
        try:
            self._remove_folder()  # of a JVM that was lost
            self._folder = JvmFolder()
            given = defaults(
                self._master, folder=self._folder, log=self.log, classes=self._classes, brief=self._brief
            )
            # The JVM's command line, which every user of the machine can read, carries only our
            # own defaults and what must be known at its start; the rest of the configuration,
            # where secrets may be, goes through the gateway (P22).
            launch = given | {k: v for k, v in self._conf.items() if k.startswith("spark.driver.")}
            with self.log.open("ab") as log, jvm.environment(pythons(self._conf, local=local)):
                gateway = jvm.launch(launch, log, self._began)
                self._jvm_watch = jvm.JvmWatch(gateway, self._silent_seconds, self.log, self._give_up)
                if self._gone is not None:
                    raise self._gone
                conf = pyspark.SparkConf(_jvm=gateway.jvm)
                for key, value in (given | dict(self._conf)).items():
                    conf.set(key, value)
                context = pyspark.SparkContext(conf=conf, gateway=gateway)
            self._lend(context)
            return context
        except Exception as error:  # pyspark raises several unrelated kinds here
            self._failed = self._gone is None or self._gone.code != _GIVEN_UP
            self._stop_watching()
            jvm.end_jvm()
            if self.jvm is not None:  # PySpark did not know of it yet
                jvm.end_program(self.jvm)
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

    def _began(self, program: Any) -> None:
        self.jvm = program
        if self._gone is not None:
            program.kill()

    def _lend(self, context: Any) -> None:
        """What this runner keeps of a context that has started."""
        self._driver = Driver(context)
        self._results = context.accumulator([], _Results(self._deliver))
        self._at_once = int(context.defaultParallelism)
        if not self._is_local:
            from calve.spark.grants import Grants

            self._grants = Grants(context)

    def _remove_folder(self) -> None:
        if self._folder is not None:
            self._folder.remove()
            self._folder = None


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
