"""The examples in Airflow and in Dagster: real ones, in environments of their own, against a server with a worker."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Thread

import pytest

from calve.app.calve import Calve
from calve.app.config import load_config
from calve.app.config.template import write
from calve.app.token_file import read_token
from calve.clickhouse.embedded.source import EmbeddedSource
from calve.model.states import ProcessState
from support.installed import ROOT, Installed, outside
from support.local_runner import LocalRunner
from support.served import served_here

pytestmark = pytest.mark.long
EXAMPLES = ROOT / "examples"


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Where the example finds Calve: a server over a table with two partitions, and a worker."""
    home = tmp_path / "home"
    write(home)
    monkeypatch.chdir(home)
    with EmbeddedSource("main", home / "clickhouse", create=True).visit() as session:
        session.execute("CREATE DATABASE db")
        session.execute(
            "CREATE TABLE db.events (id UInt64, at Date) ENGINE = MergeTree PARTITION BY toYYYYMM(at) ORDER BY id"
        )
        session.execute(
            "INSERT INTO db.events VALUES (1, '2024-01-01'), (2, '2024-02-01'), (3, '2024-02-02')"
        )
    with ExitStack() as stack:
        runner = stack.enter_context(closing(LocalRunner()))
        facade = stack.enter_context(Calve(load_config(home / "calve.toml", environ={}), runner=runner))
        program = facade.worker()
        thread = Thread(target=program.run)
        thread.start()
        stack.callback(thread.join, 60)
        stack.callback(program.request_stop)
        url = stack.enter_context(served_here(home))
        yield {"CALVE_SERVER": url, "CALVE_TOKEN": read_token(home / "calve.token")}


def exported(environment: dict[str, str]) -> dict[str, int]:
    """Rows of each partition that a process of the store exported."""
    from calve import Client

    with Client(environment["CALVE_SERVER"], environment["CALVE_TOKEN"]) as client:
        found = client.processes(all=True, kind="export")
    assert {process.state for process in found} == {ProcessState.COMPLETED}
    return {process.partitions[0]: process.rows for process in found}


def with_packages(folder: Path, installed: Installed, *packages: str) -> Path:
    """An environment with the orchestrator, and the client alone: no Spark, no engine."""
    uv = Path(sys.executable).with_name("uv")
    secure = os.environ | {"UV_SYSTEM_CERTS": "1"}
    for command in (
        ["venv", "--quiet", "--python", sys.executable, folder],
        ["pip", "install", "--quiet", "--python", folder, "requests", *packages],
        ["pip", "install", "--quiet", "--python", folder, "--no-deps", installed.wheel],
    ):
        subprocess.run([uv, *command], env=secure, check=True)
    return folder / "bin" / "python"


def ran(python: Path, script: str, folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [python, "-c", script],
        cwd=folder,
        env=outside() | environment,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


IN_DAGSTER = """
import dagster as dg
import calve_dagster as example

with dg.DagsterInstance.ephemeral() as instance:
    context = dg.build_sensor_context(instance=instance, definitions=example.defs)
    found = example.new_partitions(context)
    [request] = found.dynamic_partitions_requests
    instance.add_dynamic_partitions("events", request.partition_keys)
    for run in [*found.run_requests, found.run_requests[0]]:
        result = dg.materialize([example.events], partition_key=run.partition_key, instance=instance)
        assert result.success
        [check] = result.get_asset_check_evaluations()
        assert check.passed, check.metadata
    print([one.partition_key for one in found.run_requests])
    print(example.new_partitions(context).run_requests)
"""


def test_a_partition_of_a_dagster_asset_is_a_partition_of_the_table_and_its_check_is_verify(
    environment: dict[str, str], installed: Installed, tmp_path: Path
) -> None:
    python = with_packages(tmp_path / "dagster", installed, "dagster==1.13.28")
    said = ran(python, IN_DAGSTER, EXAMPLES / "dagster", environment | {"DAGSTER_HOME": ""})
    assert said.splitlines()[-2:] == ["['202401', '202402']", "[]"]
    assert exported(environment) == {"202401": 1, "202402": 2}


IN_AIRFLOW = """
from datetime import datetime, timezone
from export_to_lake import made

for time in range(2):
    run = made.test(logical_date=datetime(2024, 3, 2 + time, 4, tzinfo=timezone.utc))
    print(run.state)
"""


def test_an_airflow_dag_exports_last_month_s_partition_and_defers_while_it_waits(
    environment: dict[str, str], installed: Installed, tmp_path: Path
) -> None:
    python = with_packages(tmp_path / "airflow", installed, "apache-airflow==3.3.2")
    home = {
        "AIRFLOW_HOME": str(tmp_path / "home-of-airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(EXAMPLES / "airflow"),
        "PYTHONPATH": str(EXAMPLES / "airflow"),
    }
    everything = outside() | environment | home
    airflow = python.with_name("airflow")
    subprocess.run([airflow, "db", "migrate"], env=everything, check=True, capture_output=True, timeout=280)
    said = ran(python, IN_AIRFLOW, EXAMPLES / "airflow", environment | home)
    assert [line for line in said.splitlines() if line in ("success", "failed")] == ["success", "success"]
    assert exported(environment) == {"202402": 2}
