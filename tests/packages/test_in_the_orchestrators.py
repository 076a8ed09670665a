"""The examples in Airflow, Dagster and dbt: real ones, in environments of their own, against a server with a worker, and dbt
against a ClickHouse server."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from threading import Thread

import pytest

from calve.app.calve import Calve
from calve.app.config import load_config
from calve.app.config.template import write
from calve.app.token_file import read_token
from calve.clickhouse.embedded.source import EmbeddedSource
from calve.control.worker import WorkerLoop
from calve.model.states import ProcessState
from support.clickhouse_front import NO_USERS, FrontOptions, clickhouse_front
from support.installed import ROOT, Installed, outside
from support.local_runner import LocalRunner
from support.place import Place
from support.served import served_here

pytestmark = pytest.mark.long
EXAMPLES = ROOT / "examples"


@contextmanager
def running(worker: WorkerLoop) -> Iterator[None]:
    thread = Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker.request_stop()
        thread.join(60)


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
        stack.enter_context(running(facade.worker()))
        url = stack.enter_context(served_here(home))
        yield {"CALVE_SERVER": url, "CALVE_TOKEN": read_token(home / "calve.token")}


def exported(environment: dict[str, str]) -> dict[str, int]:
    """Rows of each partition that a process of the store exported."""
    from calve import Client

    with Client(environment["CALVE_SERVER"], environment["CALVE_TOKEN"]) as client:
        found = client.processes(all=True, kind="export")
    assert {process.state for process in found} == {ProcessState.COMPLETED}
    return {process.partitions[0]: process.rows for process in found}


def environment_with(folder: Path, *packages: str) -> Path:
    """The Python of an environment that has these."""
    uv = Path(sys.executable).with_name("uv")
    for command in (
        ["venv", "--quiet", "--python", sys.executable, folder],
        ["pip", "install", "--quiet", "--python", folder, *packages],
    ):
        subprocess.run([uv, *command], env=os.environ | {"UV_SYSTEM_CERTS": "1"}, check=True)
    return folder / "bin" / "python"


def with_packages(folder: Path, installed: Installed, *packages: str) -> Path:
    """An environment with the orchestrator, and the client alone: no Spark, no engine."""
    python = environment_with(folder, "requests", *packages)
    uv = Path(sys.executable).with_name("uv")
    subprocess.run(
        [uv, "pip", "install", "--quiet", "--python", folder, "--no-deps", installed.wheel], check=True
    )
    return python


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


OF_DBT = {
    "dbt_project.yml": """
name: shop
version: "1.0"
profile: shop
""",
    "profiles.yml": """
shop:
  target: dev
  outputs:
    dev: {type: clickhouse, driver: http, host: 127.0.0.1, port: PORT, user: default, password: "", schema: db}
""",
    "models/events.sql": """
{{ config(materialized='incremental', incremental_strategy='append', engine='MergeTree()', order_by='id',
          partition_by='toYYYYMM(at)', meta={'calve': 'lake.ns.events'}) }}
select number as id, toDate('2024-01-01') + number % 60 as at from numbers(100)
""",
    "models/kept.sql": "{{ config(materialized='table', engine='MergeTree()', order_by='id') }} select 1 as id",
    "models/broken.sql": """
{{ config(materialized='table', engine='MergeTree()', order_by='id', meta={'calve': 'lake.ns.broken'}) }}
select throwIf(1) as id
""",
}


@pytest.mark.services
def test_what_dbt_built_in_a_server_is_in_the_lake_and_running_the_hook_again_is_safe(tmp_path: Path) -> None:
    stand_ins = {**NO_USERS, "serverUUID()": "toUUID('11111111-2222-3333-4444-555555555555')"}
    project, place = tmp_path / "project", tmp_path / "place"
    place.mkdir()
    python = environment_with(tmp_path / "dbt", "dbt-core==1.11.16", "dbt-clickhouse==1.10.3")
    with clickhouse_front(tmp_path / "front", FrontOptions(stand_ins=stand_ins)) as front:
        for name, text in OF_DBT.items():
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            (project / name).write_text(text.replace("PORT", str(front.port)))
        secure = {"DBT_SEND_ANONYMOUS_USAGE_STATS": "false", "DBT_PROFILES_DIR": str(project)}
        built = subprocess.run(
            [python.with_name("dbt"), "build"],
            cwd=project,
            env=outside() | secure,
            capture_output=True,
            text=True,
        )
        assert "PASS=2" in built.stdout and "ERROR=1" in built.stdout, built.stdout
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        with closing(LocalRunner()) as runner:
            found = Place(place, runner, CALVE_SOURCE__MAIN__URL=front.url)
            with found.app() as app, running(app.worker()):
                for words in ("2 completed", "already exported"):
                    hook = subprocess.run(
                        [EXAMPLES / "dbt" / "export_after_dbt.sh", project / "target"], cwd=place, timeout=280,
                        env=outside() | found.settings | {"PATH": path}, capture_output=True, text=True,
                    )  # fmt: skip
                    assert hook.returncode == 0 and words in hook.stderr, hook.stderr
        assert sorted(found.read().column("id").to_pylist()) == list(range(100))
        with found.app() as app:
            assert app.catalog("lake").list_tables("ns") == [("ns", "events")]
