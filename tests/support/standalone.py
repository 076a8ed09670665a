"""A real Spark cluster: a standalone master and workers, whose executors inherit nothing of this program's
environment that Python looks at.

    with Standalone(tmp_path) as cluster:
        SparkRunner(master=cluster.url, conf={...})

The master can be stopped and started again under the same address; workers come and go. `strangers` are executors as
those of other machines: of another user where this one is root, in a folder of their own, and without access to ours.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

import calve
from calve.spark.java import java_home
from support.programs import Program, free_ports
from support.sparks import java_options

SPARK_HOME = Path(pyspark.__file__).parent
_NOBODY = 65534
_BECOME_NOBODY = ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"]


class Standalone:
    """Starts on entering, ends on leaving, executors included."""

    def __init__(self, folder: Path, *, cores: int = 2, workers: int = 1, strangers: bool = False) -> None:
        self._folder = folder
        self._cores = cores
        self._count = workers
        self._strangers = strangers
        [self._port] = free_ports(1)
        self._master: Program | None = None
        self.workers: list[Program] = []
        self._work = folder / "work"
        self.python = sys.executable  # that executors can run
        self._become: list[str] = []

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        if self._strangers:  # nobody else may look into a folder of pytest
            self._work = Path(tempfile.mkdtemp(prefix="calve-cluster-", dir="/tmp"))
            self._work.chmod(0o777)
            self.python = self._make_python()
            self._become = _BECOME_NOBODY if _nobody_runs(self.python) else []
        self.start_master()
        for _ in range(self._count):
            self.add_worker()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for program in reversed(self.workers):
            program.kill()
        self.stop_master()
        if self._strangers:
            shutil.rmtree(self._work, ignore_errors=True)

    def start_master(self) -> None:
        port = ("--port", str(self._port))
        self._master = self._start("master.Master", "I have been elected leader", *port)

    def stop_master(self) -> None:
        if self._master is not None:
            self._master.kill()

    def add_worker(self) -> Program:
        work = ("--work-dir", str(self._work), "--cores", str(self._cores), "--memory", "1g")
        worker = self._start("worker.Worker", "Successfully registered with master", *work, self.url)
        self.workers.append(worker)
        return worker

    def executors(self, worker: Program) -> list[int]:
        """Process ids of the JVMs that run a worker's tasks now."""
        return [pid for pid in _children(worker.pid) if b"CoarseGrainedExecutorBackend" in _command(pid)]

    def kill_executor(self, worker: Program) -> None:
        """SIGKILL, as the kernel does it that has no memory left."""
        for pid in self.executors(worker):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill_worker(self, worker: Program) -> None:
        """A machine that lost its power: the worker, and the executors with it."""
        self.workers.remove(worker)
        worker.send(signal.SIGSTOP)  # or it would say good-bye for them
        self.kill_executor(worker)
        worker.kill()

    def decommission(self, worker: Program) -> None:
        """What a cloud tells a spot instance before it takes it away."""
        worker.send(signal.SIGPWR)

    def _make_python(self) -> str:
        """The system's own Python, or a copy of this one, with the packages of this one, as `calve spark package` has
        it: this one may be in a home that is closed to others."""
        minor = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        found, libraries = shutil.which(minor, path="/usr/local/bin:/usr/bin"), ""
        if found is None:
            base = shutil.copytree(
                sys.base_prefix, self._work / "base", symlinks=True, copy_function=_link_or_copy
            )
            found, libraries = str(base / "bin" / minor), f'LD_LIBRARY_PATH="{base}/lib" '
        paths = [path for path in sys.path if path.endswith("site-packages")]
        paths += [str(Path(calve.__file__).parents[1]), str(Path(__file__).parents[1])]
        script = self._work / "python"
        script.write_text(
            f'#!/bin/sh\n{libraries}PYTHONPATH="{":".join(paths)}:$PYTHONPATH" exec {found} "$@"\n'
        )
        script.chmod(0o755)
        return str(script)

    def _start(self, name: str, ready: str, *arguments: str) -> Program:
        log = self._folder / f"{name}{len(self.workers)}.log"
        begin = log.stat().st_size if log.exists() else 0
        options = f"{java_options()} -Dspark.decommission.enabled=true"
        program = Program(
            name,
            [
                *self._become, str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}",
                "--host", "127.0.0.1", "--webui-port", "0", *arguments,
            ],
            log,
            {
                "JAVA_HOME": str(java_home()), "SPARK_HOME": str(SPARK_HOME),
                "SPARK_DAEMON_JAVA_OPTS": options, "PYTHONPATH": "", "VIRTUAL_ENV": "",
                **({"HOME": "/nonexistent", "TMPDIR": "/tmp"} if self._become else {}),
            },
        )  # fmt: skip
        program.wait_ready(lambda: ready in log.read_text(errors="replace")[begin:])
        return program


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # on another disk
        shutil.copy2(source, target)


def _nobody_runs(python: str) -> bool:
    """In a shell of its own, as an executor does: root's rights last for one program longer than it is root."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return False
    tried = subprocess.run(
        [*_BECOME_NOBODY, "sh", "-c", f"{python} -c 'import calve'; exit $?"], capture_output=True
    )
    return tried.returncode == 0


def _children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *_children(child)]
    return found


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
