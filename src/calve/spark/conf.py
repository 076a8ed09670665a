"""The configuration that a session of ours starts with: Spark's keys, the JVM's options, and where Python is."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from calve.spark.java import ClassArchive
from calve.spark.jvm_files import JvmFolder

# A cancelled Python worker deep in native code is killed after this; 1 s made a cancel take 2.7 s.
KILL_TIMEOUT = "1s"
# The better of the JVM's two compilers, for code that runs ten to twenty times as often as by default. What only
# schedules Python never does, and was compiled during a worker's first twenty exports; a compaction soon does.
_COMPILE_LATER = (
    "-XX:Tier4InvocationThreshold=100000",
    "-XX:Tier4MinInvocationThreshold=20000",
    "-XX:Tier4CompileThreshold=300000",
    "-XX:Tier4BackEdgeThreshold=400000",
)


def defaults(
    master: str, *, folder: JvmFolder, log: Path, classes: ClassArchive, brief: bool
) -> dict[str, str]:
    """What `[spark.conf]` may change."""
    log4j = Path(__file__).with_name("log4j2.properties").as_uri()
    options = [f"-Dlog4j2.configurationFile={log4j}", f"-Dcalve.spark.log={log}"]
    options += classes.options(os.environ["JAVA_HOME"])
    options += folder.options()
    options += ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"] if brief else _COMPILE_LATER
    conf = {
        "spark.app.name": "calve",
        "spark.master": master,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.task.maxFailures": "1",
        "spark.speculation": "false",
        "spark.python.worker.reuse": "true",  # one engine session per Python worker (W9)
        "spark.python.task.killTimeout": KILL_TIMEOUT,
        "spark.driver.extraJavaOptions": " ".join(options),
    }
    if master.startswith("local"):
        conf |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.python.daemon.module": "calve.spark.executor",
            "spark.local.dir": str(folder.path),
        }
    return conf


def pythons(conf: Mapping[str, str], *, local: bool) -> dict[str, str]:
    """PySpark itself reads these names only from the environment. Executors on this machine run this very
    environment (D16); on a cluster `spark.pyspark.python` says where theirs is, then PYSPARK_PYTHON."""
    given = os.environ.get("PYSPARK_PYTHON", "python3")
    python = conf.get("spark.pyspark.python") or (sys.executable if local else given)
    driver = conf.get("spark.pyspark.driver.python") or sys.executable
    return {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": driver}


def repeats_count(conf: Mapping[str, str]) -> bool:
    """Whether an attempt that Spark repeats uses its budget. With Spark's retries and speculation off it repeats
    only what was lost by no fault of the task; where [spark.conf] turns them on, there is no telling."""
    return (conf.get("spark.task.maxFailures", "1"), conf.get("spark.speculation", "false")) != ("1", "false")
