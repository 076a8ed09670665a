"""Images, units, compose and Kubernetes: what these files say is what Calve takes."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from calve import __version__
from calve.app.config.load import load_config
from calve.cli.main import calve
from calve.store import open_store
from docs.test_blocks_of_the_pages import understood
from support.installed import ROOT
from support.served import Served

DEPLOY = ROOT / "deploy"
DOCKERFILE = DEPLOY / "docker" / "Dockerfile"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
VALUES: dict[str, Any] = yaml.safe_load((DEPLOY / "helm" / "calve" / "values.yaml").read_text())
MANIFESTS: list[dict[str, Any]] = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "calve.yaml").read_text()))
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def containers() -> Iterator[dict[str, Any]]:
    for one in MANIFESTS:
        if one["kind"] == "Deployment":
            yield from one["spec"]["template"]["spec"]["containers"]


def commands() -> Iterator[list[str]]:
    """What each of these files has `calve` do."""
    for unit in UNITS:
        yield re.findall(r"^ExecStart=/opt/calve/bin/calve (.+)$", unit.read_text(), re.MULTILINE)[0].split()
    for found in re.findall(r"^CMD (\[.+\])$", DOCKERFILE.read_text(), re.MULTILINE):
        if found != '["executor"]':  # of Spark's own entry point
            yield yaml.safe_load(found)
    yield COMPOSE["services"]["server"]["command"]
    yield from (container["args"] for container in containers())


@pytest.mark.parametrize("command", [pytest.param(one, id=" ".join(one)) for one in commands()])
def test_every_command_is_one_that_calve_takes(command: list[str]) -> None:
    assert understood(" ".join(["calve", *command])).command.name in calve.commands


def test_hadolint_has_nothing_to_say_about_the_dockerfile() -> None:
    answer = subprocess.run(
        [Path(sys.executable).with_name("hadolint"), DOCKERFILE], capture_output=True, text=True
    )
    assert (answer.returncode, answer.stdout) == (0, "")


def test_what_an_image_copies_is_let_into_its_context() -> None:
    copied = re.findall(r"^COPY (?!--from)(\S+) ", DOCKERFILE.read_text(), re.MULTILINE)
    let_in = (ROOT / ".dockerignore").read_text()
    assert copied == ["deploy/requirements.lock", "dist/*.whl"]
    assert all(f"\n!{name}\n" in let_in for name in copied)


def test_images_are_of_this_version_of_calve_and_of_spark() -> None:
    text = DOCKERFILE.read_text()
    locked = (DEPLOY / "requirements.lock").read_text()
    [spark] = re.findall(r"^pyspark==(\S+)", locked, re.MULTILINE)
    assert f"ARG SPARK={spark}-" in text
    images = {
        *re.findall(r"-t calve[\w-]*:(\S+)", text),
        *(VALUES[part]["image"].rpartition(":")[2] for part in ("worker", "server")),
        *(COMPOSE["services"][part]["image"].rpartition(":")[2] for part in ("worker", "server")),
        yaml.safe_load((DEPLOY / "helm" / "calve" / "Chart.yaml").read_text())["appVersion"],
    }
    assert images == {__version__}


def test_every_configuration_is_one_that_calve_takes(tmp_path: Path) -> None:
    for name in ("clickhouse-password", "store-url"):
        (tmp_path / name).write_text("postgresql://x")
    [rendered] = [one["data"]["calve.toml"] for one in MANIFESTS if one["kind"] == "ConfigMap"]
    assert tomllib.loads(rendered) == tomllib.loads(VALUES["config"])
    for text in (rendered, (DEPLOY / "compose" / "calve.toml").read_text()):
        (tmp_path / "calve.toml").write_text(text.replace("/run/secrets/calve", str(tmp_path)))
        config = load_config(tmp_path / "calve.toml", environ={}, cwd=tmp_path)
        assert config.store_url.startswith("postgresql://")


def test_whoever_stops_a_worker_lets_it_drain(tmp_path: Path) -> None:
    (tmp_path / "calve.toml").write_text('[source.main]\nurl = "chdb://x"\n')
    lease = load_config(tmp_path / "calve.toml", environ={}, cwd=tmp_path).limits.lease_seconds
    [unit] = [unit.read_text() for unit in UNITS if unit.stem == "calve-worker"]
    given = [
        int(re.findall(r"^TimeoutStopSec=(\d+)", unit, re.MULTILINE)[0]),
        int(COMPOSE["services"]["worker"]["stop_grace_period"].removesuffix("s")),
        VALUES["worker"]["terminationGracePeriodSeconds"],
    ]
    assert min(given) >= 2 * lease


@pytest.mark.programs
def test_a_kubelet_s_probes_are_answered_by_the_server_that_the_manifests_start(tmp_path: Path) -> None:
    """It is called by the pod's address there, and a server answers to its names only."""
    [server] = [one for one in containers() if one["name"] == "server"]
    settings = '[source.main]\nurl = "chdb://clickhouse"\n'
    with open_store(f"sqlite:///{tmp_path}/calve.db"):
        served = Served(tmp_path, [one for one in server["args"][1:] if "--host=" not in one], settings)
    try:
        for kind in ("livenessProbe", "readinessProbe"):
            probe = server[kind]["httpGet"]
            headers = {one["name"]: one["value"] for one in probe["httpHeaders"]}
            url = f"http://127.0.0.1:{served.port}{probe['path']}"
            assert httpx.get(url, headers=headers, trust_env=False).status_code == 200
            assert httpx.get(url, headers={"Host": "10.1.2.3:8180"}, trust_env=False).status_code == 421
    finally:
        served.close()
