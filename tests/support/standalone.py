"""A real Spark cluster: a standalone master and one worker, whose executors inherit nothing of this program's
environment that Python looks at.

    with Standalone(tmp_path) as cluster:
        SparkRunner(master=cluster.url, conf={...})

The master can be stopped and started again under the same address.
"""

from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from calve.spark.java import java_home
from support.programs import Program, free_ports
from support.sparks import java_options

SPARK_HOME = Path(pyspark.__file__).parent


class Standalone:
    """Starts on entering, ends on leaving, executors included."""

    def __init__(self, folder: Path, *, cores: int = 2) -> None:
        self._folder = folder
        self._cores = cores
        [self._port] = free_ports(1)
        self._programs: list[Program] = []

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self.start_master()
        work = ("--work-dir", str(self._folder / "work"), "--cores", str(self._cores), "--memory", "1g")
        self._programs += [
            self._start("worker.Worker", "Successfully registered with master", *work, self.url)
        ]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for program in reversed(self._programs):
            program.kill()

    def start_master(self) -> None:
        port = ("--port", str(self._port))
        self._programs.insert(0, self._start("master.Master", "I have been elected leader", *port))

    def stop_master(self) -> None:
        self._programs.pop(0).kill()

    def _start(self, name: str, ready: str, *arguments: str) -> Program:
        log = self._folder / f"{name}.log"
        begin = log.stat().st_size if log.exists() else 0
        program = Program(
            name,
            [
                str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}",
                "--host", "127.0.0.1", "--webui-port", "0", *arguments,
            ],
            log,
            {
                "JAVA_HOME": str(java_home()), "SPARK_HOME": str(SPARK_HOME),
                "SPARK_DAEMON_JAVA_OPTS": java_options(), "PYTHONPATH": "", "VIRTUAL_ENV": "",
            },
        )  # fmt: skip
        program.wait_ready(lambda: ready in log.read_text(errors="replace")[begin:])
        return program
