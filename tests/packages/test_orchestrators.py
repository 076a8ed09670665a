"""The examples for orchestrators use what there is; with the orchestrators themselves they run in the long tests."""

import ast
import inspect
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import calve
from calve.app.desk import SERVED
from docs.test_blocks_of_the_pages import understood
from support.installed import ROOT

EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*/*.py"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_every_verb_option_and_field_of_the_client_is_one_that_it_has(path: Path) -> None:
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module="calve", names=names):
                assert {alias.name for alias in names} <= set(calve.__all__)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="calve"), attr=verb), keywords=keywords):
                method = inspect.signature(getattr(calve.Client, verb))
                options = set(method.parameters) | set(SERVED[verb].options if verb in SERVED else ())
                assert {keyword.arg for keyword in keywords} <= options
            case ast.Attribute(value=ast.Name(id="process"), attr=field):
                assert field in calve.Process.__dataclass_fields__ or hasattr(calve.Process, field)


def commands() -> Iterator[tuple[str, str]]:
    for name in ("cron/crontab", "github/export.yml", "dbt/export_after_dbt.sh"):
        for line in re.findall(r"(?:^|\s|/)(calve [a-z].+)$", (EXAMPLES / name).read_text(), re.MULTILINE):
            if "/bin/calve" not in line:
                yield name, line.partition(" >")[0].partition(" <")[0]


@pytest.mark.parametrize(("name", "line"), [*commands()])
def test_every_command_is_one_that_calve_takes(name: str, line: str) -> None:
    assert understood(line).command.name


def test_every_example_has_commands_or_is_a_script() -> None:
    named = {name.partition("/")[0] for name, _ in commands()} | {path.parent.name for path in SCRIPTS}
    assert named == {path.name for path in EXAMPLES.iterdir() if path.is_dir()}


def test_a_job_of_github_is_a_job() -> None:
    job = yaml.safe_load((EXAMPLES / "github" / "export.yml").read_text())["jobs"]["export"]
    assert [next(iter(step)) for step in job["steps"]] == ["uses", "run", "run", "run"]
    assert set(job["env"]) == {"CALVE_SERVER", "CALVE_TOKEN"}


def test_what_dbt_built_is_exported_and_nothing_else(tmp_path: Path) -> None:
    """With the files that dbt leaves, and a `calve` that says what it was asked."""
    node = {"schema": "db", "config": {"meta": {"calve": "lake.ns.events"}}}
    nodes = {
        "model.x.events": node | {"alias": "events"},
        "model.x.failed": node | {"alias": "failed"},
        "model.x.other": {"schema": "db", "alias": "other", "config": {}},
    }
    results = [
        {"unique_id": name, "status": "error" if name.endswith("failed") else "success"}
        for name in (*nodes, "test.x.not_null")
    ]
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "manifest.json").write_text(json.dumps({"nodes": nodes}))
    (tmp_path / "target" / "run_results.json").write_text(json.dumps({"results": results}))
    (tmp_path / "calve").write_text('#!/bin/sh\necho "$@"\nexit "${CODE:-0}"\n')
    (tmp_path / "calve").chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    for code in ("0", "4"):
        done = subprocess.run(
            [EXAMPLES / "dbt" / "export_after_dbt.sh"], cwd=tmp_path, env=environment | {"CODE": code},
            capture_output=True, text=True,
        )  # fmt: skip
        assert (done.stdout, str(done.returncode)) == (
            "export db.events --older-than 1d --to lake.ns.events\n",
            code,
        )
