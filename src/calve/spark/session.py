"""A session that somebody else made, in a notebook or a job: the work runs on it, and it is not ours to stop."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from calve.model.errors import CalveError, PermanentError, UsageError
from calve.spark.conf import repeats_count
from calve.spark.runner import SparkRunner

SUPPORTED = ("3.5", "4.0", "4.1")
_LOG = Path("the log of the session's driver")
# Spark's own, which a session's configuration leaves out.
_DEFAULTS = {"spark.task.maxFailures": "4"}


def no_connect(what: str) -> UsageError:
    return UsageError(
        f"{what} is Spark Connect, over which Calve cannot work: a client has no SparkContext, so nothing cancels a task in"
        " the middle of native code, tells that one has finished, or runs Iceberg's actions in the driver's JVM",
        code="spark_connect",
        hint="run it where the driver is (spark-submit, a notebook on a cluster of its own), or run `calve worker` beside"
        " it with [spark] master set to the cluster's own",
    )


def context_of(spark: Any) -> Any:
    """The SparkContext of a session, or of what is one already."""
    if ".connect" in type(spark).__module__:
        raise no_connect("this session")
    if hasattr(spark, "parallelize"):
        return spark
    try:
        return spark.sparkContext
    except Exception as error:
        raise no_connect("this session") from error


class SessionRunner(SparkRunner):
    """See `control.ports.Runner`. Closing it leaves the session as it was."""

    def __init__(self, spark: Any, *, prepare: str = "") -> None:
        self._given = context_of(spark)
        conf = _DEFAULTS | dict(self._given.getConf().getAll())
        super().__init__(master=str(self._given.master), conf=conf, log=_LOG, prepare=prepare)

    @property
    def master(self) -> str:
        return self._master

    @property
    def _is_standalone(self) -> bool:
        return False  # whose master to watch, and whose session to start again, is its owner's business

    def _start(self) -> Any:
        if self._given._jsc is None:
            raise PermanentError(
                "the Spark session was stopped",
                code="session_stopped",
                hint="make another one, and call run again",
            )
        self._lend(self._given)
        return self._given

    def _lose(self, context: Any, why: CalveError) -> None:
        with self._lock:
            if self._context is context:
                self._lost, self._context = (context, why), None
                self._stop_watching()

    def close(self) -> None:
        """The session is somebody else's."""
        if self._near is not None:
            self._near.close()
        self._stop_watching()


def remarks(spark: Any) -> Iterator[tuple[str, str]]:
    """What of a session's configuration Calve would have set otherwise, and the remedy."""
    context = context_of(spark)
    conf = _DEFAULTS | dict(context.getConf().getAll())
    if (minor := ".".join(context.version.split(".")[:2])) not in SUPPORTED:
        yield f"Spark {context.version} was never tried", f"supported are {', '.join(SUPPORTED)}, not {minor}"
    if not context.master.startswith("local") and repeats_count(conf):
        yield (
            f"spark.task.maxFailures is {conf['spark.task.maxFailures']} and spark.speculation is"
            f" {conf.get('spark.speculation', 'false')}: a task that Spark repeats by itself is refused, and uses its budget",
            "set spark.task.maxFailures=1 and spark.speculation=false where the session is made",
        )
    if conf.get("spark.python.worker.reuse", "true") != "true":
        yield (
            "each task loads ClickHouse's engine again",
            "set spark.python.worker.reuse=true where the session is made",
        )
    if conf.get("spark.scheduler.mode", "FIFO") != "FAIR":
        yield (
            "processes wait for each other's tasks",
            "set spark.scheduler.mode=FAIR where the session is made",
        )
