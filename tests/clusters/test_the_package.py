"""`calve spark package`: what an executor that has a Python and nothing else gets."""

import os
import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from calve.control.ports import TaskOrder, TaskResult
from calve.model.errors import UsageError
from calve.model.process import ProcessId
from calve.spark import package
from calve.spark.runner import SparkRunner
from support.sparks import common_conf
from support.standalone import Standalone


def test_it_holds_what_calve_requires_and_neither_spark_nor_what_serves() -> None:
    found = package.needed()
    assert {"calve", "chdb-core", "pyarrow", "pyiceberg", "obstore", "numpy", "cffi"} <= found.keys()
    assert not {"pyspark", "py4j", "fastapi", "uvicorn", "pytest", "mypy"} & found.keys()


def test_its_python_is_this_machine_s_with_the_packages_beside_it(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "shipped.py").write_text("WORD = 'here'")
    python = tmp_path / "bin" / "python"
    python.write_text(package.SCRIPT)
    python.chmod(0o755)
    command = [
        str(python),
        "-c",
        "import shipped, sys; print(shipped.WORD, *sys.version_info[:2], sys.path[1:])",
    ]
    for name, chosen in (("CALVE_PYTHON", sys.executable), ("PYTHONPATH", "/of/spark.zip")):
        done = subprocess.run(
            command, env=os.environ | {name: chosen}, capture_output=True, text=True, check=True
        )
        assert done.stdout.startswith(f"here {sys.version_info[0]} {sys.version_info[1]} ")
    assert "/of/spark.zip" in done.stdout


def test_a_machine_without_that_python_says_so(tmp_path: Path) -> None:
    script = package.SCRIPT.replace(f'"{sys.base_prefix}', '"/nowhere')
    file = tmp_path / "python"
    file.write_text(script)
    (tmp_path / "dirname").symlink_to("/usr/bin/dirname")
    done = subprocess.run(["/bin/sh", str(file)], env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == 127
    assert f"has no python{sys.version_info[0]}.{sys.version_info[1]}; install it" in done.stderr


def test_a_name_that_spark_cannot_unpack_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot unpack calve\.whl"):
        package.pack(tmp_path / "calve.whl")
    with pytest.raises(UsageError, match="No such file"):
        package.pack(tmp_path / "nowhere" / "calve.tar.gz")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long  # 300 MB, a minute
def test_the_archive_runs_a_task_where_nothing_else_is_installed(tmp_path: Path) -> None:
    file = tmp_path / "calve.tar.gz"
    packages = package.pack(file)
    assert any(one.startswith("chdb-core ") for one in packages)
    with tarfile.open(file) as archive:
        archive.extractall(tmp_path / "calve", filter="data")
    done = subprocess.run(
        [str(tmp_path / "calve" / "bin" / "python"), "-S", "-c",
         "from calve.app.doctor.task import run; import calve; print(calve.__file__, run(''))"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith(f"{tmp_path}/calve/lib/calve/") and '"receipt"' in done.stdout


@pytest.mark.long
@pytest.mark.spark
def test_executors_get_it_by_spark_archives(
    tmp_path: Path, standalone: Standalone, spark: SparkRunner
) -> None:
    file = tmp_path / "calve.tar.gz"
    package.pack(file)
    conf = common_conf() | {
        "spark.archives": f"{file}#{package.FOLDER}", "spark.pyspark.python": package.python(), "spark.cores.max": "1",
    }  # fmt: skip
    order = TaskOrder(
        process_id=ProcessId("p"), number=0, attempt=1, function="calve.app.doctor.task:run", payload=""
    )
    results: list[TaskResult] = []
    spark.close()  # PySpark has room for one
    with closing(SparkRunner(master=standalone.url, conf=conf)) as runner:
        runner.run("wave", [order], results.append)
        assert results[0].error is None and results[0].receipt, results
